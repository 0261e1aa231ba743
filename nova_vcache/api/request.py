# SPDX-License-Identifier: Apache-2.0
"""The request object for the handlers."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

from microversion_parse import Version

from nova_vcache.api.backend import Backend
from nova_vcache.api.errors import bad_request, forbidden
from nova_vcache.api.openapi import Operation
from nova_vcache.api.policy import Policy

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Call:
    """A validated request.

    :param backend: data and services
    :param operation: the operation of openapi.yaml
    :param context: request context of the token
    :param policy: the policy for this request
    :param query: validated and typed query parameters; values that are None are absent
    :param body: the validated body; None: the operation has none
    :param version: the negotiated microversion; that of a public operation is the lowest
    :param base: URL of the API, without a slash at the end
    """

    backend: Backend
    operation: Operation
    context: Any
    policy: Policy
    query: Mapping[str, Any]
    body: Any
    version: Version
    base: str

    @property
    def rpc_context(self) -> dict[str, Any]:
        """Context for RPC and notifications, without the token."""
        return {"request_id": self.context.request_id, "user_id": self.context.user_id,
                "project_id": self.context.project_id}

    def require(self, rule: str, project: str | None = None) -> None:
        """Ensure that the token satisfies a rule; see :meth:`.Policy.allows`.

        :raises ApiError: 403 if it does not
        """
        if not self.policy.allows(rule, project):
            raise forbidden(rule)

    def page(self, items: Iterable[T], key: Callable[[T], str], *,
             by: Callable[[T], str] | None = None, reverse: bool = False,
             ) -> tuple[list[T], list[dict[str, str]]]:
        """Return one page of items, and the link to the next page if there are more.

        The order of the keys defines the pages. So items that appear or disappear between
        two requests neither repeat nor hide other items. With another order, the item of the
        marker must still exist.

        :param items: all items
        :param key: returns the key of an item, which is also its marker
        :param by: returns what items are sorted by, and then by their key; None: only by that
        :param reverse: sort in descending order
        :raises ApiError: 400 if the marker is needed and its item does not exist
        """
        marker = self.query["marker"]
        limit = min(self.query["limit"] or self.backend.max_limit, self.backend.max_limit)

        def place(item: T) -> tuple[str, str]:
            return by(item) if by and by is not key else "", key(item)

        found = sorted(items, key=place, reverse=reverse)
        if marker is not None:
            at = self._place(found, marker, place, plain=by is None or by is key)
            found = [item for item in found if (place(item) < at if reverse else place(item) > at)]
        page = found[:limit]
        if len(found) <= limit:
            return page, []
        given = {name: str(value).lower() if isinstance(value, bool) else value
                 for name, value in self.query.items()
                 if value is not None and value != self.operation.default(name)}
        query = urlencode(given | {"limit": limit, "marker": key(page[-1])})
        return page, [{"rel": "next", "href": f"{self.base}{self.operation.path}?{query}"}]

    @staticmethod
    def _place(items: Iterable[T], marker: str, place: Callable[[T], tuple[str, str]], *,
               plain: bool) -> tuple[str, str]:
        """Return the place of a marker in the order of the items."""
        if plain:
            return "", marker
        for item in items:
            if place(item)[1] == marker:
                return place(item)
        raise bad_request(f"Query parameter 'marker': there is no item {marker[:60]!r} any more, "
                          "so the next page is unknown; start with the first page, or sort by "
                          "id.")

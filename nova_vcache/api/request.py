# SPDX-License-Identifier: Apache-2.0
"""One request, as a handler gets it."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

from nova_vcache.api.backend import Backend
from nova_vcache.api.errors import forbidden
from nova_vcache.api.openapi import Operation
from nova_vcache.api.policy import Policy

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Call:
    """A request that its operation and its policy allow.

    :param context: oslo.context's, of the token
    :param query: parameters, checked and typed; None: absent
    :param body: checked; None: there is none
    :param base: URL of the API, without a slash at the end
    """

    backend: Backend
    operation: Operation
    context: Any
    policy: Policy
    query: Mapping[str, Any]
    body: Any
    base: str

    @property
    def rpc_context(self) -> dict[str, Any]:
        """Return what goes along to hosts and into notifications; no token."""
        return {"request_id": self.context.request_id, "user_id": self.context.user_id,
                "project_id": self.context.project_id}

    def require(self, rule: str, project: str | None = None) -> None:
        """See to it that a rule allows it; see :meth:`.Policy.allows`.

        :raises ApiError: 403
        """
        if not self.policy.allows(rule, project):
            raise forbidden(rule)

    def page(self, items: Iterable[T], key: Callable[[T], str],
             ) -> tuple[list[T], list[dict[str, str]]]:
        """Return a page of items, and the link to the next one if there is more.

        Pages go by the order of their keys: what comes and goes between two of them
        neither repeats nor hides others.
        """
        marker = self.query["marker"]
        limit = min(self.query["limit"] or self.backend.max_limit, self.backend.max_limit)
        rest = sorted((item for item in items if marker is None or key(item) > marker), key=key)
        page = rest[:limit]
        if len(rest) <= limit:
            return page, []
        given = {name: str(value).lower() if isinstance(value, bool) else value
                 for name, value in self.query.items()
                 if value is not None and value != "default"}
        query = urlencode(given | {"limit": limit, "marker": key(page[-1])})
        return page, [{"rel": "next", "href": f"{self.base}{self.operation.path}?{query}"}]

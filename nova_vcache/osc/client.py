# SPDX-License-Identifier: Apache-2.0
"""vcache-api over HTTP: requests, pages, and errors in the API's own words."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc
from osc_lib import exceptions

#: Of the catalog.
SERVICE_TYPE = "vcache"

# The most that the document of the API takes.
_PAGE = 10000


class ApiError(exceptions.CommandError):
    """What vcache-api refused, or why it could not be asked."""


def path_of(*words: str) -> str:
    """Return a path of version 1; a word may have any characters."""
    return "/".join(["/v1", *(quote(word, safe="") for word in words)])


class Client:
    """vcache-api.

    :param http: a client of its endpoint
    """

    def __init__(self, http: adapter.Adapter) -> None:
        self._http = http

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Return an answer.

        :param query: None: not given
        """
        return self._ask("GET", path, params=_query(query))

    def list(self, name: str, ident: str, *, limit: int | None = None,
             marker: str | None = None, **query: Any) -> list[dict[str, Any]]:
        """Return the items of a list, of as many pages as it takes.

        :param name: of the resources, which is the path's and the answer's
        :param ident: the field that is an item's id, and so a marker
        :param limit: most items; None: all
        """
        found: list[dict[str, Any]] = []
        while True:
            wanted = None if limit is None else min(limit - len(found), _PAGE)
            answer = self.get(path_of(name), limit=wanted, marker=marker, **query)
            page = answer[name]
            found += page
            more = any(link.get("rel") == "next" for link in answer.get("links", ()))
            if not page or not more or (limit is not None and len(found) >= limit):
                return found
            # Not the link itself: behind a proxy its host may be another.
            marker = page[-1][ident]

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change something and return what it is then."""
        return self._ask("PATCH", path, json=body)

    def delete(self, path: str) -> None:
        """Delete something."""
        self._ask("DELETE", path)

    def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            response = self._http.request(path, method, raise_exc=False, **options)
        except ks_exc.EndpointNotFound as error:
            raise ApiError(
                f"{error}. 'openstack catalog show {SERVICE_TYPE}' has the endpoints that there "
                "are; --os-interface and --os-region-name choose among them, "
                "--os-vcache-endpoint-override does without.") from error
        if response.status_code == 204:
            return {}
        body = _json(response)
        if response.status_code >= 400:
            raise ApiError(_why(response, body, f"{method} {path}"))
        if not isinstance(body, dict):
            raise ApiError(f"{method} {response.url}: the answer is no JSON object; is this the "
                           "endpoint of vcache-api, without a version?")
        return body


def _query(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in values.items() if value is not None}


def _json(response: Any) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _why(response: Any, body: Any, what: str) -> str:
    """Return what is for people in an answer that is an error."""
    status = f"HTTP {response.status_code}"
    try:
        error = body["errors"][0]
        return f"{error['detail']} ({status}, {error['request_id']})"
    except (KeyError, IndexError, TypeError):
        # Not of vcache-api itself: its middleware, or what is before it.
        return f"{what}: {status} {response.reason or ''}".rstrip()

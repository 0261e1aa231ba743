# SPDX-License-Identifier: Apache-2.0
"""HTTP client of vcache-api: requests, pagination and errors."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from keystoneauth1 import adapter, discover
from keystoneauth1 import exceptions as ks_exc

#: Service type in Keystone's catalog.
SERVICE_TYPE = "vcache"

# Largest page that the OpenAPI document allows.
_PAGE = 10000


class ApiError(Exception):
    """vcache-api returned an error or cannot be reached."""


class NotFound(ApiError):
    """The resource does not exist, or the user may not see it."""


class Unauthorized(ApiError):
    """The token is not valid any more."""


_BY_STATUS: Mapping[int, type[ApiError]] = {401: Unauthorized, 404: NotFound}


def path_of(*words: str) -> str:
    """Return a path of version 1; words may contain any characters."""
    return "/".join(["/v1", *(quote(word, safe="") for word in words)])


class Client:
    """Client of vcache-api.

    :param http: adapter for its endpoint
    :param hint: what the user can do if the catalog has no endpoint, as sentences
    """

    def __init__(self, http: adapter.Adapter, hint: str = "") -> None:
        self._http = http
        self._hint = hint

    def require(self, microversion: str, what: str) -> None:
        """Ensure that requests use a microversion, or a newer one.

        :param what: what needs it, for the message
        :raises ApiError: if they do not
        """
        used = self._http.default_microversion or "1.0"
        if discover.normalize_version_number(used) < discover.normalize_version_number(
                microversion):
            raise ApiError(f"{what} needs microversion {microversion} of vcache-api, but {used} is "
                           "used. Check the version of vcache-api.")

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Return the answer to a GET request.

        :param path: path below the endpoint
        :param query: query parameters; those that are None are omitted
        :raises ApiError: if it fails
        """
        return self._ask("GET", path, params=_query(query))

    def list(self, name: str, ident: str, *, limit: int | None = None,
             marker: str | None = None, **query: Any) -> list[dict[str, Any]]:
        """Return the items of a list, from as many pages as necessary.

        :param name: name of the resource, in the path and in the answer
        :param ident: field with the id of an item, which is also its marker
        :param limit: largest number of items; None: all
        :param marker: id of the last item before the first one to return
        :param query: further query parameters
        :raises ApiError: if it fails
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
            # Do not follow the link itself: behind a proxy its host name may be wrong.
            marker = page[-1][ident]

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change a resource; return its new state."""
        return self._ask("PATCH", path, json=body)

    def delete(self, path: str) -> None:
        """Delete a resource."""
        self._ask("DELETE", path)

    def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            response = self._http.request(path, method, raise_exc=False, **options)
        except ks_exc.EndpointNotFound as error:
            raise ApiError(f"{error}. {self._hint}".rstrip()) from error
        except ks_exc.ConnectFailure as error:
            raise ApiError(f"vcache-api cannot be reached: {error}") from error
        if response.status_code == 204:
            return {}
        body = _json(response)
        if response.status_code >= 400:
            kind = _BY_STATUS.get(response.status_code, ApiError)
            raise kind(_why(response, body, f"{method} {path}"))
        if not isinstance(body, dict):
            raise ApiError(f"{method} {response.url}: the answer is not a JSON object. Check that "
                           "the URL is the endpoint of vcache-api, without a version.")
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
    """Return the message in an error response."""
    status = f"HTTP {response.status_code}"
    try:
        error = body["errors"][0]
        return f"{error['detail']} ({status}, {error['request_id']})"
    except (KeyError, IndexError, TypeError):
        # From the middleware, or from a proxy.
        return f"{what}: {status} {response.reason or ''}".rstrip()

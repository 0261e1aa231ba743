# SPDX-License-Identifier: Apache-2.0
"""Error responses, in the API-SIG's format for errors.

Each message names the problem, its place, and the allowed values.
"""

import http
import json

from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

from nova_vcache.rpc import errors as rpc


class ApiError(Exception):
    """An error response.

    :param status: HTTP status
    :param detail: message for the user
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class NotAcceptable(ApiError):
    """The response to a microversion that is not supported.

    :param lowest: the lowest supported one
    :param highest: the highest supported one
    """

    def __init__(self, detail: str, lowest: str, highest: str) -> None:
        super().__init__(406, detail)
        self.range = {"min_version": lowest, "max_version": highest}


def bad_request(detail: str) -> ApiError:
    """Return the error for an invalid request."""
    return ApiError(400, detail)


def forbidden(rule: str) -> ApiError:
    """Return the error for a token that does not permit an operation."""
    return ApiError(403, f"Policy does not allow {rule} with the roles and scope of this token.")


def not_found(what: str) -> ApiError:
    """Return the error for a resource that does not exist, or that the user must not see."""
    return ApiError(404, f"{what} could not be found.")


_STATUS: dict[type[rpc.HostError], int] = {
    rpc.Refused: 400, rpc.InstanceNotHere: 404, rpc.AgentUnavailable: 503, rpc.BusDown: 503,
    rpc.HostTimeout: 504}

# Messages for users who must not see the host's name, which the original texts contain.
_WITHOUT_HOST: dict[int, str] = {
    400: "The host of the instance rejected the request.",
    404: "The instance could not be found.",
    502: "The host of the instance failed to process the request.",
    503: "The host of the instance is unavailable; try again later.",
    504: "The host of the instance did not answer in time; try again later."}


def of_host(error: rpc.HostError, *, names_host: bool = True) -> ApiError:
    """Return the error response for an error of a host.

    :param names_host: the user may see the host's name
    """
    status = next((found for kind, found in _STATUS.items() if isinstance(error, kind)), 502)
    return ApiError(status, str(error) if names_host else _WITHOUT_HOST[status])


def response(error: Exception, request_id: str) -> Response:
    """Return the response for an error; for an unexpected one without its text."""
    headers: list[tuple[str, str]] = []
    if isinstance(error, ApiError):
        status, detail = error.status, error.detail
    elif isinstance(error, HTTPException) and error.code is not None:
        status, detail = error.code, error.description or ""
        headers = [(name, value) for name, value in error.get_headers() if name == "Allow"]
    else:
        status, detail = 500, "Unexpected error; the log of vcache-api has the details."
    supported = error.range if isinstance(error, NotAcceptable) else {}
    body = {"errors": [{"status": status, "title": http.HTTPStatus(status).phrase,
                        "detail": detail, "request_id": request_id, **supported}]}
    if status in (503, 504):
        headers.append(("Retry-After", "5"))
    return Response(json.dumps(body), status, headers, content_type="application/json")

# SPDX-License-Identifier: Apache-2.0
"""What an answer says that is an error: API-SIG's document of errors.

Each says what was wrong, where, and what is allowed.
"""

import http
import json

from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

from nova_vcache.rpc import errors as rpc


class ApiError(Exception):
    """An answer that is an error.

    :param status: of HTTP
    :param detail: for people
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def bad_request(detail: str) -> ApiError:
    """Return the error for a request that cannot be."""
    return ApiError(400, detail)


def forbidden(rule: str) -> ApiError:
    """Return the error for a token that does not allow what is asked."""
    return ApiError(403, f"Policy does not allow {rule} to this token's roles and scope.")


def not_found(what: str) -> ApiError:
    """Return the error for what is not there, or not for who asks."""
    return ApiError(404, f"{what} could not be found.")


_STATUS: dict[type[rpc.HostError], int] = {
    rpc.Refused: 400, rpc.InstanceNotHere: 404, rpc.AgentUnavailable: 503, rpc.BusDown: 503,
    rpc.HostTimeout: 504}

# For who may not know the host's name, which the errors' own texts have.
_WITHOUT_HOST: dict[int, str] = {
    400: "The host of the instance does not take this.",
    404: "The instance could not be found.",
    502: "The host of the instance could not do it.",
    503: "The host of the instance cannot be asked now; try again.",
    504: "The host of the instance does not answer; try again."}


def of_host(error: rpc.HostError, *, names_host: bool = True) -> ApiError:
    """Return the error for what a host could not do.

    :param names_host: who asks may know which host it is
    """
    status = next((found for kind, found in _STATUS.items() if isinstance(error, kind)), 502)
    return ApiError(status, str(error) if names_host else _WITHOUT_HOST[status])


def response(error: Exception, request_id: str) -> Response:
    """Return the answer for an error; one that is not expected says nothing of itself."""
    headers: list[tuple[str, str]] = []
    if isinstance(error, ApiError):
        status, detail = error.status, error.detail
    elif isinstance(error, HTTPException) and error.code is not None:
        status, detail = error.code, error.description or ""
        headers = [(name, value) for name, value in error.get_headers() if name == "Allow"]
    else:
        status, detail = 500, "An error that was not expected; the API's log has it."
    body = {"errors": [{"status": status, "title": http.HTTPStatus(status).phrase,
                        "detail": detail, "request_id": request_id}]}
    if status in (503, 504):
        headers.append(("Retry-After", "5"))
    return Response(json.dumps(body), status, headers, content_type="application/json")

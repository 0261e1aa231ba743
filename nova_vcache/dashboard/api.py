# SPDX-License-Identifier: Apache-2.0
"""vcache-api with the token of the user who has sent a request to Horizon."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest
from horizon.utils.memoized import memoized
from keystoneauth1 import adapter, session, token_endpoint
from openstack_dashboard.api import base

from nova_vcache.client import versions
from nova_vcache.client.rest import SERVICE_TYPE, Client, path_of

Json = dict[str, Any]

# First microversion with objectives, curves, lanes and the progress of a drain.
_FIGURES = "1.2"
# Seconds to wait for vcache-api. It waits for a host at most rpc_timeout, 30 by default.
_SECONDS = 40


@memoized
def client(request: HttpRequest) -> Client:
    """Return the client of vcache-api."""
    verify = not settings.OPENSTACK_SSL_NO_VERIFY and (settings.OPENSTACK_SSL_CACERT or True)
    http = adapter.Adapter(
        session=session.Session(
            auth=token_endpoint.Token(base.url_for(request, SERVICE_TYPE),
                                      request.user.token.id),
            verify=verify, timeout=_SECONDS),
        service_type=SERVICE_TYPE)
    http.default_microversion = versions.negotiated(http, "1", "the microversion")
    return Client(http)


def hosts(request: HttpRequest) -> list[Json]:
    """Return all hosts."""
    return client(request).list("hosts", "node")


def host(request: HttpRequest, node: str) -> Json:
    """Return a host."""
    found: Json = client(request).get(path_of("hosts", node))["host"]
    return found


def drain(request: HttpRequest, node: str, *, draining: bool) -> None:
    """Start or stop draining a host."""
    client(request).patch(path_of("hosts", node), {"draining": draining})


def pools(request: HttpRequest, node: str) -> list[Json]:
    """Return the pools of a host."""
    return client(request).list("pools", "id", host=node)


def instances(request: HttpRequest, limit: int, marker: str | None = None,
              **query: Any) -> list[Json]:
    """Return instances of all projects.

    :param limit: largest number of instances
    :param marker: the UUID of the last one of the page before
    :param query: further query parameters
    """
    return client(request).list("instances", "uuid", limit=limit, marker=marker,
                                all_projects=True, **query)


def instance(request: HttpRequest, uuid: str) -> Json:
    """Return an instance."""
    found: Json = client(request).get(path_of("instances", uuid))["instance"]
    return found


def curves(request: HttpRequest, uuid: str) -> list[Json]:
    """Return the miss-ratio curves of an instance's disks."""
    made = client(request)
    made.require(_FIGURES, "Miss-ratio curves")
    found: list[Json] = made.get(path_of("instances", uuid, "curves"))["curves"]
    return found


def reasons(request: HttpRequest, uuid: str) -> list[Json]:
    """Return the decisions about an instance's disks."""
    made = client(request)
    made.require(_FIGURES, "The reasons of decisions")
    found: list[Json] = made.get(path_of("instances", uuid, "why"))["disks"]
    return found

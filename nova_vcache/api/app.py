# SPDX-License-Identifier: Apache-2.0
"""The WSGI application, and the middleware before it.

::

    proxy headers ─► CORS ─► request id ─► size limit ─► token ─► operation
                                               └─► /healthcheck

Public operations, which are marked in openapi.yaml, do not check the token. There is
no paste file, so the code defines the middleware.
"""

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from keystonemiddleware import auth_token
from oslo_config import cfg
from oslo_context import context as oslo_context
from oslo_log import log as oslo_log
from oslo_middleware import cors, healthcheck, http_proxy_to_wsgi, request_id, sizelimit
from oslo_policy.policy import Enforcer
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from nova_vcache.api import conf as api_conf
from nova_vcache.api import errors, microversions, openapi, policy
from nova_vcache.api.backend import Backend
from nova_vcache.api.errors import forbidden, not_found
from nova_vcache.api.handlers import flavors, hosts, instances, pools, root
from nova_vcache.api.health import Health
from nova_vcache.api.request import Call

LOG = logging.getLogger(__name__)

Start = Callable[..., Any]
Wsgi = Callable[[dict[str, Any], Start], Iterable[bytes]]

#: Handlers by operationId.
HANDLERS: Mapping[str, Callable[..., Any]] = {
    "versions": root.versions, "version": root.version, "openapi": root.document,
    "hosts_list": hosts.list_, "hosts_get": hosts.get, "hosts_update": hosts.update,
    "pools_list": pools.list_, "pools_get": pools.get, "pools_update": pools.update,
    "instances_list": instances.list_, "instances_get": instances.get,
    "instances_curves": instances.curves, "instances_why": instances.why,
    "override_put": instances.put, "override_patch": instances.patch,
    "override_delete": instances.delete, "flavors_check": flavors.check}

# Operations whose handlers check the policy, because the rule depends on the owner, and
# because a resource that does not exist returns 404 before 403.
_BY_HANDLER = frozenset({"instances_get", "instances_curves", "instances_why", "override_put",
                         "override_patch", "override_delete"})

_CONFIG = "/etc/vcache/vcache-api.conf"


class Application:
    """Executes the operations of openapi.yaml.

    :param backend: data and services for the handlers
    :param enforcer: the policy
    """

    def __init__(self, backend: Backend, enforcer: Enforcer) -> None:
        self._backend = backend
        self._enforcer = enforcer
        self._routes = openapi.routes()

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """Process a request."""
        try:
            response = self._answer(Request(environ))
        except (errors.ApiError, HTTPException) as error:
            response = errors.response(error, _request_id(environ))
        except Exception as error:
            LOG.exception("%s %s failed", environ.get("REQUEST_METHOD"), environ.get("PATH_INFO"))
            response = errors.response(error, _request_id(environ))
        # Caches must not give the response to a request with another version.
        response.vary.add(microversions.HEADER)
        return response(environ, start)

    def _answer(self, request: Request) -> Response:
        operation, values = self._routes.bind_to_environ(request.environ).match()
        context = oslo_context.RequestContext.from_environ(request.environ)
        allows = policy.Policy(self._enforcer, context)
        if operation.policy and operation.id not in _BY_HANDLER \
                and not allows.allows(operation.policy):
            raise forbidden(operation.policy)
        if not operation.check_path(values):
            raise not_found(request.path[:200])
        version = microversions.MIN if operation.public else microversions.requested(
            dict(request.headers))
        if not openapi.is_in(operation.since, version):
            raise not_found(f"{request.path[:200]} with microversion {version}, but only from "
                            f"{operation.since} on,")
        call = Call(
            self._backend, operation, context, allows,
            operation.query(dict(request.args.lists()), version),
            operation.check_body(request.get_data(), request.mimetype), version,
            request.host_url.rstrip("/") + request.root_path)
        if not operation.public:
            self._backend.ready()
        found = HANDLERS[operation.id](call, **values)
        response = Response(status=204) if found is None else Response(
            json.dumps(found), 200, content_type="application/json")
        if not operation.public:
            response.headers[microversions.HEADER] = f"{microversions.SERVICE_TYPE} {version}"
        return response


class ByPath:
    """Dispatches requests to applications by path.

    :param others: applications by path
    :param rest: application for all other paths
    """

    def __init__(self, others: Mapping[str, Wsgi], rest: Wsgi) -> None:
        self._others = others
        self._rest = rest

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """Process a request."""
        return self._others.get(environ.get("PATH_INFO", ""), self._rest)(environ, start)


def _request_id(environ: Mapping[str, Any]) -> str:
    return str(environ.get("openstack.request_id", ""))


def make_application(conf: cfg.ConfigOpts, backend: Backend | None = None) -> Wsgi:
    """Return the complete application.

    :param conf: configuration that has been read
    :param backend: replaces the configured backend, for tests
    """
    api_conf.set_cors_defaults()
    backend = backend or Backend(conf)
    core = Application(backend, policy.enforcer(conf))
    token = auth_token.AuthProtocol(core, {"oslo_config_config": conf})
    # For a source that may not use it, Healthcheck calls core, which returns 404.
    others: dict[str, Wsgi] = {"/healthcheck": Health(healthcheck.Healthcheck(core, conf), backend),
              **{item.path: core for item in openapi.operations() if item.public}}
    checked: Any = sizelimit.RequestBodySizeLimiter(ByPath(others, token), conf)
    checked = cors.CORS(request_id.RequestId(checked), conf)
    wrapped: Wsgi = http_proxy_to_wsgi.HTTPProxyToWSGI(checked, conf)
    return wrapped


def init_application(argv: list[str] | None = None) -> Wsgi:
    """Read the configuration and return the application, for a WSGI server."""
    conf = cfg.CONF
    oslo_log.register_options(conf)
    api_conf.register(conf)
    given = os.environ.get("OS_VCACHE_CONFIG_FILES")
    files = given.split(";") if given else [_CONFIG] if os.path.exists(_CONFIG) else []
    conf(argv or [], project="vcache", prog="vcache-api", default_config_files=files)
    oslo_log.setup(conf, "vcache-api")
    return make_application(conf)

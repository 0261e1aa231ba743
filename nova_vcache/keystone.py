# SPDX-License-Identifier: Apache-2.0
"""Clients of OpenStack services: keystoneauth's options with other defaults, and an adapter."""

from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg


def client_opts(service_type: str) -> list[Any]:
    """Return the options of a client, except those of its credentials."""
    session = loading.get_session_conf_options()
    # Without a timeout, a request that hangs would block its thread forever.
    cfg.set_defaults(session, timeout=10)
    adapter = loading.get_adapter_conf_options(include_deprecated=False)
    cfg.set_defaults(adapter, service_type=service_type, valid_interfaces=["internal", "public"])
    return [*session, *adapter]


def register(conf: cfg.ConfigOpts, group: str, service_type: str) -> None:
    """Register all options in a group; keystoneauth adds those of the auth plug-in later."""
    conf.register_opts(client_opts(service_type), group=group)
    loading.register_auth_conf_options(conf, group)


def load_adapter(conf: cfg.ConfigOpts, group: str) -> Any | None:
    """Return a client, or None if nothing says how: neither credentials nor an endpoint.

    :raises keystoneauth1.exceptions.ClientException: if the credentials cannot be used
    """
    auth = loading.load_auth_from_conf_options(conf, group)
    if auth is None and not conf[group].endpoint_override:
        return None
    session = loading.load_session_from_conf_options(conf, group, auth=auth)
    return loading.load_adapter_from_conf_options(conf, group, session=session, auth=auth)

# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache-host``, which connects vcache-agent with OpenStack."""

import importlib.metadata
import os
import signal
import sys
import threading
from collections.abc import Sequence

from keystoneauth1 import exceptions as ks_exc
from oslo_config import cfg
from oslo_log import log as logging

from nova_vcache.host import conf as host_conf
from nova_vcache.host.service import Service

LOG = logging.getLogger(__name__)

_CONFIG = "/etc/vcache/vcache-host.conf"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the service until SIGTERM or SIGINT; return the exit status."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    # oslo.messaging also uses the global object.
    conf = cfg.CONF
    logging.register_options(conf)
    host_conf.register(conf)
    conf(sys.argv[1:] if argv is None else argv, project="vcache", prog="vcache-host",
         version=importlib.metadata.version("nova-vcache"),
         default_config_files=[_CONFIG] if os.path.exists(_CONFIG) else [])
    logging.setup(conf, "vcache-host")
    try:
        service = Service(conf)
    except host_conf.NotConfigured as error:
        LOG.critical("vcache-host: %s", error)
        return 1
    except ks_exc.ClientException as error:
        LOG.critical("vcache-host: [placement]: %s", error)
        return 1
    service.start()
    LOG.info("vcache-host is ready, compute node %s", service.host.node)
    stop.wait()
    service.stop()
    LOG.info("vcache-host has stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""The command vcache-agent: the daemon of a compute host."""

import importlib.metadata
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence

from oslo_config import cfg
from oslo_log import log as logging

from vcache_agent import conf as options
from vcache_agent.metrics.server import AddressError
from vcache_agent.service import Agent, AlreadyRunning, NoSuchGroup, downgrade_store
from vcache_agent.store import StoreError

LOG = logging.getLogger(__name__)

# Longest time in seconds for which a thread keeps the interpreter while others wait for it. The
# thread of a hook waits again after each system call, while the worker decides. Python's default of
# 5 ms would add up to more than the hook's own work.
_SWITCH_S = 0.0005


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent until SIGTERM or SIGINT; return the exit status.

    With ``--store-downgrade``, convert the store for the previous agent instead.
    """
    sys.setswitchinterval(_SWITCH_S)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    conf = cfg.ConfigOpts()
    logging.register_options(conf)
    options.register(conf)
    conf.register_cli_opt(cfg.BoolOpt(
        "store-downgrade", default=False,
        help="Convert the state file to the format of the version before the present one, and "
             "end. Run it while the agent is stopped, before an older agent is installed."))
    conf(sys.argv[1:] if argv is None else argv, project="vcache", prog="vcache-agent",
         version=importlib.metadata.version("nova-vcache"),
         default_config_files=_config_files())
    logging.setup(conf, "vcache-agent")
    try:
        if conf.store_downgrade:
            print(downgrade_store(conf))
            return 0
        agent = Agent(conf)
    except (AddressError, AlreadyRunning, NoSuchGroup, StoreError, OSError) as error:
        LOG.critical("vcache-agent: %s", error)
        return 1
    agent.start()
    LOG.info("vcache-agent is ready, hook socket %s", conf.agent.hook_socket)
    _notify("READY=1")
    stop.wait()
    _notify("STOPPING=1")
    try:
        agent.stop()
    except Exception:
        LOG.exception("vcache-agent: stopping failed")
        os._exit(1)
    LOG.info("vcache-agent has stopped; the kernel keeps its tags")
    # A thread may be blocked in a libvirt call that never returns.
    os._exit(0)


def _config_files() -> list[str]:
    path = "/etc/vcache/vcache-agent.conf"
    return [path] if os.path.exists(path) else []


def _notify(state: str) -> None:
    """Send a state to systemd (sd_notify(3)); do nothing if systemd did not start us."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
            notify.sendto(state.encode(), address)
    except OSError as error:
        LOG.warning("cannot notify systemd: %s", error)


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""``make openstack``: run OpenStack on this machine, and write a transcript of a scenario.

``python -m tests.cloud [--keep] [--no-transcript]``
"""

import argparse
import importlib.metadata
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.box import kernels
from tests.box.steps import at_end, explained
from tests.cloud import transcript
from tests.cloud.nova import AllInOne

REPO = Path(__file__).resolve().parents[2]
OUT = REPO / "build" / "openstack"
RUN = OUT / "run"

_PACKAGES = ("keystone", "openstack-placement", "glance", "nova", "python-openstackclient")
# Required files or commands, and the packages that provide them.
_PROGRAMS = {"mariadbd": "mariadb-server-core", "mariadb-install-db": "mariadb-server-core",
             "my_print_defaults": "mariadb-client-core",
             "/usr/lib/rabbitmq/bin/rabbitmq-server": "rabbitmq-server",
             "libvirtd": "libvirt-daemon-system", "mkfs.ext4": "e2fsprogs",
             "qemu-img": "qemu-utils"}
# For migrations between hosts.
_OF_TWO = {"/usr/bin/ssh-keygen": "openssh-client", "/usr/sbin/sshd": "openssh-server"}


def missing(hosts: int = 1) -> str:
    """Return a line that names the missing requirements, or nothing."""
    if os.geteuid():
        return "it has to run as root, as the box does"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    wanted = _PROGRAMS | (_OF_TWO if hosts > 1 else {})
    for program, package in wanted.items():
        if shutil.which(program, path=path) is None:
            return f"{program} is missing: apt-get install {package}"
    try:
        module = REPO / "build" / "module" / kernels.select(kernels.default()) / "dm-vcache.ko"
    except kernels.KernelNotFound as error:
        return str(error)
    if not module.exists():
        return f"{module.relative_to(REPO)} is missing: make module"
    if not (REPO / ".venv" / "bin" / "virtme-run").exists():
        return ".venv is missing: make venv"
    return ""


def say_since(began: float | None = None) -> Callable[[str], None]:
    """Return a function that prints a line with the elapsed seconds."""
    began = time.monotonic() if began is None else began

    def say(text: str) -> None:
        print(f"openstack {time.monotonic() - began:6.1f} s: {text}", file=sys.stderr, flush=True)

    return say


def report(cloud: AllInOne, up: float, boots: Any) -> dict[str, Any]:
    """Return the measurements.

    :param up: seconds until everything was running
    :param boots: for each instance, the result of transcript.show()
    """
    memory = cloud.memory()
    return {
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "kernel": kernels.select(kernels.default()), "processors": os.cpu_count(),
        "kvm": kernels.kvm_works(kernels.image(kernels.select(kernels.default()))),
        "seconds_until_up": round(up, 1), "memory_mib": memory,
        "memory_mib_total": sum(memory.values()),
        "memory_mib_in_box": cloud.host.call("memory"),
        "server_create": boots}


def _keep(cloud: AllInOne) -> None:
    rc = RUN / "openrc"
    rc.write_text("".join(f"export {name}={value}\n"
                          for name, value in cloud.environment().items())
                  + f"PATH={OUT / 'venv' / 'bin'}:$PATH\n")
    print(f"It runs until Ctrl-C. In another terminal: . {rc.relative_to(REPO)}; openstack "
          "vcache instance list --all-projects", flush=True)
    while True:
        time.sleep(3600)


def _run(options: argparse.Namespace) -> None:
    began = time.monotonic()
    say = say_since(began)
    cloud = AllInOne(RUN, say=say)
    with at_end(cloud.close):
        up = time.monotonic() - began
        say("all services are up")
        if options.transcript:
            boots = transcript.show(cloud, OUT / "transcript.txt")
            found = report(cloud, up, boots)
            (OUT / "report.json").write_text(json.dumps(found, indent=1) + "\n")
            say(f"up in {up:.0f} s, {found['memory_mib_total']} MiB; build/openstack/"
                "transcript.txt, build/openstack/report.json")
        if options.keep:
            _keep(cloud)


def main() -> int:
    """Run the scenario; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.cloud", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave it running until Ctrl-C")
    parser.add_argument("--no-transcript", dest="transcript", action="store_false",
                        help="only bring it up")
    options = parser.parse_args()
    lacks = missing()
    if lacks:
        print(f"openstack: {lacks}", file=sys.stderr)
        return 1
    # Like Ctrl-C: stop everything in order.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with explained("openstack", AssertionError):
            _run(options)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

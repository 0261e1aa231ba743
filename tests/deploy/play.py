# SPDX-License-Identifier: Apache-2.0
"""Apply a role to a root."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.deploy.root import REPO

ANSIBLE = REPO / "devstack" / "ansible"


class Result(NamedTuple):
    """How it went.

    :param changed: names of the tasks that have changed something
    :param failed: messages of the tasks that have failed
    :param handlers: the handlers that have run; in a root, systemd does not do what they ask for
    """

    changed: list[str]
    failed: list[str]
    handlers: list[str]


def apply(role: str, root: Path, variables: dict[str, Any], folder: Path) -> Result:
    """Apply a role to a root."""
    play = folder / "play.yml"
    play.write_text(json.dumps([{"hosts": "all", "roles": [{"role": role, "vars": variables}]}]))
    environment = {
        **os.environ, "ANSIBLE_ROLES_PATH": str(ANSIBLE / "roles"), "ANSIBLE_FORKS": "1",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json", "ANSIBLE_HOME": str(folder),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"), "ANSIBLE_NOCOLOR": "1"}
    # The mount is gone with the play. maintainer scripts look at /proc.
    script = 'mount -t proc proc "$1/proc"; mount -t devtmpfs dev "$1/dev"; shift; exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script, "sh", str(root),
         str(Path(sys.executable).parent / "ansible-playbook"), "-i", f"{root},",
         "-c", "community.general.chroot", "-e", "ansible_python_interpreter=/usr/bin/python3",
         str(play)],
        stdin=subprocess.DEVNULL,  # Ansible refuses a non-blocking one
        capture_output=True, text=True, env=environment, check=False)
    try:
        plays = json.loads(done.stdout[done.stdout.index("{"):])["plays"]
    except (ValueError, KeyError):
        raise AssertionError(f"{done.stdout}\n{done.stderr}") from None
    changed, failed, handlers = [], [], []
    for task in (task for one in plays for task in one["tasks"]):
        name = task["task"]["name"]
        for result in task["hosts"].values():
            if name.startswith((f"{role} : Restart ", f"{role} : Reload ")) \
                    and not result.get("skipped"):
                handlers.append(name.removeprefix(f"{role} : "))
            if result.get("changed"):
                changed.append(name)
            if result.get("failed"):
                failed.append(_message(result))
    assert bool(done.returncode) == bool(failed), f"{done.stdout}\n{done.stderr}"
    return Result(changed, failed, handlers)


def _message(result: dict[str, Any]) -> str:
    items = [item["msg"] for item in result.get("results", []) if item.get("failed")]
    return "; ".join(items or [str(result.get("msg", result))])

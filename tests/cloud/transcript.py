# SPDX-License-Identifier: Apache-2.0
"""From ``openstack vcache flavor set`` to the tag on the host.

Writes the commands of an operator and their output to a file, and checks the results.
"""

import json
import shlex
import time
from pathlib import Path
from typing import Any

from nova_vcache.placement import names
from tests.box.steps import at_end
from tests.cloud.compute import ComputeHost
from tests.cloud.nova import AllInOne
from tests.cloud.servers import FLAVORS, Json, Servers, eventually
from tests.cloud.state import check_tag, tags_of


class Transcript:
    """Runs commands, and writes them to a file with their output."""

    def __init__(self, cloud: AllInOne, path: Path) -> None:
        self._cloud = cloud
        self._file = open(path, "w")  # noqa: SIM115 - closed by close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def write(self, text: str) -> None:
        """Write a paragraph, also to standard output."""
        print(text, flush=True)
        self._file.write(text + "\n")
        self._file.flush()

    def say(self, text: str) -> None:
        """Write a description of the next step."""
        self.write(f"\n# {text}")

    def openstack(self, *words: str, fails: bool = False) -> float:
        """Run ``openstack``; return its duration in seconds.

        :param fails: the command must be refused
        """
        began = time.monotonic()
        done = self._cloud.openstack(*words)
        seconds = time.monotonic() - began
        self.write(f"$ {shlex.join(['openstack', *words])}\n"
                   + (done.stdout + done.stderr).rstrip())
        assert (done.returncode != 0) is fails, f"exit status {done.returncode}"
        return seconds

    def inside(self, host: ComputeHost, *words: str) -> None:
        """Run a command on a compute host."""
        status, out, err = host.call("run", *words)
        self.write(f"{host.node}# {shlex.join(words)}\n" + (out + err).rstrip())
        assert status == 0, f"exit status {status}"


def _boot(cloud: AllInOne, shown: Transcript, name: str, flavor: str) -> Json:
    """Boot an instance with the command; return it, and the duration."""
    began = time.monotonic()
    shown.openstack("server", "create", name, "--image", "idle", "--flavor", flavor,
                    "--nic", "none", "--wait", "-c", "id", "-c", "name", "-c", "status")
    seconds = time.monotonic() - began
    (found,) = [item for item in cloud.compute("GET", f"/servers/detail?name={name}").json()[
        "servers"] if item["name"] == name]
    runs = cloud.host.call("hook_runs", found["OS-EXT-SRV-ATTR:instance_name"])
    found["times"] = {
        "command_s": round(seconds, 1),
        "hook_s": {item["operation"]: round(item["seconds"], 2) for item in runs}}
    return dict(found)


def show(cloud: AllInOne, path: Path) -> Json:
    """Run the scenario; return the measurements."""
    shown = Transcript(cloud, path)
    with at_end(shown.close):
        return _show(cloud, shown, Servers(cloud))


def _show(cloud: AllInOne, shown: Transcript, servers: Servers) -> Json:
    host = cloud.host
    shown.say("What there is")
    shown.openstack("compute", "service", "list", "-c", "Binary", "-c", "Host", "-c", "State")
    shown.openstack("vcache", "host", "list")
    shown.openstack("vcache", "pool", "list")
    servers.make_image()

    shown.say("Flavors")
    for name, options in FLAVORS.items():
        shown.openstack("flavor", "create", name, "--id", name, "--ram", "64", "--vcpus", "1",
                        "--disk", "1", "-c", "name", "-c", "ram", "-c", "disk")
        shown.openstack("vcache", "flavor", "set", name, *_words(options))
    shown.openstack("flavor", "show", "gold", "-c", "properties")
    shown.openstack("vcache", "flavor", "check")
    shown.say("nova-api refuses what no host could give")
    shown.openstack("--os-compute-api-version", "2.86", "flavor", "set", "bronze", "--property",
                    "vcache:weight=0", fails=True)

    shown.say("Instances, and what has become of their disks on the host")
    made = {name: _boot(cloud, shown, f"vm-{name}", name) for name in FLAVORS}
    for name, server in made.items():
        check_tag(host, server, name)
    for name in FLAVORS:
        _await_shown(cloud, made[name], weight=FLAVORS[name]["weight"])
        shown.openstack("vcache", "instance", "show", f"vm-{name}")
    shown.inside(host, "vcache", "status")
    shown.inside(host, "vcache", "disks")
    shown.openstack("resource", "provider", "allocation", "show", made["gold"]["id"])

    shown.say("Resize: the weight, mode and allocation of the other flavor")
    gold = made["gold"]
    shown.openstack("server", "resize", "vm-gold", "--flavor", "silver", "--wait")
    check_tag(host, gold, "silver")
    shown.openstack("server", "resize", "confirm", "vm-gold")
    cloud.await_server(gold["id"], "ACTIVE")
    tag = check_tag(host, gold, "silver")
    _await_shown(cloud, gold, weight=200)
    shown.openstack("vcache", "instance", "show", "vm-gold", "-c", "specs",
                    "-c", "disks")
    eventually(lambda: names.CACHE_MB not in str(servers.allocations(gold)),
               "the allocation of the guarantee is gone")
    shown.openstack("resource", "provider", "allocation", "show", gold["id"])

    shown.say("Stop and start: the tag goes, and comes back with its number")
    shown.openstack("server", "stop", "vm-gold")
    cloud.await_server(gold["id"], "SHUTOFF")
    eventually(lambda: not tags_of(host, gold), "the tag goes")
    shown.inside(host, "vcache", "disks")
    shown.openstack("server", "start", "vm-gold")
    cloud.await_server(gold["id"], "ACTIVE")
    assert check_tag(host, gold, "silver").id == tag.id
    shown.inside(host, "vcache", "disks")

    shown.say("Delete: no tag, nothing of the cache, nothing in Placement")
    for name in FLAVORS:
        shown.openstack("server", "delete", f"vm-{name}", "--wait")
    eventually(lambda: not host.call("tags"), "the tags go")
    shown.inside(host, "vcache", "status")
    for server in made.values():
        assert servers.allocations(server) == {}
    provider = _provider(cloud, host)
    eventually(lambda: _clean(cloud, provider), "Placement has nothing used or reserved")
    shown.openstack("resource", "provider", "usage", "show", provider)
    shown.openstack("resource", "provider", "inventory", "list", provider)
    return {name: server["times"] for name, server in made.items()}


def _words(options: dict[str, Any]) -> list[str]:
    """Return the options of ``openstack vcache flavor set``."""
    return [word for key, value in options.items()
            for word in ([f"--{key.replace('_', '-')}"] if value is True
                         else [f"--{key.replace('_', '-')}", str(value)])]


def _await_shown(cloud: AllInOne, server: Json, **wanted: Any) -> None:
    """Wait until vcache-api has a report with the present state of an instance."""
    def there() -> bool:
        answer = cloud.ask("GET", f"/v1/instances/{server['id']}")
        if answer.status_code != 200:
            return False
        found = answer.json()["instance"]
        return wanted.items() <= {**found, **found.get("specs", {})}.items()

    eventually(there, f"vcache-api knows {json.dumps(wanted)} of {server['name']}")


def _provider(cloud: AllInOne, host: ComputeHost) -> str:
    (found,) = cloud.placement("GET", f"/resource_providers?name={host.node}_vcache").json()[
        "resource_providers"]
    return str(found["uuid"])


def _clean(cloud: AllInOne, provider: str) -> bool:
    usages = cloud.placement("GET", f"/resource_providers/{provider}/usages").json()["usages"]
    inventories = cloud.placement("GET", f"/resource_providers/{provider}/inventories").json()[
        "inventories"]
    return not any(usages.values()) and not inventories[names.CACHE_MB]["reserved"]

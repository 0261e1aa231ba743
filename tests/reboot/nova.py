# SPDX-License-Identifier: Apache-2.0
"""Restart a host of Nova with an instance that writes: python -m tests.reboot.nova [ROOT...].

Runs with the Python of build/openstack/venv. The controllers run on this machine. The host is a
root of Debian with nova-compute and our packages, installed by the commands of the install guide.
Adds to build/test/reboot.json: {"nova": {"debian13": {"boots": n, "lost": 0, "failed": 0}}}.
"""

import json
import random
import re
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tests.box.steps import at_end
from tests.cloud.compute import write_configuration
from tests.cloud.nova import AllInOne
from tests.cloud.servers import MIB, Servers, eventually
from tests.reboot import guide, machine, nova_root, report, roots
from tests.reboot.machine import Machine

NODE = "compute1"
#: MiB of the host's disks, and of the image.
ORIGIN_MB, CACHE_MB, IMAGE_MB = 2048, 512, 16
_FLAVOR = {"mode": "writeback", "weight": 400, "min_mb": 64, "required": True}
_MORE = """
[DEFAULT]
resume_guests_state_on_host_boot = true
[libvirt]
virt_type = qemu
"""
_INSTANCES = "/var/lib/nova/instances"
# The guest's first two lines.
_GUEST = re.compile(r"boot=([0-9A-F]{8}) count=([0-9A-F]{8}) data=(ok|BAD)\s+wrote=")


def image(folder: Path) -> Path:
    """Build the disk of guest.S."""
    unlinked, sector, path = folder / "guest.o", folder / "guest.bin", folder / "guest.raw"
    source = Path(__file__).with_name("guest.S")
    subprocess.run(["as", "--32", "-o", str(unlinked), str(source)], check=True)
    subprocess.run(["ld", "-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary",
                    "-o", str(sector), str(unlinked)], check=True)
    # Written everywhere, so that Nova leaves no holes.
    rest = random.Random(1).randbytes(IMAGE_MB * MIB - 1024)
    path.write_bytes(sector.read_bytes() + b"\0" * 512 + rest)
    return path


class Host:
    """A compute host that restarts.

    :param name: its root
    """

    def __init__(self, name: str) -> None:
        self.folder = nova_root.build(name)
        self.boots = 0
        for name_, mib in (("origin", ORIGIN_MB), ("cache", CACHE_MB)):
            with (self.folder / f"{name_}.img").open("wb") as file:
                file.truncate(mib << 20)
        self._machine: Machine | None = None

    @property
    def root(self) -> Machine:
        """The running system."""
        assert self._machine is not None
        return self._machine

    def boot(self) -> None:
        """Switch it on. Its first command waits until it has booted."""
        self.boots += 1
        # With FUA, which QEMU's virtio disks do not have: the guide expects no warning.
        disks = ["-drive", f"if=none,id=cache,format=raw,file={self.folder / 'cache.img'}",
                 "-device", "nvme,drive=cache,serial=cache",
                 "-drive", f"if=none,id=origin,format=raw,file={self.folder / 'origin.img'}",
                 "-device", "virtio-scsi-pci", "-device", "scsi-hd,drive=origin,dpofua=on"]
        self._machine = Machine([
            *machine.qemu(self.folder, self.folder / f"boot{self.boots}.log", memory_mib=3072),
            *disks, "-netdev", "user,id=net",
            "-device", "virtio-net-pci,netdev=net,romfile="], self.folder)

    def close(self) -> None:
        """Switch it off."""
        if self._machine is not None:
            self._machine.kill()

    def walk(self, *lines: str) -> None:
        """Run commands as the guide prints them."""
        for line in lines:
            say(f"# {line}")
            self.root.run(f"cd {nova_root.SOURCES}; {line}")


def say(text: str) -> None:
    """Print a step."""
    print(f"    {time.strftime('%T')} {text}", flush=True)


def install(host: Host) -> None:
    """Walk through the rest of the guide: the module, a target under the images, a cache."""
    root = host.root
    host.walk(*nova_root.online())
    for line in ("pvcreate -q /dev/sda", "vgcreate -q vg0 /dev/sda",
                 "lvcreate -q -L 1G -n instances vg0", "lvcreate -q -L 64M -n vm7 vg0",
                 "mkfs.ext4 -q -b 4096 /dev/vg0/instances", f"mkdir -p {_INSTANCES}",
                 f"echo /dev/vg0/instances {_INSTANCES} ext4 "
                 "nofail,x-systemd.device-timeout=0 0 2 >> /etc/fstab"):
        root.run(line)
    images, unit, volume = guide.blocks("The target")
    host.walk(*guide.commands(images), *guide.commands(unit), *guide.commands(volume),
              *guide.commands(guide.blocks("Drives")[0]), "vcache status",
              # These are on the page about the cache.
              "vcache pool create fast /dev/nvme0n1",
              "vcache attach /dev/vg0/instances --pool fast --filesystem", "vcache status")
    root.run("! vcache status | grep WARNING")
    root.run("vcache setup check")


def start_services(host: Host, folder: Path) -> None:
    """Configure and start nova-compute and vcache-host.

    :param folder: their configuration
    """
    root = host.root
    root.write("/etc/nova/nova.conf", (folder / "nova.conf").read_text())
    root.write("/etc/vcache/vcache-host.conf", (folder / "vcache-host.conf").read_text(),
               0o640, "vcache")
    root.run("mkdir -p /var/lib/nova /run/lock/nova")
    root.run("systemctl daemon-reload; systemctl enable --now vcache-host nova-compute")


def disk_of(root: Machine, server: dict[str, Any]) -> dict[str, Any] | None:
    """Return the agent's view of the instance's disk, once all of it is known to the kernel."""
    status, out = root.status("vcache disks --json")
    if status:
        return None
    return next((disk for disk in json.loads(out)["disks"]
                 if disk["uuid"] == server["id"] and disk["phase"] == "running"
                 and disk["tag"] is not None
                 and (disk["extents_bytes"] or 0) >= IMAGE_MB * MIB), None)


def identity(disk: dict[str, Any]) -> dict[str, Any]:
    """Return what stays the same over a restart."""
    return {key: disk[key] for key in ("disk", "path", "tag", "mode_asked", "mode", "weight")}


def await_shown(cloud: AllInOne, server: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Wait until vcache-api shows the instance and its disk's tag, with a report that is new.

    :param wanted: identity() of the disk
    """
    cloud.await_states(1800, **{NODE: "up"})

    def shown() -> dict[str, Any]:
        answer = cloud.ask("GET", f"/v1/instances/{server['id']}")
        found = answer.json().get("instance", {})
        return {"host": found.get("host"), "stale": found.get("stale"), "disks": [
            (disk["tag"], disk["mode"], bool(disk["pool"])) for disk in found.get("disks", ())]}

    expected = {"host": NODE, "stale": False,
                "disks": [(wanted["tag"], wanted["mode"], True)]}
    eventually(lambda: shown() == expected, f"vcache-api shows {expected}", 600)


def await_guest(root: Machine, server: dict[str, Any]) -> tuple[int, int, bool]:
    """Wait until the guest has booted; return its boots, its counter, whether its data is good."""
    log = f"{_INSTANCES}/{server['id']}/console.log"
    found = eventually(lambda: _GUEST.search(root.status(f"cat {log}")[1]), "the guest boots", 1800)
    return int(found[1], 16), int(found[2], 16), found[3] == "ok"


def last_count(root: Machine, server: dict[str, Any]) -> int:
    """Return a number that the guest has written."""
    out = root.run(f"tail -c 200 {_INSTANCES}/{server['id']}/console.log")
    return int(re.findall(r"n=([0-9A-F]{8})\r\n", out)[-1], 16)


def check_after(host: Host, cloud: AllInOne, server: dict[str, Any], wanted: dict[str, Any],
                count: int) -> int:
    """Check that the instance is back with its tag; return 1 if it has lost data.

    :param wanted: identity() before the restart
    :param count: last_count() before the restart
    """
    root = host.root
    units = "nova-compute vcache-agent vcache-host libvirtd"
    eventually(lambda: root.status(f"systemctl is-active {units}")[0] == 0,
               f"{units} are active", 1800)
    disk = eventually(lambda: disk_of(root, server), "the instance runs, its disk has a tag", 1800)
    # With the start of the instance, its console's log begins anew.
    boots, now, good = await_guest(root, server)
    say(f"the guest's boot {boots}, its counter {now} of at least {count}, data "
        f"{'ok' if good else 'BAD'}")
    assert identity(disk) == wanted, f"{identity(disk)}, before: {wanted}"
    eventually(lambda: NODE in cloud.computes(), "nova-compute is up", 1800)
    cloud.await_server(server["id"], "ACTIVE", 1800)
    await_shown(cloud, server, wanted)
    root.run("! systemctl --failed --plain --no-legend | grep vcache")
    return int(not good or now < count or boots != host.boots - 1)


def restart(host: Host, how: str) -> None:
    """Restart the host: by a command, or by a power cut."""
    say(how)
    if how == "power cut":
        host.root.kill()
    else:
        # The answer must arrive before the host has ended.
        host.root.run(f"(sleep 1; {how}) >/dev/null 2>&1 &")
        host.root.await_end()
    host.boot()


def scenario(host: Host, cloud: AllInOne) -> int:
    """Create an instance and restart its host in all ways; return how often data was lost."""
    install(host)
    start_services(host, write_configuration(
        cloud, NODE, nova_root.ADDRESS, Path(nova_root.NOVA) / "bin", _MORE))
    servers = Servers(cloud)
    servers.make_image("guest", image(cloud.folder), {"hw_disk_bus": "virtio"})
    servers.make_flavor("gold", **_FLAVOR)
    say("waiting for nova-compute and vcache-host")
    cloud.await_hypervisors({NODE})
    server = servers.create("one", "gold")
    await_guest(host.root, server)
    disk = eventually(lambda: disk_of(host.root, server), "the disk has a tag", 1800)
    wanted = identity(disk)
    say(f"the instance runs: {wanted}")
    assert (wanted["mode"], wanted["weight"]) == ("writeback", 400), wanted
    await_shown(cloud, server, wanted)
    lost = 0
    for how in ("systemctl reboot", "reboot -f", "power cut"):
        count = last_count(host.root, server)
        restart(host, how)
        lost += check_after(host, cloud, server, wanted, count)
    return lost


def run(name: str) -> dict[str, int]:
    """Run the scenario on one root."""
    print(f"{name}: Nova", flush=True)
    host = Host(name)
    lost, failed = 0, 0
    with at_end(host.close):
        host.boot()
        cloud = AllInOne(roots.BUILD / f"{name}-cloud", hosts=0, say=say)
        with at_end(cloud.close):
            try:
                lost = scenario(host, cloud)
            except AssertionError:
                traceback.print_exc()
                failed = 1
    return {"boots": host.boots, "lost": lost, "failed": failed}


def main() -> int:
    """Run all roots, or those that are named."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = {name: run(name) for name in sys.argv[1:] or ("debian13",)}
    report.write("nova", results)
    return 1 if any(result["lost"] or result["failed"] for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

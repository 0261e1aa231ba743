# SPDX-License-Identifier: Apache-2.0
"""Images, flavors and instances of the all-in-one, by the APIs of Nova and Glance."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cloud.processes import wait_for

if TYPE_CHECKING:
    from tests.cloud.nova import AllInOne

Json = dict[str, Any]
MIB = 1 << 20
#: MiB of the image that are written, so that they are extents of the disk.
IMAGE_MB = 16

#: Options of ``openstack vcache flavor set``, by flavor.
FLAVORS: dict[str, Json] = {
    "gold": {"mode": "writeback", "weight": 400, "min_mb": 64, "required": True},
    "silver": {"mode": "writethrough", "weight": 200},
    "bronze": {"mode": "flush-only", "weight": 50},
}

# On a SCSI disk, the name in QEMU's monitor does not change.
_PROPERTIES = {"hw_disk_bus": "scsi", "hw_scsi_model": "virtio-scsi"}


def image_file(path: Path) -> Path:
    """Create an image that does not boot: the guest's firmware waits for another one.

    A guest that does more would be emulated twice. QEMU is told to read and write the disks. A
    boot sector would make Glance detect another format than raw.
    """
    path.write_bytes(b"\0" * 512 + random.Random(1).randbytes(IMAGE_MB * MIB - 512))
    return path


class Servers:
    """Actions on instances.

    :param cloud: the cloud of the instances
    """

    def __init__(self, cloud: "AllInOne") -> None:
        self._cloud = cloud
        self.image = ""

    def make_image(self, name: str = "idle", path: Path | None = None,
                   properties: dict[str, str] = _PROPERTIES) -> str:
        """Upload an image to Glance; return its ID.

        :param path: the image, by default one that does not boot
        :param properties: its properties
        """
        glance, session = self._cloud.glance_url, self._cloud.people["admin"].session
        made: str = session.post(f"{glance}/v2/images", json={
            "name": name, "disk_format": "raw", "container_format": "bare",
            "visibility": "public", **properties}).json()["id"]
        path = path or image_file(self._cloud.folder / "idle.raw")
        session.put(f"{glance}/v2/images/{made}/file", data=path.read_bytes(),
                    headers={"Content-Type": "application/octet-stream"})
        self.image = made
        return made

    def make_flavor(self, name: str, **options: Any) -> None:
        """Create a flavor with the options of ``openstack vcache flavor set``."""
        answer = self._cloud.compute("POST", "/flavors", json={"flavor": {
            "id": name, "name": name, "ram": 64, "vcpus": 1, "disk": 0}})
        assert answer.status_code == 200, answer.text
        words = [word for key, value in options.items()
                 for word in ([f"--{key.replace('_', '-')}"] if value is True else
                              [f"--{key.replace('_', '-')}", str(value)])]
        done = self._cloud.openstack("vcache", "flavor", "set", name, *words)
        assert done.returncode == 0, done.stderr

    def create(self, name: str, flavor: str, host: str | None = None, *,
               status: str = "ACTIVE", **options: Any) -> Json:
        """Boot an instance, and wait for it.

        :param host: its host; by default, the scheduler chooses
        :param status: the status to wait for
        """
        # By the hypervisor's name, so that the filters still run.
        where = {"hypervisor_hostname": host} if host else {}
        answer = self._cloud.compute("POST", "/servers", json={"server": {
            "name": name, "flavorRef": flavor, "imageRef": self.image, "networks": "none",
            **where, **options}})
        assert answer.status_code == 202, answer.text
        return self._cloud.await_server(answer.json()["server"]["id"], status)

    def act(self, server: Json, action: str, status: str, body: Any = None,
            seconds: float = 600.0) -> Json:
        """Execute an action of Nova on an instance, and wait until it is complete."""
        answer = self._cloud.compute("POST", f"/servers/{server['id']}/action",
                                     json={action: body})
        assert answer.ok, f"{action}: {answer.text}"
        # The state changes only after some time.
        time.sleep(1)
        return self._cloud.await_server(server["id"], status, seconds)

    def delete(self, server: Json) -> None:
        """Delete an instance, and wait until it is gone."""
        self._cloud.compute("DELETE", f"/servers/{server['id']}")
        wait_for(lambda: self._cloud.compute(
            "GET", f"/servers/{server['id']}").status_code == 404, "the instance is gone", 600)

    def allocations(self, server: Json) -> dict[str, dict[str, int]]:
        """Return the Placement allocations of an instance, by name of the provider."""
        found = self._cloud.placement("GET", f"/allocations/{server['id']}").json()["allocations"]
        names = {item["uuid"]: item["name"] for item in self._cloud.placement(
            "GET", "/resource_providers").json()["resource_providers"]}
        return {names[key]: value["resources"] for key, value in found.items()}


def eventually(probe: Callable[[], Any], what: str, seconds: float = 600.0) -> Any:
    """Return the first true value of a probe."""
    found: list[Any] = []

    def look() -> bool:
        found[:] = [probe()]
        return bool(found[0])

    try:
        wait_for(look, what, seconds)
    except AssertionError as error:
        raise AssertionError(f"{error}; last: {found[0] if found else None!r}") from None
    return found[0]

# SPDX-License-Identifier: Apache-2.0
"""Cinder in one process: its API, scheduler and volume service, with our driver.

Only the database (SQLite) and the message bus are those of Cinder's tests. The driver runs
real commands of LVM as root, so neither rootwrap nor privsep's daemon is needed.
"""

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

from cinder import context, objects, privsep
from cinder.tests.functional import functional_helpers
from cinder.tests.functional.api import client
from cinder.volume import api
from cinder.volume.drivers import lvm
from oslo_config import cfg

from tests.box.limits import Deadline, limit
from tests.cinder.functional import lab
from vcache_cinder import options

assert lvm.volume_opts  # its import registers the options

TIMEOUT = 300.0
INITIATOR = "iqn.2026-11.org.example:initiator"
NQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555"


class Cloud(functional_helpers._FunctionalTestBase):
    """The services, until :meth:`doCleanups`."""

    _osapi_version = "3.70"

    def __init__(self, helper: str = "fake", **options: Any) -> None:
        super().__init__("runTest")
        self.helper = helper
        self.options = options

    def runTest(self) -> None:
        """Do nothing: pytest runs the tests."""

    def setUp(self) -> None:
        """Start the services."""
        super().setUp()
        # There is no Nova to ask.
        self.mock_object(api.API, "attachment_deletion_allowed")
        self.announce(self.volume)

    def signs_of_life(self) -> None:
        """Let services be up: those of one process share one record of their last sign of life."""
        for one in objects.ServiceList.get_all(context.get_admin_context()):
            one.report_count += 1
            one.save()

    def announce(self, service: Any) -> None:
        """Let the scheduler know a volume service."""
        assert service.manager.driver.initialized, "see the log of the volume service"
        self.signs_of_life()
        service.manager.publish_service_capabilities(context.get_admin_context())

    def _get_flags(self) -> dict[str, Any]:
        found: dict[str, Any] = super()._get_flags()
        group = "backend_defaults"
        cfg.CONF.register_opts(options.OPTIONS, group=group)
        values = {"volume_driver": "vcache_cinder.lvm.VcacheLVMDriver",
                  "volume_group": lab.GROUP, "lvm_type": "default", "volume_clear": "none",
                  "target_helper": self.helper, "target_ip_address": "127.0.0.1",
                  "vcache_pool": lab.POOL, **self.options}
        for name, value in values.items():
            found[name] = {"v": value, "g": group}
        found["service_down_time"] = {"v": 1 << 20}
        # Cinder's tests have 15 s. To attach a volume takes five commands of cinder-rtstool, and
        # each is the start of a Python program.
        found["rpc_response_timeout"] = {"v": int(limit(TIMEOUT))}
        privsep.sys_admin_pctxt.set_client_mode(False)
        return found

    @property
    def driver(self) -> Any:
        """The driver of the volume service."""
        return self.volume.manager.driver

    def restart(self) -> None:
        """Do what the volume service does when it starts."""
        (record,) = objects.ServiceList.get_all(context.get_admin_context(),
                                                {"binary": "cinder-volume"})
        self.volume.manager.init_host(added_to_cluster=False, service_id=record.id)
        assert self.driver.initialized

    @property
    def host(self) -> str:
        """The name of the backend's pool."""
        return f"{self.volume.host}#LVM"

    def moved(self, volume: str, host: str) -> None:
        """Wait until a volume is in a pool.

        :param host: name of the pool
        """
        def look() -> dict[str, str]:
            found = self.api.get_volume(volume)
            here = found["os-vol-host-attr:host"] == host
            assert found.get("migration_status") != "error", found
            return {"status": found["status"] if here else "elsewhere"}

        self.until(look, "available")

    def kind(self, name: str, **specs: str) -> str:
        """Create a volume type with keys ``vcache:*``, and ``multiattach``; return its id."""
        made = self.call("POST", "types", {"volume_type": {"name": name, "extra_specs": {
            "multiattach" if key == "multiattach" else f"vcache:{key}": text
            for key, text in specs.items()}}})
        return str(made["volume_type"]["id"])

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Make a request of the API; return its answer."""
        answer = self.api.api_request(
            path, method=method, headers={"Content-Type": "application/json"},
            body=json.dumps(body) if body is not None else None)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.text else None

    def make(self, kind: str | None = None, size: int = 1, **fields: Any) -> str:
        """Create a volume, wait until it is available, and return its id."""
        made = self.call("POST", "volumes", {"volume": {
            "size": size, "volume_type": kind, **fields}})["volume"]
        self.wait(made["id"])
        return str(made["id"])

    def wait(self, volume: str, status: str = "available") -> dict[str, Any]:
        """Wait for the status of a volume."""
        return self.until(lambda: self.api.get_volume(volume), status)

    def until(self, look: Callable[[], dict[str, Any]], status: str) -> dict[str, Any]:
        """Wait for a status."""
        deadline = Deadline(TIMEOUT)
        while True:
            found = look()
            if found["status"] == status:
                return found
            assert not found["status"].startswith("error"), found
            assert not deadline.passed(), found
            time.sleep(0.1)

    def act(self, volume: str, action: str, **fields: Any) -> Any:
        """Call an action of a volume."""
        return self.call("POST", f"volumes/{volume}/action", {action: fields})

    def attach(self, volume: str, host: str | None = None) -> tuple[str, dict[str, Any]]:
        """Attach a volume to an instance; return the attachment's id and how to connect.

        :param host: of the instance; None: this one
        """
        connector = {"initiator": INITIATOR, "ip": "127.0.0.1", "multipath": False,
                     "host": host or self.driver.hostname, "platform": "x86_64",
                     "os_type": "linux", "nqn": NQN}
        made = self.call("POST", "attachments", {"attachment": {
            "volume_uuid": volume, "instance_uuid": str(uuid.uuid4()),
            "connector": connector}})["attachment"]
        self.call("POST", f"attachments/{made['id']}/action", {"os-complete": {}})
        self.wait(volume, "in-use")
        return made["id"], made["connection_info"]

    def detach(self, volume: str, attachment: str, status: str = "available") -> None:
        """End an attachment."""
        self.call("DELETE", f"attachments/{attachment}")
        self.wait(volume, status)

    def snapshot(self, volume: str) -> str:
        """Create a snapshot, and return its id."""
        made = self.call("POST", "snapshots", {"snapshot": {"volume_id": volume}})["snapshot"]
        self.until(lambda: self.api.get_snapshot(made["id"]), "available")
        return str(made["id"])

    def gone(self, look: Callable[[], object]) -> None:
        """Wait until something is deleted."""
        deadline = Deadline(TIMEOUT)
        while True:
            try:
                found = look()
            except client.OpenStackApiException404:
                return
            assert "error" not in str(found.get("status")), found  # type: ignore[attr-defined]
            assert not deadline.passed(), found
            time.sleep(0.1)

    def delete(self, volume: str) -> None:
        """Delete a volume."""
        self.call("DELETE", f"volumes/{volume}")
        self.gone(lambda: self.api.get_volume(volume))

    def delete_snapshot(self, snapshot: str) -> None:
        """Delete a snapshot."""
        self.call("DELETE", f"snapshots/{snapshot}")
        self.gone(lambda: self.api.get_snapshot(snapshot))

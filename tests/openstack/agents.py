# SPDX-License-Identifier: Apache-2.0
"""Answers of an agent without a kernel, and an agent that answers on a real socket."""

import json
from pathlib import Path
from typing import Any

from vcache_agent.admin_client import KINDS, AdminError
from vcache_agent.unix_server import UnixServer

GIB = 1 << 30
PROJECT = "11111111111111111111111111111111"


def uuid_of(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


SPECS: dict[str, Any] = {
    "mode": "writeback", "weight": 100, "min_mb": 0, "max_mb": None, "isolation": "auto",
    "slo_flush_ms": None, "slo_read_us": None, "slo_iops": None, "persist": False,
    "vssd_max_mb": None, "vssd_mb": 0, "vssd_persist": False, "required": False}


def curve_of(disk: dict[str, Any]) -> dict[str, Any]:
    """Return a curve that falls to a tenth at 2 GiB, of reads only."""
    return {"disk": disk["disk"], "reads": 100_000, "writes": 0, "footprint_bytes": 2 * GIB,
            "cached_bytes": disk["cached_bytes"], "share_bytes": disk["cache_share_bytes"],
            "points": [{"size_bytes": step * GIB // 16, "write_miss_ratio": None,
                        "read_miss_ratio": round(0.1 + 0.9 * (1 - step / 32) ** 4, 4)}
                       for step in range(33)]}


class FakeAgent:
    """A host with one pool of 10 GiB and no instances, until told otherwise."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] = {
            "ok": True, "agent": {"problem": "", "libvirt": True, "domains": 0},
            "policy": {"name": "weighted", "set": False}, "draining": False,
            "tags_max": 65535, "tags_of": {}, "flush_p99_us": None,
            "read_p99_us": None, "loss_per_gb": None,
            "devices": [{"device": "254:0", "name": "images", "mode": "writeback",
                         "isolation": "fua", "broken": False,
                         "cache": {"pool": "254:9", "volume": 1, "broken": False}}],
            "pools": [{"name": "pool", "device": "254:9", "state": "ok", "chunk_bytes": 1 << 20,
                       "size_bytes": 10 * GIB, "free_bytes": 9 * GIB, "used_bytes": GIB,
                       "dirty_bytes": 0, "volumes": 1, "lanes_bytes": [10 * GIB],
                       "lanes_free": 0, "reads_percent": 75, "hot_percent": 20,
                       "lanes": [{"size_bytes": 10 * GIB, "free_bytes": 9 * GIB,
                                  "dedicated": False, "uuid": ""}]}],
            "pools_problem": "", "vssds": [], "domains": [], "disks": []}
        self.requests: list[dict[str, Any]] = []
        self.error = self.kind = ""
        self.operations = frozenset({"instance-curves", "instance-why"})

    def add(self, number: int, project: str = PROJECT, **specs: Any) -> str:
        """Have an instance run, with one disk in the pool; return its UUID."""
        uuid = uuid_of(number)
        found = SPECS | specs
        self.answer["domains"].append({
            "uuid": uuid, "name": f"instance-{number}", "project": project, "phase": "running",
            "problem": "", "specs": dict(found), "flavor": dict(found), "override": {},
            "hit_ratio": 0.875, "flush_p50_us": 300.0, "flush_p99_us": 900.0})
        self.answer["disks"].append({
            "uuid": uuid, "disk": "vda", "mode": found["mode"], "state": "isolated", "note": "",
            "tag": number, "pool": "254:9", "cached_bytes": GIB // 4,
            "cache_share_bytes": GIB, "lanes_bytes": 0, "dirty_bytes": 4096,
            "cache_dirty_bytes": 8192, "flush_p50_us": 300.0, "flush_p99_us": 900.0,
            "read_p99_us": None, "hit_ratio": 0.875, "requests_per_s": 250.0, "missed": []})
        self.answer["tags_of"][uuid] = 1
        return uuid

    def ask(self, request: dict[str, Any], _seconds: float = 1.0) -> dict[str, Any]:
        """Answer as admin_client.ask does."""
        answer = self.handle(request)
        if not answer["ok"]:
            raise KINDS.get(answer["kind"], AdminError)(answer["error"])
        return answer

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        if self.error:
            return {"ok": False, "error": self.error, "kind": self.kind}
        if request["op"] == "host":
            answer: dict[str, Any] = json.loads(json.dumps(self.answer))
            return answer
        if request["op"] in ("instance-curves", "instance-why"):
            return self._about(request)
        if request["op"] == "drain-set":
            self.answer["draining"] = request["draining"]
        elif request["op"] == "policy-set":
            self.answer["policy"]["name"] = request["policy"] or "weighted"
        elif request["op"] == "pool-set":
            self.answer["pools"][0] |= request["values"]
        elif request["op"] == "instance-set":
            return self._instance_set(request)
        return {"ok": True}

    def old(self) -> None:
        """Answer as an agent of the release before, without figures, verdicts and lanes."""
        for item in self.answer["domains"]:
            for name in ("hit_ratio", "flush_p50_us", "flush_p99_us"):
                del item[name]
        for item in self.answer["disks"]:
            for name in ("hit_ratio", "flush_p50_us", "requests_per_s", "missed"):
                del item[name]
        for item in self.answer["pools"]:
            del item["lanes"]
        self.operations = frozenset()

    def _about(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer about the disks of one instance."""
        if request["op"] not in self.operations:
            return {"ok": False, "kind": "", "error": f"op {request['op']!r} is unknown, must be "
                                                      "one of host"}
        found = [item for item in self.answer["disks"] if item["uuid"] == request["uuid"]]
        if not found:
            return self._elsewhere(request)
        if request["op"] == "instance-curves":
            return {"ok": True, "curves": [curve_of(item) for item in found]}
        return {"ok": True, "disks": [{
            "disk": item["disk"], "tag": item["tag"], "device_name": "images",
            "policy": "weighted", "pool_bytes": 10 * GIB, "notes": ["its note"],
            "decisions": [{"what": "weight", "value": 100, "because": ["flavor of vm: 100"]},
                          {"what": "lanes", "value": [], "because": []}]} for item in found]}

    def _instance_set(self, request: dict[str, Any]) -> dict[str, Any]:
        for item in self.answer["domains"]:
            if item["uuid"] == request["uuid"]:
                old = {} if request["replace"] else item["override"]
                item["override"] = {name: value for name, value in
                                    (old | request["values"]).items() if value is not None}
                item["specs"] = item["flavor"] | item["override"]
                return {"ok": True, "override": item["override"]}
        return self._elsewhere(request)

    @staticmethod
    def _elsewhere(request: dict[str, Any]) -> dict[str, Any]:
        return {"ok": False, "kind": "not-here",
                "error": f"instance {request['uuid']!r} is not on this host"}

    def serve(self, path: Path) -> UnixServer:
        """Answer on a socket, as vcache-agent's does."""
        server = UnixServer(path, lambda data: json.dumps(self.handle(json.loads(data))).encode(),
                            request_bytes=64 << 10, seconds=5.0)
        server.start()
        return server

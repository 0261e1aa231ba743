# SPDX-License-Identifier: Apache-2.0
"""`vcache device probe` on real block devices."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.kernel import stack
from tests.kernel.nofua import loop_device
from tests.kernel.stack import linear, mapped, null_blk
from vcache_agent.cmd import cli

_HALF = 32 * 2048  # sectors


def probe(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Return what the command prints."""
    assert cli.main(["device", "probe", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_kinds_of_devices(capsys: pytest.CaptureFixture[str]) -> None:
    with null_blk(32) as path:
        (disk,) = probe(capsys, path)["disks"]
        assert (disk["isolation"], disk["name"]) == ("fua", Path(path).name)
        with loop_device(path) as loop:
            assert probe(capsys, loop)["disks"][0]["isolation"] == "degraded"
    with null_blk(32, cache=False) as path:
        assert probe(capsys, path)["disks"][0]["isolation"] == "plp"


def test_a_measurement_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with null_blk(64) as path, mapped(linear(path)) as device:
        stack.run("dd", "if=/dev/urandom", f"of={path}", "bs=1M", "count=64", "oflag=direct",
                  "status=none")
        before = hashlib.sha256(Path(device.path).read_bytes()).digest()
        found = probe(capsys, device.path, "--measure")
        assert found["disks"][0]["name"] == Path(path).name
        assert found["measured"]["write"]["p50"] > 0
        assert found["measured"]["flush"]["p99"] >= found["measured"]["flush"]["p50"] > 0
        assert found["measured"]["fua"] is None, "only NVMe drives take commands with FUA"
        assert hashlib.sha256(Path(device.path).read_bytes()).digest() == before
        # The lower device is in use by the mapped one.
        assert cli.main(["device", "probe", "--measure", path]) == cli.EXIT_FAILED
        assert "it is in use" in capsys.readouterr().err


def test_a_device_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with mapped(f"0 {_HALF} error") as device:
        assert cli.main(["device", "probe", "--measure", device.path]) == cli.EXIT_FAILED
        assert "Input/output error" in capsys.readouterr().err


def test_devices_on_one_disk_share_its_flush(capsys: pytest.CaptureFixture[str]) -> None:
    with null_blk(64) as path, mapped(linear(path, _HALF)) as one, \
            mapped(f"0 {_HALF} linear {path} {_HALF}") as two:
        found = probe(capsys, one.path, "--measure", "--neighbour", two.path)
        assert found["neighbour"]["own"] > 0
        assert found["disks"][0]["flush_limited"] is not True

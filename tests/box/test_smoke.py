# SPDX-License-Identifier: Apache-2.0
"""The box and User Mode Linux, booted for real: results, streams, files and errors."""

import io
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from tests.box import Box, BoxTimeout, KernelSplat, Uml
from tests.box.box import REPO, Disk
from tests.box.kernels import KernelNotFound
from tests.box.machine import Machine

_SCRIPT = """
set -e
test "$(id -u)" = 0
test "$PWD" = "$1"
echo to-stdout
echo to-stderr >&2
echo by-name > /dev/stderr
echo written > build/"$2"
echo lost > "$2"
test "$(head -c 4 /dev/disk/by-id/virtio-smoke)" = data
grep -qw io /sys/fs/cgroup/cgroup.subtree_control
touch /etc/libvirt/probe /var/lib/libvirt/probe /run/probe /tmp/probe
modprobe -a dm-mod libcrc32c
dmsetup version > /dev/null
seq 1 100000
exit 42
"""


@pytest.fixture(params=[Box, Uml])
def machine(request: pytest.FixtureRequest) -> Machine:
    return request.param(memory="1G")


def test_command_and_what_it_leaves(machine: Machine, tmp_path: Path) -> None:
    disk = tmp_path / "disk.img"
    disk.write_bytes(b"data".ljust(1 << 20, b"\0"))
    name = f"smoke-{uuid.uuid4().hex}"
    out, err = io.BytesIO(), io.BytesIO()
    try:
        result = replace(machine, disks=[Disk(disk, "smoke")]).run(
            ["sh", "-c", _SCRIPT, "sh", str(REPO), name], timeout=120, stdout=out, stderr=err)
        assert (REPO / "build" / name).read_text() == "written\n"
    finally:
        (REPO / "build" / name).unlink(missing_ok=True)
    assert (result.status, err.getvalue()) == (42, b"to-stderr\nby-name\n")
    assert not (REPO / name).exists()
    assert not Path("/etc/libvirt/probe").exists()
    # nothing is lost at the end of a long output
    lines = out.getvalue().split()
    assert lines[0] == b"to-stdout"
    assert lines[1:] == [str(n).encode() for n in range(1, 100_001)]
    assert result.stdout == out.getvalue()


def test_kernel_that_dies_is_shown(machine: Machine) -> None:
    with pytest.raises(KernelSplat, match="sysrq triggered crash") as caught:
        machine.run(["sh", "-c", "echo c > /proc/sysrq-trigger"], timeout=60)
    assert caught.value.log is not None
    assert "Call Trace" in caught.value.log.read_text()


def test_command_that_hangs_is_ended(
        machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCACHE_TIME_SCALE", "1")
    with pytest.raises(BoxTimeout, match="sleep 600: not finished after 2 s"):
        machine.run(["sleep", "600"], timeout=2)


def test_kernel_that_is_not_installed() -> None:
    with pytest.raises(KernelNotFound, match="installed: "):
        Box(kernel="2.4").run(["true"])


_INTERRUPTS = """
port=$(grep -l box.pulse /sys/class/virtio-ports/*/name)
device=$(basename "$(readlink "${port%name}device")")
count() {
    awk -v device="$device-" 'index($0, device) { n += $2 } END { print n }' /proc/interrupts
}
before=$(count)
sleep 3
echo $(($(count) - before))
"""


def test_a_box_that_idles_is_interrupted() -> None:
    box = Box(cpus=1, memory="1G")
    if box.uses_kvm():
        pytest.skip("KVM loses no interrupt")
    result = box.run(["sh", "-c", _INTERRUPTS], timeout=60, check=True)
    # Twelve, if the host has the time.
    assert 4 <= int(result.stdout) <= 40

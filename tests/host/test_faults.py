# SPDX-License-Identifier: Apache-2.0
"""A killed, hung or missing agent, and a restart of libvirtd."""

import functools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import libvirt
import pytest

from tests.host import lab
from tests.host.lab import Agent, Vm, cli, eventually, hook_runs, image, tags
from tests.host.test_lifecycle import no_tag_of, tag_of
from vcache_agent.model import DeviceNumber

MakeVm = Callable[..., Vm]

# Time for which a call of the hook may delay libvirt, and additional time for the interpreter's
# start on a busy emulated machine.
LIMIT = 3.0
SLACK = 12.0


@pytest.fixture
def limited(libvirtd: None) -> Iterator[None]:
    lab.set_hook(timeout=LIMIT)
    yield
    lab.set_hook(timeout=lab.HOOK_PATIENCE)


def in_background(task: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=task)
    thread.start()
    return thread


def test_without_an_agent_a_domain_starts_and_is_taken_on_later(
        agent: Agent, limited: None, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    agent.kill()
    one = vm("alone", [image(filesystem / "alone", 2)], {"mode": "flush-only"})
    one.start()
    runs = hook_runs("alone")
    assert [(run.operation, run.status) for run in runs] == [
        ("prepare", 0), ("start", 0), ("started", 0)]
    assert max(run.seconds for run in runs) < LIMIT + SLACK
    assert not any(one.uuid in tag.name for tag in tags(device).values())
    one.io("write 0 64k")
    assert "not running" in cli("tag", "set", "5", "--weight", "5", status=5)
    assert "WARNING" in cli("status")
    agent.start()
    assert tag_of(one, device).cgroups == {one.cgroup}


def test_a_hung_agent_delays_no_longer_than_the_limit(
        agent: Agent, limited: None, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    agent.signal(signal.SIGSTOP)
    try:
        one = vm("hung", [image(filesystem / "hung", 2)], {"mode": "flush-only"})
        one.start()
        demanding = vm("hung-required", [image(filesystem / "hung-required", 2)],
                       {"mode": "flush-only", "required": "true"})
        with pytest.raises(libvirt.libvirtError, match="vcache:required"):
            demanding.start()
        one.destroy()
        one.start()
    finally:
        agent.signal(signal.SIGCONT)
    runs = hook_runs("hung")
    assert [(run.operation, run.status) for run in runs] == [
        (operation, 0) for operation in ("prepare", "start", "started", "stopped", "release",
                                         "prepare", "start", "started")]
    # Each call has waited for its limit, and not longer.
    assert all(LIMIT - 0.5 < run.seconds < LIMIT + SLACK for run in runs), runs
    refused = hook_runs("hung-required")
    assert [(run.operation, run.status) for run in refused] == [
        ("prepare", 1), ("stopped", 0), ("release", 0)]
    assert all(run.seconds < LIMIT + SLACK for run in refused), refused
    assert tag_of(one, device).cgroups == {one.cgroup}


def test_required_is_refused_when_the_host_cannot_give_it(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    required = {"mode": "flush-only", "required": "true"}
    elsewhere = vm("elsewhere", [image(Path("/run/elsewhere"), 1, written=False)], required)
    with pytest.raises(libvirt.libvirtError, match="sda is not isolated"):
        elsewhere.start()
    bad = vm("bad-spec", [image(filesystem / "bad-spec", 1)], {**required, "weight": "0"})
    with pytest.raises(libvirt.libvirtError, match="vcache:weight.*1 to 1000"):
        bad.start()
    pool = vm("pool", [image(filesystem / "pool", 1)], {**required, "mode": "writeback"})
    with pytest.raises(libvirt.libvirtError, match="cache pool"):
        pool.start()
    good = vm("good", [image(filesystem / "good", 1)], required)
    good.start()
    tag_of(good, device)
    # With an invalid spec that is not required, the domain starts without a tag, with a message.
    lax = vm("lax", [image(filesystem / "lax", 1)], {"mode": "flush-only", "weight": "0"})
    lax.start()
    disk = eventually(lambda: agent.disks().get(("lax", "sda")), "the disk is known")
    assert disk["tag"] is None
    assert "vcache:weight" in disk["note"]


def test_killed_in_the_middle_of_a_start(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    for number, moment in enumerate(("hook: prepare", "hook: started")):
        one = vm(f"midstart{number}", [image(filesystem / f"midstart{number}", 2)],
                 {"mode": "flush-only"})
        position = len(agent.log())
        thread = in_background(one.start)
        agent.wait_for(moment, position)
        agent.kill()
        thread.join()
        assert one.is_active()
        agent.start()
        assert tag_of(one, device).cgroups == {one.cgroup}


def test_killed_in_the_middle_of_a_stop(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    one = vm("midstop", [image(filesystem / "midstop", 2)], {"mode": "flush-only"})
    one.start()
    tag = tag_of(one, device)
    one.io("write 0 1M")
    position = len(agent.log())
    thread = in_background(one.destroy)
    agent.wait_for("hook: stopped", position)
    agent.kill()
    thread.join()
    agent.start()
    no_tag_of(one, device)
    one.start()
    assert tag_of(one, device).id == tag.id


def test_killed_under_load_io_goes_on(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    pair = [vm(f"load{number}", [image(filesystem / f"load{number}", 4)],
               {"mode": "flush-only"}) for number in range(2)]
    for one in pair:
        one.start()
    before = [tag_of(one, device) for one in pair]
    ended = threading.Event()
    rounds = [0, 0]

    def load(number: int) -> None:
        while not ended.is_set():
            pair[number].io(f"write {rounds[number] % 4}M 64k")
            pair[number].io("flush")
            rounds[number] += 1

    threads = [in_background(functools.partial(load, number)) for number in range(2)]
    try:
        for _ in range(3):
            eventually(lambda: min(rounds) >= 1, "load")
            agent.kill()
            done = list(rounds)
            eventually(functools.partial(advanced, rounds, done), "I/O goes on without the agent")
            agent.start()
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    agent.reconcile()
    after = [tag_of(one, device) for one in pair]
    for then, now in zip(before, after, strict=True):
        assert (now.id, now.cgroups, now.weight) == (then.id, then.cgroups, then.weight)
        assert now.extents_sectors == 4 * 2048
        assert now.stats.flushes > then.stats.flushes


def test_changes_while_the_agent_is_away_are_made_up_for(
        agent: Agent, limited: None, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    gone, stays = (vm(name, [image(filesystem / name, 1)], {"mode": "flush-only"})
                   for name in ("gone", "stays"))
    for one in (gone, stays):
        one.start()
    tag_of(gone, device)
    kept = tag_of(stays, device)
    agent.kill()
    gone.destroy()
    new = vm("new", [image(filesystem / "new", 1)], {"mode": "flush-only"})
    new.start()
    agent.start()
    no_tag_of(gone, device)
    assert tag_of(new, device).cgroups == {new.cgroup}
    assert tag_of(stays, device).id == kept.id


def test_a_store_that_is_lost_is_filled_again(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    pair = [vm(f"store{number}", [image(filesystem / f"store{number}", 1)],
               {"mode": "flush-only"}) for number in range(2)]
    for one in pair:
        one.start()
    before = [tag_of(one, device).id for one in pair]
    agent.kill()
    for path in Path("/var/lib/vcache").glob("agent.sqlite*"):
        path.unlink()
    agent.start()
    agent.reconcile()
    assert [tag_of(one, device).id for one in pair] == before


def test_a_restarted_libvirtd_is_found_again(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    one = vm("daemon", [image(filesystem / "daemon", 1)], {"mode": "flush-only"})
    one.start()
    before = tag_of(one, device)
    position = len(agent.log())
    pid = int(Path("/run/libvirtd.pid").read_text())
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: not is_running(pid), "libvirtd has ended")
    # The domain is still running, so its tag remains.
    time.sleep(2)
    assert tags(device)[before.id].cgroups == before.cgroups
    one_pid = one.pid
    subprocess.run(["libvirtd", "-d"], check=True)
    agent.wait_for("connected to libvirt", position)
    agent.reconcile()
    assert one.pid == one_pid and one.is_active()
    assert tags(device)[before.id].cgroups == before.cgroups
    agent.wait_for("hook: reconnect daemon", position)


def advanced(now: list[int], then: list[int]) -> bool:
    """Return whether every counter has increased."""
    return all(new > old for new, old in zip(now, then, strict=True))


def is_running(pid: int) -> bool:
    """Return whether a process is running; a zombie is not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"

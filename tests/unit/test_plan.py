# SPDX-License-Identifier: Apache-2.0
"""The decision, with a model of the kernel that executes it."""

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_vcache.extra_specs import Mode
from tests.unit.plan_model import FILES, VOLUME, Host, device, disk, uuid
from vcache_agent.model import (
    DeviceNumber,
    DiskId,
    DiskState,
    Extent,
    Limits,
    Owner,
    Tag,
)
from vcache_agent.netlink import spec
from vcache_agent.plan.actions import DeleteTag, SetExtents, SetTag
from vcache_agent.plan.modes import effective_mode
from vcache_agent.records import DiskRow


def test_a_disk_gets_a_tag_then_nothing_changes() -> None:
    host = Host()
    first = host.step(disk(1, cgroup=77, weight=300))
    (report,) = first.disks
    tag = host.kernel.tags[FILES, report.tag or 0]
    assert (tag.name, tag.weight, tag.cgroups) == (f"{uuid(1)}:vda", 300, {77})
    assert host.kernel.extents[FILES, tag.id] == (Extent(100, 50),)
    again = host.step(disk(1, cgroup=77, weight=300))
    assert not again.actions and not again.rows


def test_a_long_name_is_cut_between_characters_and_stays() -> None:
    host = Host()
    host.step(disk(1, target="ä" * 100))
    (tag,) = host.kernel.tags.values()
    assert len(tag.name.encode()) == spec.NAME_MAX
    assert not host.step(disk(1, target="ä" * 100)).actions


def test_the_cgroup_comes_later_and_extents_grow() -> None:
    host = Host()
    host.step(disk(1, extents=()))
    decided = host.step(disk(1, extents=(), cgroup=5))
    assert [type(action) for action in decided.actions] == [SetTag]
    decided = host.step(disk(1, cgroup=5, extents=(Extent(8, 8), Extent(32, 8))))
    assert [type(action) for action in decided.actions] == [SetExtents]


def test_a_shared_disk_has_one_tag_with_both_cgroups() -> None:
    host = Host()
    both = disk(1, key="file:dm0:9", cgroup=5, extents=(), weight=10), \
        disk(2, key="file:dm0:9", cgroup=6, extents=(), weight=20)
    decided = host.step(*both)
    assert len({report.tag for report in decided.disks}) == 1
    (tag,) = host.kernel.tags.values()
    assert (tag.cgroups, tag.weight) == ({5, 6}, 20)
    host.step(both[1])
    (tag,) = host.kernel.tags.values()
    assert (tag.cgroups, tag.id) == ({6}, decided.disks[0].tag)


def test_a_shared_disk_keeps_its_name_while_that_domain_uses_it() -> None:
    # A later domain may sort before it.
    host = Host()
    early, late = (disk(number, key="file:dm0:9", cgroup=number, extents=()) for number in (2, 1))
    names = []
    for running in [early], [early, late], [late]:
        host.step(*running)
        names += [tag.name for tag in host.kernel.tags.values()]
    assert names == [early.label, early.label, late.label]
    assert not host.step(late).actions


def test_too_many_domains_on_one_disk_are_told() -> None:
    host = Host()
    decided = host.step(*(disk(number, key="file:dm0:9", cgroup=number, extents=())
                          for number in range(1, 18)))
    assert all("more than 16" in report.note for report in decided.disks)


def test_dirty_data_keeps_the_tag_as_an_orphan() -> None:
    host = Host()
    tag = host.step(disk(1, cgroup=5)).disks[0].tag or 0
    host.kernel.dirty((FILES, tag), 4096)
    decided = host.step()
    assert [(orphan.tag, orphan.dirty_bytes) for orphan in decided.orphans] == [(tag, 4096)]
    left = host.kernel.tags[FILES, tag]
    assert not left.cgroups and not host.kernel.extents[FILES, tag]
    host.kernel.dirty((FILES, tag), 0)
    assert host.step().actions == (DeleteTag(FILES, tag),)
    # It is stored, and used again.
    assert host.step(disk(1)).disks[0].tag == tag


def test_nothing_is_let_go_while_libvirt_cannot_be_asked() -> None:
    host = Host()
    host.step(disk(1, cgroup=5))
    decided = host.step(complete=False)
    assert not decided.actions and not decided.rows
    assert "libvirt" in decided.orphans[0].reason
    # The hook's requests are executed nevertheless.
    assert host.step(disk(2), complete=False).actions


def test_tags_of_others_are_left_alone() -> None:
    host = Host()
    host.kernel.tags[FILES, 12] = Tag(FILES, 12, name="by hand")
    decided = host.step(disk(1))
    assert (FILES, 12) in host.kernel.tags
    assert decided.disks[0].tag != 12
    assert "left unchanged" in decided.orphans[0].reason


def test_a_lost_store_is_filled_from_the_kernel() -> None:
    host = Host()
    disks = [disk(number, cgroup=number) for number in range(1, 6)]
    before = {report.state.label: report.tag for report in host.step(*disks).disks}
    host.rows, host.layers, host.last_tag, host.applied = {}, {}, 0, {}
    after = {report.state.label: report.tag for report in host.step(*reversed(disks)).disks}
    assert after == before
    # Tags of domains that have ended in the meantime are removed.
    host.rows, host.layers, host.last_tag = {}, {}, 0
    host.step(disks[0])
    host.step(disks[0])
    assert [tag for _, tag in host.kernel.tags] == [before[disks[0].label]]


def test_a_volume_keeps_the_tag_of_its_table_line() -> None:
    host = Host(40)
    decided = host.step(disk(1, on=VOLUME, cgroup=5, weight=7))
    assert decided.disks[0].tag == 40
    assert host.kernel.tags[VOLUME, 40].weight == 7
    assert not any(isinstance(action, SetExtents) for action in decided.actions)
    assert not host.step().actions
    for number in range(1, 60):
        assert host.step(disk(number)).disks[0].tag != 40


def test_a_table_line_that_takes_a_number_away() -> None:
    host = Host()
    tag = host.step(disk(1, cgroup=5)).disks[0].tag or 0
    host.kernel.tags[VOLUME, tag] = Tag(VOLUME, tag)
    decided = host.step(disk(1, cgroup=5), disk(2, on=VOLUME, cgroup=6))
    notes = [report.note for report in decided.disks if report.state.location.device == VOLUME]
    assert "unique" in notes[0]
    # Once the first disk is unused, the volume gets the number.
    host.step(disk(2, on=VOLUME, cgroup=6))
    host.step(disk(2, on=VOLUME, cgroup=6))
    assert host.rows[DiskId(uuid(2), "vda")].tag == tag
    assert host.step(disk(1), disk(2, on=VOLUME)).disks[0].tag != tag


def test_a_weight_set_by_hand_holds() -> None:
    host = Host()
    host.step(disk(1, weight=100))
    host.set(1, weight=5)
    decided = host.step(disk(1, weight=100))
    assert decided.disks[0].weight == 5
    assert next(iter(host.kernel.tags.values())).weight == 5
    host.step()
    host.step()
    host.step(disk(1, weight=100))
    assert next(iter(host.kernel.tags.values())).weight == 5


@pytest.mark.parametrize("mode", [Mode.WRITEBACK, Mode.WRITETHROUGH])
def test_a_mode_that_needs_a_pool_becomes_flush_only_and_says_so(mode: Mode) -> None:
    (report,) = Host().step(disk(1, mode=mode)).disks
    assert report.mode is Mode.FLUSH_ONLY
    assert mode.value in report.note and "pool" in report.note


@pytest.mark.parametrize(("served", "asked", "given", "words", "lacking"), [
    ("WRITEBACK", Mode.WRITEBACK, Mode.WRITEBACK, "", False),
    ("WRITEBACK", Mode.WRITETHROUGH, Mode.WRITETHROUGH, "", False),
    ("WRITEBACK", Mode.FLUSH_ONLY, Mode.FLUSH_ONLY, "", False),
    ("WRITETHROUGH", Mode.WRITEBACK, Mode.WRITETHROUGH, "mode writethrough", True),
    ("WRITETHROUGH", Mode.WRITETHROUGH, Mode.WRITETHROUGH, "", False),
    ("WRITETHROUGH", Mode.FLUSH_ONLY, Mode.WRITETHROUGH, "mode writethrough", False),
    ("FLUSH_ONLY", Mode.WRITEBACK, Mode.FLUSH_ONLY, "writeback needs a cache pool", True),
    ("FLUSH_ONLY", Mode.WRITETHROUGH, Mode.FLUSH_ONLY, "dm0 is in mode flush-only", True),
    ("FLUSH_ONLY", Mode.FLUSH_ONLY, Mode.FLUSH_ONLY, "", False),
    ("NONE", Mode.FLUSH_ONLY, Mode.NONE, "isolates nothing", True),
    ("NONE", Mode.NONE, Mode.NONE, "", False),
])
def test_what_each_mode_becomes_on_each_device(served: str, asked: Mode, given: Mode, words: str,
                                               lacking: bool) -> None:
    found = effective_mode(asked, device(mode=spec.Mode[served]))
    assert (found.mode, found.lacking) == (given, lacking)
    assert words in found.note
    assert bool(words) == bool(found.note)


def test_a_cache_that_fails_is_told_to_who_uses_it() -> None:
    broken = dataclasses.replace(device(mode=spec.Mode.WRITEBACK), cache_broken=True)
    assert effective_mode(Mode.WRITEBACK, broken).lacking
    assert "fails" in effective_mode(Mode.WRITETHROUGH, broken).note
    assert not effective_mode(Mode.FLUSH_ONLY, broken).note


@pytest.mark.parametrize("on", [FILES, VOLUME])
def test_the_mode_reaches_the_kernel_and_changes_online(on: DeviceNumber) -> None:
    host = Host(40)
    host.use(spec.Mode.WRITEBACK)
    for mode in (Mode.WRITETHROUGH, Mode.FLUSH_ONLY, Mode.WRITEBACK):
        decided = host.step(disk(1, on=on, cgroup=5, mode=mode))
        (report,) = decided.disks
        assert (report.mode, report.note) == (mode, "")
        assert host.kernel.tags[on, report.tag or 0].mode.name.lower().replace("_", "-") == mode
        assert not host.step(disk(1, on=on, cgroup=5, mode=mode)).actions


@pytest.mark.parametrize("served", [spec.Mode.WRITETHROUGH, spec.Mode.FLUSH_ONLY, spec.Mode.NONE])
@pytest.mark.parametrize("asked", [Mode.WRITEBACK, Mode.WRITETHROUGH, Mode.FLUSH_ONLY])
def test_a_device_with_one_mode_is_not_asked_for_others(served: spec.Mode, asked: Mode) -> None:
    host = Host(40)
    host.use(served)
    for on in FILES, VOLUME:
        host.step(disk(1, on=on, cgroup=5, mode=asked))
        assert not host.step(disk(1, on=on, cgroup=5, mode=asked)).actions


def test_a_device_that_gets_a_pool_later() -> None:
    host = Host()
    host.step(disk(1, cgroup=5, mode=Mode.WRITETHROUGH))
    host.use(spec.Mode.WRITEBACK)
    (action,) = host.step(disk(1, cgroup=5, mode=Mode.WRITETHROUGH)).actions
    assert isinstance(action, SetTag)
    assert action.mode is spec.Mode.WRITETHROUGH
    # A device that has lost its cache does not report its tags' modes.
    host.use(spec.Mode.WRITEBACK, cache_broken=True)
    assert not host.step(disk(1, cgroup=5, mode=Mode.WRITETHROUGH)).actions


def test_a_mode_set_by_hand_holds_and_is_told() -> None:
    host = Host()
    host.use(spec.Mode.WRITEBACK)
    host.step(disk(1, cgroup=5, mode=Mode.WRITEBACK))
    host.set(1, mode="flush-only")
    for _ in range(2):
        (report,) = host.step(disk(1, cgroup=5, mode=Mode.WRITEBACK)).disks
        assert report.mode is Mode.FLUSH_ONLY
        assert "by an operator" in report.note
        host.step()
        host.step()
    assert host.rows[DiskId(uuid(1), "vda")].mode == "flush-only"


def test_domains_that_share_a_disk_get_the_most_that_one_asks_for() -> None:
    host = Host()
    host.use(spec.Mode.WRITEBACK)
    both = disk(1, key="file:dm0:9", cgroup=5, extents=(), mode=Mode.FLUSH_ONLY), \
        disk(2, key="file:dm0:9", cgroup=6, extents=(), mode=Mode.WRITEBACK)
    reports = host.step(*both).disks
    assert [report.mode for report in reports] == [Mode.WRITEBACK, Mode.WRITEBACK]
    assert "another domain" in reports[0].note and not reports[1].note
    assert not host.step(*both).actions


def test_mode_none_and_disks_elsewhere_are_untagged() -> None:
    elsewhere = dataclasses.replace(disk(2), location=None, reason="on another host")
    decided = Host().step(disk(1, mode=Mode.NONE), elsewhere)
    assert [report.tag for report in decided.disks] == [None, None]
    assert "on another host" in [report.note for report in decided.disks]
    assert not decided.actions


def test_no_tag_left() -> None:
    host = Host()
    host.rows = {row.id: row for row in (
        DiskRow(str(number), "vda", number, "", "", "", "", "vda") for number in range(1, 65536))}
    decided = host.decide(disk(3))
    assert decided.disks[0].tag is None
    assert "65535" in decided.disks[0].note


def test_disks_of_undefined_domains_are_forgotten_in_the_end() -> None:
    host = Host()
    host.step(disk(1))
    host.step(disk(1), defined=frozenset({uuid(1)}))
    host.step(defined=frozenset({uuid(1)}))
    host.step(defined=frozenset({uuid(1)}))
    assert host.rows
    decided = host.step(defined=frozenset())
    assert "no longer knows" in decided.orphans[0].reason
    host.now += 90000
    host.step(defined=frozenset({uuid(1)}))
    assert host.rows, "it is only stopped"
    host.step(defined=frozenset())
    assert not host.rows


def test_an_image_that_is_gone_needs_no_number() -> None:
    host = Host()
    host.step(disk(1))
    host.step(defined=frozenset())
    decided = host.step(defined=frozenset(), missing=frozenset({"/file:dm0:1"}))
    assert not host.rows and not decided.orphans


def test_a_device_that_came_back_empty_is_filled_again() -> None:
    host = Host()
    host.step(disk(1, cgroup=5))
    before = dict(host.kernel.tags)
    host.kernel.tags.clear()
    host.kernel.extents.clear()
    host.step(disk(1, cgroup=5))
    assert host.kernel.tags == before


DISKS = st.lists(st.builds(
    disk, st.integers(1, 6), cgroup=st.none() | st.integers(1, 40),
    weight=st.integers(1, 1000), on=st.sampled_from([FILES, FILES, VOLUME]),
    mode=st.sampled_from(Mode), target=st.sampled_from(["vda", "vdb"])),
    max_size=8, unique_by=lambda state: state.label)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(DISKS, st.booleans(), st.integers(0, 2**32)), min_size=1, max_size=5),
       st.sampled_from(spec.Mode))
def test_any_history_converges_and_keeps_its_promises(
        history: list[tuple[list[DiskState], bool, int]], served: spec.Mode) -> None:
    host = Host(40)
    host.use(served)
    for disks, complete, seed in history:
        chance = random.Random(seed)
        for key in host.kernel.tags:
            host.kernel.dirty(key, chance.choice([0, 0, 4096]))
        running = {state.label for state in disks}
        decided = host.decide(*disks, complete=complete)
        if chance.random() < 0.3:
            # Killed in between: the intent is stored first, then the actions run.
            host.remember(decided)
            host.kernel.apply(decided, chance.randint(0, len(decided.actions)))
            host.applied = {}
        host.step(*disks, complete=complete)
        after = host.step(*disks, complete=complete)
        # Converged, except for a tag that waits until its data is durable.
        assert not after.actions and not after.rows
        tagged = [report for report in after.disks if report.tag is not None]
        assert {report.state.label for report in after.disks} == running
        by_key: dict[str, set[int | None]] = {}
        for report in tagged:
            assert report.state.specs.mode is not Mode.NONE
            location = report.state.location
            assert location is not None
            by_key.setdefault(location.key, set()).add(report.tag)
            tag = host.kernel.tags[location.device, report.tag or 0]
            if report.state.cgroup is not None and location.device == FILES:
                assert report.state.cgroup in tag.cgroups
        assert all(len(numbers) == 1 for numbers in by_key.values())
        numbers = [next(iter(found)) for found in by_key.values()]
        assert len(set(numbers)) == len(numbers), "a tag is one disk's"
        cgroups = {report.state.cgroup for report in tagged}
        for tag in host.kernel.tags.values():
            if complete and tag.device == FILES:
                assert tag.cgroups <= cgroups, "a cgroup that is no longer used"


def volume(number: int, **fields: object) -> DiskState:
    """Return a managed volume, which is the disk of itself."""
    state = disk(number, on=VOLUME, target="volume", **fields)  # type: ignore[arg-type]
    return dataclasses.replace(state, domain=dataclasses.replace(
        state.domain, owner=Owner.VOLUME))


def test_the_type_of_a_managed_volume_wins_over_the_flavor() -> None:
    host = Host(9)
    host.use(spec.Mode.WRITEBACK, pool="254:9")
    limits = Limits(Mode.WRITETHROUGH, None, "while the instance migrates")
    instance = dataclasses.replace(
        disk(1, on=VOLUME, mode=Mode.WRITETHROUGH, weight=900, target="vdb"), limits=limits)
    plan = host.step(instance, volume(2, mode=Mode.WRITEBACK, weight=7))
    tag = host.kernel.tags[VOLUME, 9]
    assert (tag.name, tag.weight, tag.mode) == (f"{uuid(2)}:volume", 7, spec.Mode.WRITEBACK)
    reports = {report.state.domain.owner: report for report in plan.disks}
    assert reports[Owner.INSTANCE].managed
    assert reports[Owner.INSTANCE].note == (
        "mode writeback instead of writethrough: its volume type has this mode")
    assert not reports[Owner.VOLUME].managed
    assert reports[Owner.VOLUME].note == ""
    # The instance leaves; nothing of the volume changes.
    assert host.step(volume(2, mode=Mode.WRITEBACK, weight=7)).actions == ()


def test_a_managed_volume_takes_no_part_of_an_instances_guarantee() -> None:
    host = Host(9)
    host.use(spec.Mode.WRITEBACK, pool="254:9")
    host.pools = {"254:9": 1 << 40}
    own = disk(1, mode=Mode.WRITEBACK)
    own = dataclasses.replace(own, specs=dataclasses.replace(own.specs, min_mb=64))
    attached = dataclasses.replace(disk(1, on=VOLUME, target="vdb"), specs=own.specs)
    host.step(own, attached, volume(2, mode=Mode.WRITEBACK))
    least = {key: tag.cache_min_bytes for key, tag in host.kernel.tags.items()}
    assert least == {(FILES, 1): 64 << 20, (VOLUME, 9): 0}


def test_a_managed_volume_keeps_its_number_while_it_is_drained() -> None:
    host = Host(9)
    host.step(volume(2))
    del host.kernel.tags[VOLUME, 9]
    device = host.devices
    host.devices = tuple(one for one in device if one.number != VOLUME)
    for _ in range(3):
        host.now += 1e6
        host.step(disk(1), defined=frozenset({uuid(1), uuid(2)}))
    assert host.rows[DiskId(uuid(2), "volume")].tag == 9

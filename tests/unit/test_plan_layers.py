# SPDX-License-Identifier: Apache-2.0
"""The identity of a disk: it keeps tag and settings, whatever happens to its layers."""

import dataclasses

import pytest

from nova_vcache.extra_specs import Mode
from tests.unit.plan_model import (
    FILES,
    VOLUME,
    Host,
    device,
    disk,
    layer,
    lost,
    over,
    unknown,
    uuid,
)
from vcache_agent.model import DeviceNumber, DiskId, DiskState, Extent, Layer, Tag, shared_label
from vcache_agent.netlink import spec
from vcache_agent.plan import assign
from vcache_agent.plan.actions import SetTag
from vcache_agent.plan.state import DiskReport
from vcache_agent.records import DiskRow, LayerRow

OTHER = DeviceNumber(254, 7)
VDA = DiskId(uuid(1), "vda")
NAME_OF_VDA = f"{uuid(1)}:vda"


def on(number: int, key: str, start: int, **fields: object) -> DiskState:
    """A disk whose active layer has 10 sectors."""
    return disk(number, key=key, extents=(Extent(start, 10),), cgroup=number,
                **fields)  # type: ignore[arg-type]


def tag_of(host: Host, report: DiskReport) -> Tag:
    assert report.key is not None
    return host.kernel.tags[report.key]


def named(host: Host, name: str) -> Tag:
    (found,) = (tag for tag in host.kernel.tags.values() if tag.name == name)
    return found


def settled(host: Host, *disks: DiskState) -> None:
    """Check that nothing is left to do."""
    again = host.step(*disks)
    assert not again.actions and not again.rows


@pytest.fixture
def host() -> Host:
    """A host with disk vda of domain 1 on layer L, and the settings of an operator."""
    made = Host()
    made.step(on(1, "L", 100))
    made.set(1, weight=900, mode="flush-only", lanes="1")
    made.step(on(1, "L", 100))
    return made


SNAPSHOT = over(on(1, "S", 200), layer("L", 100))
BOTH = (Extent(100, 10), Extent(200, 10))


def test_an_external_snapshot_changes_only_the_extents(host: Host) -> None:
    (report,) = host.step(SNAPSHOT).disks
    tag = tag_of(host, report)
    assert (tag.id, tag.weight, tag.cgroups) == (1, 900, {1})
    assert host.kernel.extents == {(FILES, 1): BOTH}
    row = host.rows[VDA]
    assert (row.weight, row.mode, row.lanes, row.layer) == (900, "flush-only", "1", "S")
    settled(host, SNAPSHOT)


@pytest.mark.parametrize(("after", "extents"), [
    # Block commit of the active layer, and pivot to L.
    (on(1, "L", 100), (Extent(100, 10),)),
    # Block pull: S no longer has a backing layer.
    (on(1, "S", 200), (Extent(200, 10),)),
    # Another snapshot.
    (over(on(1, "T", 300), layer("S", 200), layer("L", 100)),
     (*BOTH, Extent(300, 10))),
    # Block copy and pivot to another file.
    (on(1, "C", 400), (Extent(400, 10),))])
def test_block_jobs_change_only_the_extents(
        host: Host, after: DiskState, extents: tuple[Extent, ...]) -> None:
    host.step(SNAPSHOT)
    (report,) = host.step(after).disks
    assert (report.tag, tag_of(host, report).weight) == (1, 900)
    assert host.kernel.extents == {(FILES, 1): extents}
    settled(host, after)


def test_a_commit_of_an_intermediate_layer(host: Host) -> None:
    host.step(SNAPSHOT)
    host.step(over(on(1, "T", 300), layer("S", 200), layer("L", 100)))
    after = over(on(1, "T", 300), layer("L", 100))
    host.step(after)
    assert host.kernel.extents == {(FILES, 1): (Extent(100, 10), Extent(300, 10))}
    assert set(host.layers) == {"L", "T"}, "layers that a disk no longer has are forgotten"
    settled(host, after)


def test_the_layers_of_a_stopped_disk_are_known_at_its_next_start(host: Host) -> None:
    host.step(SNAPSHOT)
    host.step()
    host.step()
    assert set(host.layers) == {"L", "S"}
    # QEMU has not opened the disk yet, so libvirt does not know the chain.
    start = over(on(1, "S", 200), chain_known=False)
    host.step(start)
    assert set(host.layers) == {"L", "S"}
    (report,) = host.step(SNAPSHOT).disks
    assert (report.tag, report.weight) == (1, 900)
    assert host.kernel.extents == {(FILES, 1): BOTH}


def test_while_a_chain_is_not_known_the_extents_stay(host: Host) -> None:
    """As at a hard reboot, before the agent has noticed the stop."""
    host.step(SNAPSHOT)
    before = dict(host.kernel.extents)
    assert not host.step(over(on(1, "S", 200), chain_known=False)).actions
    assert host.kernel.extents == before


def with_other(host: Host) -> Host:
    """Add a second device of scope filesystem."""
    host.devices = (*host.devices, dataclasses.replace(device(OTHER), name="dm7"))
    host.kernel.modes[OTHER] = spec.Mode.FLUSH_ONLY
    host.kernel.pools[OTHER] = ""
    return host


def test_a_copy_to_another_device_takes_the_settings_along(host: Host) -> None:
    moved = on(1, "C", 400, on=OTHER)
    (report,) = with_other(host).step(moved).disks
    assert report.key == (OTHER, 1)
    assert host.kernel.tags.keys() == {(OTHER, 1)}
    assert (host.kernel.tags[OTHER, 1].weight, host.rows[VDA].device) == (900, "dm7")
    settled(host, moved)


def test_a_disk_with_layers_on_two_devices_has_a_tag_on_each(host: Host) -> None:
    both = over(on(1, "S", 200, on=OTHER), layer("L", 100))
    (report,) = with_other(host).step(both).disks
    assert (report.key, report.also_read) == ((OTHER, 1), ((FILES, 1),))
    assert host.kernel.extents == {(OTHER, 1): (Extent(200, 10),), (FILES, 1): (Extent(100, 10),)}
    assert all((tag.weight, tag.cgroups) == (900, {1}) for tag in host.kernel.tags.values())
    settled(host, both)
    pulled = on(1, "S", 200, on=OTHER)
    host.step(pulled)
    assert host.kernel.tags.keys() == {(OTHER, 1)}


def test_only_one_of_two_tags_of_a_disk_has_its_guarantee() -> None:
    host = with_other(Host())
    host.devices = tuple(dataclasses.replace(item, mode=spec.Mode.WRITEBACK, pool="254:9")
                         for item in host.devices)
    host.kernel.modes = {item.number: item.mode for item in host.devices}
    host.kernel.pools = {item.number: item.pool for item in host.devices}

    def cached(state: DiskState) -> DiskState:
        return dataclasses.replace(state, specs=dataclasses.replace(
            state.specs, mode=Mode.WRITEBACK, min_mb=64, max_mb=100))

    host.step(cached(on(1, "L", 100)))
    host.step(cached(over(on(1, "S", 200, on=OTHER), layer("L", 100))))
    assert {number: (tag.cache_min_bytes >> 20, tag.cache_max_bytes >> 20)
            for (number, _), tag in host.kernel.tags.items()} == {OTHER: (64, 100),
                                                                  FILES: (0, 100)}


def test_a_copy_to_a_volume_and_back(host: Host) -> None:
    host.kernel.tags[VOLUME, 40] = Tag(VOLUME, 40)
    moved = disk(1, on=VOLUME, cgroup=1)
    (report,) = host.step(moved).disks
    assert report.key == (VOLUME, 40)
    assert host.kernel.tags.keys() == {(VOLUME, 40)}
    assert host.kernel.tags[VOLUME, 40].weight == 900
    settled(host, moved)
    (report,) = host.step(on(1, "L", 100)).disks
    assert report.tag != 40
    assert (report.device, report.weight) == (FILES, 900)


# A reused inode.


@pytest.mark.parametrize("stopped", [False, True])
def test_another_disk_on_a_reused_number_inherits_nothing(host: Host, stopped: bool) -> None:
    """The key has the generation of the inode; see inode.py. An older agent's key has not."""
    host.step()
    if stopped:
        host.step()
    host.layers = {"file:dm0:7": dataclasses.replace(host.layers["L"], key="file:dm0:7")}
    host.rows[VDA] = dataclasses.replace(host.rows[VDA], layer="file:dm0:7")
    (report,) = host.step(on(2, "file:dm0:7:g0000001f", 100)).disks
    assert (report.tag, report.weight) == (2, 100)
    assert (host.rows[VDA].tag, host.rows[VDA].weight) == (1, 900)


def test_a_new_file_of_a_disk_has_its_settings_but_not_its_layers(host: Host) -> None:
    """Rebuild: the same domain and target."""
    host.step()
    (report,) = host.step(on(1, "file:dm0:7:g00000002", 300)).disks
    assert report.weight == 900
    assert set(host.layers) == {"file:dm0:7:g00000002"}


def test_the_key_of_an_older_agent_is_upgraded_for_the_same_disk(host: Host) -> None:
    old = dataclasses.replace(host.layers["L"], key="file:dm0:7")
    host.layers = {old.key: old}
    host.rows[VDA] = dataclasses.replace(host.rows[VDA], layer=old.key)
    new = "file:dm0:7:g0000001f"
    (report,) = host.step(on(1, new, 100)).disks
    assert (report.tag, report.weight) == (1, 900)
    assert set(host.layers) == {new}
    assert host.rows[VDA].layer == new
    settled(host, on(1, new, 100))


def test_the_key_of_an_older_agent_is_upgraded_for_a_backing_layer(host: Host) -> None:
    """A snapshot while an older agent was replaced."""
    host.layers = {"file:dm0:7": dataclasses.replace(host.layers["L"], key="file:dm0:7")}
    (report,) = host.step(over(on(1, "S", 200), layer("file:dm0:7:g00000001", 100))).disks
    assert report.tag == 1
    assert host.kernel.extents == {(FILES, 1): BOTH}
    assert set(host.layers) == {"S", "file:dm0:7:g00000001"}


# Shared layers.

BASE = layer("base", 50000, 50)
PATH = "/base"
NAME = shared_label(PATH)


def clone(number: int, *between: Layer, weight: int = 100, mode: Mode = Mode.FLUSH_ONLY,
          base: Layer = BASE) -> DiskState:
    return over(on(number, f"file{number}", number * 10, weight=weight, mode=mode),
                *between, base)


def test_a_base_of_two_disks_has_a_tag_of_its_own() -> None:
    host = Host()
    both = clone(1), clone(2)
    reports = host.step(*both).disks
    tag = named(host, NAME)
    assert (tag.cgroups, host.kernel.extents[FILES, tag.id]) == (frozenset(), (Extent(50000, 50),))
    assert [report.also_read for report in reports] == [((FILES, tag.id),)] * 2
    assert {report.tag for report in reports} & {tag.id} == set()
    assert host.layers["base"] == LayerRow("base", PATH, "dm0", tag=tag.id)
    settled(host, *both)
    host.step(clone(2))
    assert named(host, NAME).id == tag.id
    # Without a user it is released, and it has its number again.
    host.step()
    host.step()
    assert not host.kernel.tags
    assert host.layers["base"].released is not None
    host.step(clone(2))
    assert named(host, NAME).id == tag.id
    assert host.layers["base"].released is None


def test_a_base_of_one_disk_is_shared_unless_it_was_its_active_layer() -> None:
    host = Host()
    host.step(clone(1))
    assert named(host, NAME)
    # Commit into the base: now it is the disk's own, and stays so under a snapshot.
    host.step(on(1, "base", 50000))
    assert [tag.name for tag in host.kernel.tags.values()] == [NAME_OF_VDA]
    assert host.layers["base"].owner == VDA
    after = over(on(1, "S", 600), layer("base", 50000))
    host.step(after)
    assert [tag.name for tag in host.kernel.tags.values()] == [NAME_OF_VDA]
    settled(host, after)


def test_a_stopped_disk_that_others_use_as_their_base_is_shared(host: Host) -> None:
    host.step()
    readers = [over(on(number, f"file{number}", number * 10), layer("L", 100))
               for number in (2, 3)]
    host.step(*readers)
    tag = named(host, shared_label("/L"))
    assert host.kernel.extents[FILES, tag.id] == (Extent(100, 10),)
    assert (host.layers["L"].owner, host.layers["L"].tag) == (VDA, tag.id)
    settled(host, *readers)
    # It starts again: the layer belongs to who writes it.
    host.step(*readers, on(1, "L", 100))
    assert host.kernel.extents[FILES, 1] == (Extent(100, 10),)
    assert not [tag for tag in host.kernel.tags.values() if tag.name.startswith("base:")]
    assert host.kernel.tags[FILES, 1].weight == 900
    settled(host, *readers, on(1, "L", 100))


def test_a_snapshot_over_a_base_keeps_each_layer_with_its_tag() -> None:
    host = Host()
    others = clone(2)
    host.step(clone(1), others)
    first = {tag.name: tag.id for tag in host.kernel.tags.values()}
    after = clone(1)
    after = over(on(1, "S", 900), layer("file1", 10), BASE)
    host.step(after, others)
    assert {tag.name: tag.id for tag in host.kernel.tags.values()} == first
    assert host.kernel.extents[FILES, first[NAME_OF_VDA]] == (Extent(10, 10), Extent(900, 10))
    settled(host, after, others)


@pytest.mark.parametrize(("weights", "layers", "expected"), [
    ([100], 1, 50), ([100, 300], 1, 200), ([100], 3, 25), ([1], 1, 1), ([1000] * 5, 1, 1000)])
def test_the_weight_of_a_base_comes_from_its_users(
        weights: list[int], layers: int, expected: int) -> None:
    host = Host()
    more = [layer(f"more{number}", 600 + 10 * number) for number in range(1, layers)]
    host.step(*(clone(number, *more, weight=weight)
                for number, weight in enumerate(weights, 1)))
    assert named(host, NAME).weight == expected
    assert [host.kernel.tags[FILES, row.tag].weight for row in host.rows.values()] == weights


def test_an_operators_weight_counts_for_the_base_too() -> None:
    host = Host()
    host.step(clone(1))
    host.set(1, weight=800)
    host.step(clone(1))
    assert named(host, NAME).weight == 400


@pytest.mark.parametrize(("modes", "expected"), [
    ([Mode.FLUSH_ONLY], spec.Mode.FLUSH_ONLY), ([Mode.WRITEBACK], spec.Mode.WRITETHROUGH),
    ([Mode.FLUSH_ONLY, Mode.WRITETHROUGH], spec.Mode.WRITETHROUGH)])
def test_a_base_is_cached_if_a_user_is(modes: list[Mode], expected: spec.Mode) -> None:
    host = Host()
    host.use(spec.Mode.WRITEBACK, pool="254:9")
    disks = [clone(number, mode=mode) for number, mode in enumerate(modes, 1)]
    host.step(*disks)
    assert named(host, NAME).mode is expected
    assert (named(host, NAME).cache_min_bytes, named(host, NAME).cache_max_bytes) == (0, 0)
    settled(host, *disks)


def test_a_base_on_a_volume_has_the_number_of_its_table_line() -> None:
    host = Host(40)
    made = clone(1, base=layer("volume:dm1", 0, on=VOLUME))
    (report,) = host.step(made).disks
    assert report.also_read == ((VOLUME, 40),)
    assert host.kernel.tags[VOLUME, 40].name == shared_label("/volume:dm1")
    settled(host, made)


def test_a_base_under_a_disk_elsewhere_has_a_tag() -> None:
    made = dataclasses.replace(clone(1, weight=200), location=None, reason="it is on tmpfs")
    host = Host()
    (report,) = host.step(made).disks
    assert (report.tag, report.note) == (None, "it is on tmpfs")
    assert report.also_read == ((FILES, named(host, NAME).id),)
    assert named(host, NAME).weight == 100
    settled(host, made)


def test_no_more_bases_than_allowed_have_a_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assign, "SHARED_MAX", 2)
    host = Host()
    disks = [clone(number, base=layer(f"b{number}", 100 * number)) for number in range(1, 5)]
    host.step(*disks)
    bases = {tag.name for tag in host.kernel.tags.values() if tag.name.startswith("base:")}
    assert len(bases) == 2
    assert len(host.rows) == 4
    settled(host, *disks)


def test_a_base_is_forgotten_in_the_end() -> None:
    host = Host()
    host.step(clone(1))
    for _ in range(3):
        host.step(defined=frozenset())
    assert "base" in host.layers
    host.now += 90000
    host.step(defined=frozenset())
    host.step(defined=frozenset())
    assert not host.layers and not host.rows


def test_the_file_of_a_base_that_is_gone_needs_no_number() -> None:
    host = Host()
    host.step(clone(1))
    host.step()
    host.step()
    host.step(missing=frozenset({PATH}))
    assert "base" not in host.layers


def test_a_lost_store_finds_bases_by_their_names() -> None:
    host = Host()
    both = clone(1), clone(2)
    host.step(*both)
    before = {tag.name: tag.id for tag in host.kernel.tags.values()}
    host.rows, host.layers, host.last_tag = {}, {}, 0
    host.step(*both)
    assert {tag.name: tag.id for tag in host.kernel.tags.values()} == before


# Locations that are unknown this time.


def test_a_disk_whose_location_is_unknown_keeps_tag_extents_and_share(host: Host) -> None:
    host.step(SNAPSHOT)
    before = dict(host.kernel.tags), dict(host.kernel.extents), dict(host.rows), dict(host.layers)
    decided = host.step(unknown(SNAPSHOT))
    assert not decided.actions and not decided.rows
    assert (host.kernel.tags, host.kernel.extents, host.rows, host.layers) == before
    (report,) = decided.disks
    assert (report.tag, report.weight, report.mode) == (1, 900, Mode.FLUSH_ONLY)
    assert report.note == "its path hangs; its last known state stays in force"


@pytest.mark.parametrize("store", [True, False])
def test_an_agent_that_just_started_and_knows_no_location_keeps_all_tags(store: bool) -> None:
    host = Host()
    disks = clone(1), clone(2), on(3, "L", 100)
    host.step(*disks)
    host.applied = {}
    if not store:
        host.rows, host.layers, host.last_tag = {}, {}, 0
    before = dict(host.kernel.tags), dict(host.kernel.extents)
    start = [over(unknown(state), *map(lost, state.backing)) for state in disks]
    assert not host.step(*start).actions
    assert (host.kernel.tags, host.kernel.extents) == before
    host.step(*disks)
    assert (host.kernel.tags, host.kernel.extents) == before


def test_an_agent_that_just_started_keeps_a_disk_with_a_snapshot(host: Host) -> None:
    host.step(SNAPSHOT)
    host.applied = {}
    before = dict(host.kernel.tags), dict(host.kernel.extents)
    for state in (over(unknown(SNAPSHOT), lost(layer("L", 100))),
                  over(unknown(SNAPSHOT), layer("L", 100)),
                  over(on(1, "S", 200), lost(layer("L", 100)))):
        assert not host.step(state).actions
        assert (host.kernel.tags, host.kernel.extents) == before


def test_an_unknown_disk_still_follows_its_operator_and_its_cgroup(host: Host) -> None:
    host.set(1, weight=50)
    decided = host.step(dataclasses.replace(unknown(on(1, "L", 100)), cgroup=77))
    assert [type(action) for action in decided.actions] == [SetTag]
    assert (host.kernel.tags[FILES, 1].weight, host.kernel.tags[FILES, 1].cgroups) == (50, {77})
    decided = host.step(dataclasses.replace(unknown(on(1, "L", 100)), cgroup=None))
    assert host.kernel.tags[FILES, 1].cgroups == {77}


def test_an_unknown_disk_that_never_had_a_tag_has_none() -> None:
    host = Host()
    (report,) = host.step(unknown(disk(1))).disks
    assert (report.tag, report.note) == (None, "its path hangs")
    assert not host.kernel.tags and not host.rows


def test_an_own_backing_layer_that_is_unknown_keeps_the_extents(host: Host) -> None:
    host.step(SNAPSHOT)
    grown = dataclasses.replace(SNAPSHOT, location=dataclasses.replace(
        SNAPSHOT.location, extents=(Extent(200, 20),)))  # type: ignore[type-var]
    assert not host.step(over(grown, lost(layer("L", 100)))).actions
    host.step(grown)
    assert host.kernel.extents == {(FILES, 1): (Extent(100, 10), Extent(200, 20))}


def test_a_base_that_is_unknown_keeps_its_tag_and_changes_no_other() -> None:
    host = Host()
    host.step(clone(1))
    before = dict(host.kernel.extents)
    grown = over(on(1, "file1", 20), lost(BASE))
    host.step(grown)
    tag = named(host, NAME)
    assert host.kernel.extents == {**before, (FILES, host.rows[VDA].tag): (Extent(20, 10),)}
    assert host.kernel.extents[FILES, tag.id] == (Extent(50000, 50),)
    settled(host, grown)


def test_a_disk_that_is_certainly_elsewhere_loses_its_tag(host: Host) -> None:
    gone = dataclasses.replace(on(1, "L", 100), location=None, reason="it is on tmpfs")
    host.step(gone)
    assert not host.kernel.tags
    assert host.rows[VDA].weight == 900


def test_an_unknown_volume_keeps_its_limits() -> None:
    host = Host(40)
    host.use(spec.Mode.WRITEBACK, pool="254:9")
    wanted = dataclasses.replace(disk(1, on=VOLUME, mode=Mode.WRITEBACK), specs=dataclasses.replace(
        disk(1).specs, mode=Mode.WRITEBACK, min_mb=64))
    host.step(wanted)
    assert not host.step(unknown(wanted)).actions
    assert host.kernel.tags[VOLUME, 40].cache_min_bytes == 64 << 20


def test_one_of_two_users_that_is_unknown_stays_a_user() -> None:
    host = Host()
    both = [disk(number, key="file:dm0:9", extents=(Extent(9, 9),), cgroup=number)
            for number in (1, 2)]
    host.step(*both)
    assert not host.step(both[0], unknown(both[1])).actions
    assert named(host, both[0].label).cgroups == {1, 2}


def test_the_user_that_is_left_and_unknown_keeps_the_tag_of_both() -> None:
    host = Host()
    both = [on(number, "L", 100) for number in (1, 2)]
    host.step(*both)
    (report,) = host.step(unknown(both[1])).disks
    assert report.tag == 1
    assert named(host, both[1].label).cgroups == {2}
    assert host.kernel.extents == {(FILES, 1): (Extent(100, 10),)}
    settled(host, unknown(both[1]))


# One layer, several disks.


def test_a_disk_handed_to_another_domain_takes_no_settings_along(host: Host) -> None:
    """As a volume that is detached and attached elsewhere."""
    after = on(2, "L", 100)
    (report,) = host.step(after).disks
    assert (report.tag, report.weight) == (2, 100)
    assert host.layers["L"].owner == DiskId(uuid(2), "vda")
    settled(host, after)
    (report,) = host.step(on(1, "L", 100)).disks
    assert (report.tag, report.weight) == (1, 900)


def test_a_layer_handed_over_while_libvirt_is_away_is_not_claimed_twice(host: Host) -> None:
    host.step(on(2, "L", 100), complete=False)
    assert host.kernel.extents == {(FILES, 1): (), (FILES, 2): (Extent(100, 10),)}
    assert (FILES, 1) in host.kernel.tags, "its domain may still run"


def test_users_of_one_disk_that_part_have_numbers_of_their_own() -> None:
    host = Host()
    host.step(on(1, "L", 100), on(2, "L", 100))
    host.set(1, weight=900)
    host.set(2, weight=900)
    apart = on(1, "L", 100), on(2, "M", 200)
    reports = host.step(*apart).disks
    assert [report.tag for report in reports] == [1, 2]
    assert [report.weight for report in reports] == [900, 900]
    settled(host, *apart)


def test_the_domain_that_names_a_tag_keeps_its_number_when_users_part() -> None:
    host = Host()
    host.step(on(2, "L", 100))
    host.step(on(1, "L", 100), on(2, "L", 100))
    reports = host.step(on(1, "M", 200), on(2, "L", 100)).disks
    assert [report.tag for report in reports] == [2, 1]


def test_the_settings_of_a_detached_disk_wait_for_it(host: Host) -> None:
    other = on(1, "data", 300, target="vdb")
    host.step(on(1, "L", 100), other)
    host.set(1, "vdb", weight=7)
    host.step(on(1, "L", 100))
    (_, report) = host.step(on(1, "L", 100), other).disks
    assert report.weight == 7


def test_a_rescue_disk_does_not_take_the_place_of_the_disk(host: Host) -> None:
    """Nova puts the instance's own disk behind it, so both have other targets than before."""
    host.step()
    rescue = on(1, "R", 300), on(1, "L", 100, target="vdb")
    reports = host.step(*rescue).disks
    assert [(report.tag, report.weight) for report in reports] == [(2, 100), (1, 900)]
    assert {tag.id: tag.name for tag in host.kernel.tags.values()} == {
        2: f"{uuid(1)}:vda", 1: f"{uuid(1)}:vdb"}
    settled(host, *rescue)
    both_unknown = [unknown(state) for state in rescue]
    assert not host.step(*both_unknown).actions
    host.step()
    (report,) = host.step(on(1, "L", 100)).disks
    assert (report.tag, report.weight) == (1, 900)
    host.step()
    reports = host.step(on(1, "R2", 500), on(1, "L", 100, target="vdb")).disks
    assert [(report.tag, report.weight) for report in reports] == [(2, 100), (1, 900)]


def test_a_disk_follows_to_another_target_of_its_domain(host: Host) -> None:
    """A new bus of the disk."""
    (report,) = host.step(on(1, "L", 100, target="sda")).disks
    assert (report.tag, report.weight) == (1, 900)
    settled(host, on(1, "L", 100, target="sda"))
    after = over(on(1, "S", 200, target="sda"), layer("L", 100))
    assert host.step(after).disks[0].weight == 900
    assert host.kernel.extents == {(FILES, 1): BOTH}
    copied = on(1, "C", 300, target="sda")
    assert host.step(copied).disks[0].weight == 900
    assert host.kernel.extents == {(FILES, 1): (Extent(300, 10),)}


def test_an_older_agents_key_counts_only_for_the_same_target(host: Host) -> None:
    host.layers = {"file:dm0:7": dataclasses.replace(host.layers["L"], key="file:dm0:7")}
    host.step()
    (report,) = host.step(on(1, "file:dm0:7:g0000001f", 100, target="vdb")).disks
    assert (report.tag, report.weight) == (2, 100)


def test_a_chain_that_is_too_deep_is_told() -> None:
    made = clone(1)
    made = dataclasses.replace(made, source=dataclasses.replace(made.source, deeper=3))
    (report,) = Host().step(made).disks
    assert "3 of its layers are too deep" in report.note


def test_many_disks_take_linear_time() -> None:
    """Count the looks at names, since a time would depend on the machine."""
    looks = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal looks
            looks += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    host = Host()
    disks = [clone(number) for number in range(1, 301)]
    host.step(*disks)
    host.kernel.tags = {key: dataclasses.replace(tag, name=Name(tag.name))
                        for key, tag in host.kernel.tags.items()}
    assert not host.decide(*disks).actions
    assert looks < 20 * len(disks)


def test_a_row_without_a_layer_is_filled_when_the_disk_is_located() -> None:
    host = Host()
    host.kernel.tags[FILES, 5] = Tag(FILES, 5, NAME_OF_VDA)
    host.step(unknown(on(1, "L", 100)))
    assert host.rows[VDA] == DiskRow(*VDA, 5, "vm1", "/L", "", "dm0", "vda")
    host.step(on(1, "L", 100))
    assert (host.rows[VDA].tag, host.rows[VDA].layer) == (5, "L")


def test_a_base_that_one_disk_cannot_locate_has_the_weight_of_both() -> None:
    """The first decision counts what the second one would find in the store."""
    host = Host()
    both = unknown(clone(1, base=lost(BASE))), clone(2)
    host.step(*both)
    assert named(host, NAME).weight == 100
    settled(host, *both)


def test_snapshots_that_follow_each_other_belong_to_the_disk(host: Host) -> None:
    """The agent has not seen the layer between as an active one."""
    twice = over(on(1, "T", 300), layer("S", 200), layer("L", 100))
    (report,) = host.step(twice).disks
    assert report.tag == 1
    assert host.kernel.extents == {(FILES, 1): (*BOTH, Extent(300, 10))}
    settled(host, twice)
    # The commit of the one below leaves it an own layer.
    host.step(over(on(1, "T", 300), layer("S", 200)))
    assert host.kernel.extents == {(FILES, 1): (Extent(200, 10), Extent(300, 10))}


def test_a_layer_below_the_own_ones_is_shared(host: Host) -> None:
    below = over(on(1, "T", 300), layer("L", 100), BASE)
    host.step(below)
    assert host.kernel.extents[FILES, 1] == (Extent(100, 10), Extent(300, 10))
    assert host.kernel.extents[FILES, named(host, NAME).id] == (Extent(50000, 50),)
    settled(host, below)


def test_a_tag_of_a_disk_that_no_longer_asks_for_one_goes_without_libvirts_list() -> None:
    """The agent was killed after it had recorded that another disk has the layer now."""
    host = Host()
    host.step(disk(5))
    moved = disk(5, target="vdb"), disk(5, mode=Mode.NONE)
    host.remember(host.decide(*moved, complete=False))
    host.applied = {}
    host.step(*moved, complete=False)
    assert not host.step(*moved, complete=False).actions

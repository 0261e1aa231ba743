# SPDX-License-Identifier: Apache-2.0
"""Any history of snapshots, block jobs, starts, stops and failures: a disk stays itself."""

import dataclasses
import random
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.plan_model import FILES, Host, device, disk, layer, lost, over, unknown, uuid
from vcache_agent.model import DeviceNumber, DiskId, DiskState, Extent, Extents, shared_label
from vcache_agent.netlink import spec
from vcache_agent.plan.state import Plan

OTHER = DeviceNumber(254, 7)
DOMAINS = st.integers(1, 4)
BASES = ("base-a", "base-b")


@dataclasses.dataclass
class Vm:
    """A domain with one disk.

    :param chain: names of its own layers from the top, then its base
    """

    number: int
    chain: list[str]
    runs: bool = False
    base: str | None = None
    located: bool = True
    opened: bool = True


class Disks(RuleBasedStateMachine):
    """A host whose domains change their layers."""

    def __init__(self) -> None:
        super().__init__()
        self.host = Host()
        self.host.devices = (*self.host.devices, dataclasses.replace(device(OTHER), name="dm7"))
        self.host.kernel.modes[OTHER] = spec.Mode.FLUSH_ONLY
        self.host.kernel.pools[OTHER] = ""
        self.names = count(1)
        self.places: dict[str, tuple[DeviceNumber, int]] = {
            name: (FILES, 10**6 + at * 100) for at, name in enumerate(BASES)}
        self.vms: dict[int, Vm] = {}
        self.weights: dict[int, int] = {}
        self.numbers: dict[int, int] = {}
        self.complete = True

    @initialize(bases=st.tuples(*[st.sampled_from([None, *BASES])] * 4))
    def create(self, bases: tuple[str | None, ...]) -> None:
        for number, base in enumerate(bases, 1):
            self.vms[number] = Vm(number, [self.file()], base=base)

    def file(self, on: DeviceNumber = FILES) -> str:
        name = f"file{next(self.names)}"
        self.places[name] = (on, len(self.places) * 100)
        return name

    def extents(self, name: str) -> Extents:
        return (Extent(self.places[name][1], 10),)

    def state(self, vm: Vm) -> DiskState:
        top, *below = vm.chain
        made = disk(vm.number, key=top, extents=self.extents(top), cgroup=vm.number,
                    on=self.places[top][0])
        backing = [layer(name, *self.extents(name)[0], on=self.places[name][0])
                   for name in [*below, *([vm.base] if vm.base else [])]]
        if not vm.located:
            made, backing = unknown(made), [lost(item) for item in backing]
        return over(made, *(backing if vm.opened else ()), chain_known=vm.opened)

    def running(self) -> list[Vm]:
        return [vm for vm in self.vms.values() if vm.runs]

    def decide(self) -> Plan:
        return self.host.decide(*map(self.state, self.running()), complete=self.complete)

    @rule(number=DOMAINS, opened=st.booleans())
    def start(self, number: int, opened: bool) -> None:
        vm = self.vms[number]
        if not vm.runs:
            vm.runs, vm.opened = True, opened

    @rule(number=DOMAINS)
    def stop(self, number: int) -> None:
        self.vms[number].runs = False
        self.numbers.pop(number, None)

    @rule(number=DOMAINS, on=st.sampled_from([FILES, FILES, OTHER]))
    def snapshot(self, number: int, on: DeviceNumber) -> None:
        vm = self.vms[number]
        if self.seen(vm) and len(vm.chain) < 4:
            vm.chain.insert(0, self.file(on))

    @rule(number=DOMAINS, at=st.integers(0, 3))
    def commit(self, number: int, at: int) -> None:
        """Write a layer into the one below it."""
        vm = self.vms[number]
        if vm.opened and vm.located and at < len(vm.chain) - 1:
            del vm.chain[at]

    @rule(number=DOMAINS)
    def pull(self, number: int) -> None:
        vm = self.vms[number]
        if vm.opened and vm.located:
            vm.chain, vm.base = vm.chain[:1], None

    @rule(number=DOMAINS, on=st.sampled_from([FILES, OTHER]))
    def copy(self, number: int, on: DeviceNumber) -> None:
        vm = self.vms[number]
        if vm.opened and vm.located:
            vm.chain, vm.base = [self.file(on)], None

    @rule(number=DOMAINS, located=st.booleans())
    def locate(self, number: int, located: bool) -> None:
        self.vms[number].located = located

    @rule(number=DOMAINS)
    def open(self, number: int) -> None:
        self.vms[number].opened = True

    @rule(complete=st.booleans())
    def libvirt(self, complete: bool) -> None:
        self.complete = complete

    @rule(number=DOMAINS, weight=st.integers(1, 1000))
    def operate(self, number: int, weight: int) -> None:
        if DiskId(uuid(number), "vda") in self.host.rows:
            self.host.set(number, weight=weight)
            self.weights[number] = weight

    @rule(seed=st.integers(0, 2**32))
    def dirty(self, seed: int) -> None:
        chance = random.Random(seed)
        for key, tag in self.host.kernel.tags.items():
            if not tag.name.startswith("base:"):  # nobody writes as a base
                self.host.kernel.dirty(key, chance.choice([0, 0, 4096]))

    @rule(seed=st.integers(0, 2**32))
    def killed(self, seed: int) -> None:
        """The agent is killed while it applies its actions, and starts again."""
        decided = self.decide()
        self.host.remember(decided)
        self.host.kernel.apply(decided, random.Random(seed).randint(0, len(decided.actions)))
        self.host.applied = {}

    @rule()
    def apply(self) -> None:
        self.step()

    def step(self) -> Plan:
        return self.host.step(*map(self.state, self.running()), complete=self.complete)

    def seen(self, vm: Vm) -> bool:
        """Return True if the agent has seen the active layer, so that it knows whose it is."""
        row = self.host.layers.get(vm.chain[0])
        return row is not None and row.owner == DiskId(uuid(vm.number), "vda")

    @invariant()
    def each_disk_is_itself(self) -> None:
        if not self.vms:
            return
        before = dict(self.host.kernel.extents)
        self.step()
        after = self.step()
        assert not after.actions and not after.rows
        kernel = self.host.kernel
        for report in after.disks:
            number = int(report.state.domain.uuid[:8], 16)
            if report.tag is None:
                assert report.state.unknown
                continue
            assert self.numbers.setdefault(number, report.tag) == report.tag, "it runs"
            vm = self.vms[number]
            tags = {key: tag for key, tag in kernel.tags.items() if key[1] == report.tag}
            assert {tag.name for tag in tags.values()} == {report.state.label}
            assert kernel.tags[report.key].weight == self.weights.get(number, 100)  # type: ignore[index]
            if not vm.located:
                assert all(kernel.extents.get(key) == before.get(key) for key in tags)
            elif vm.opened:
                self.check_layers(vm, report.tag)
        self.check_bases()

    def check_layers(self, vm: Vm, tag: int) -> None:
        """Its own layers have its tag, on each device."""
        for number in (FILES, OTHER):
            wanted = sorted(extent for name in vm.chain for extent in self.extents(name)
                            if self.places[name][0] == number)
            assert sorted(self.host.kernel.extents.get((number, tag), ())) == wanted

    def check_bases(self) -> None:
        """A base has one tag as long as a disk uses it, and no cgroup."""
        found = [tag for tag in self.host.kernel.tags.values() if tag.name.startswith("base:")]
        assert len({tag.name for tag in found}) == len(found)
        assert all(not tag.cgroups for tag in found)
        used = {shared_label(vm.base) for vm in self.running()
                if vm.base and vm.opened and vm.located}
        assert used <= {tag.name for tag in found}
        if self.complete and all(vm.opened and vm.located for vm in self.running()):
            assert used == {tag.name for tag in found}


TestDisks = Disks.TestCase
TestDisks.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)

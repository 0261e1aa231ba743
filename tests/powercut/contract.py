# SPDX-License-Identifier: Apache-2.0
"""The durability contract: the writes that a flush must cover.

A flush covers the writes of its submitter's cgroup, the writes to the tags of that
cgroup, and all untagged writes. A flush without a known cgroup covers everything: it
comes from a process outside, or it is asynchronous and sent by a kernel thread. A write
belongs to a tag only if it comes from one of the tag's cgroups, and only while the
tag exists. Every flush covers the data that a removed tag leaves behind.
"""

from collections.abc import Iterable

from tests.powercut.journal import Op
from tests.powercut.scenario import Scenario


class Attribution:
    """The attribution of operations, as far as the contract needs it.

    :param ops: operations of the journal, for the tags that are removed
    """

    def __init__(self, scenario: Scenario, ops: Iterable[Op] = ()) -> None:
        self._scenario = scenario
        self._tag = {t.file: t for t in scenario.tags}
        self._tagged = {name for t in scenario.tags for name in t.cgroups}
        self._removed = [op for op in ops if op.kind == "T"]
        self.images = {t.file: t.sectors for t in scenario.tags}

    def covers(self, flush: Op, write: Op) -> bool:
        """Return whether a flush covers a write to an image, or to the volume."""
        if not self._scenario.fs:
            return True
        if flush.detail == "sync":
            # xfs sends no flush for it if its log has no new data.
            return self._scenario.fs == "ext4"
        mine = self._scenario.cgroup_of(flush.worker)
        if flush.detail == "aio" or mine not in self._tagged:
            return True
        theirs = self._scenario.cgroup_of(write.worker)
        tag = self._tag.get(write.file)
        if theirs == mine or tag is None or mine in tag.cgroups or theirs not in tag.cgroups:
            return True
        # After the removal of the tag, its writes belong to the host.
        return any(write.submit < removal.complete < flush.submit
                   for removal in self._removed if removal.file == write.file)

    def covers_file(self, flush: Op, write: Op) -> bool:
        """Return the same for a write to any file, seen through the file system.

        The blocks of an image do not move. A file whose blocks change needs its own flush: the
        flush of another file need not make them known to the file system.
        """
        if write.file in self.images:
            return self.covers(flush, write)
        return flush.file == write.file

# SPDX-License-Identifier: Apache-2.0
"""Surveys: samples with the miss-ratio curves of all tags.

The kernel computes a curve under a lock that each request of the tag takes briefly, and a curve
changes slowly. So only one sample in a while is a survey.
"""

import dataclasses
import errno
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vcache_agent.netlink.errors import NetlinkError, NetlinkTimeout
from vcache_agent.observe.sample import Sample, TagCurve, TagKey

if TYPE_CHECKING:
    from vcache_agent.netlink.client import Client

#: Seconds between two surveys.
PERIOD = 15.0
# From so many curves on, one dump of all is faster than a request for each.
_BULK = 8


class Surveyor:
    """Adds the curves to samples.

    :param period: seconds between two surveys
    """

    def __init__(self, period: float = PERIOD) -> None:
        self._period = period
        self._last: Sample | None = None

    def survey(self, client: "Client", sample: Sample) -> Sample | None:
        """Return a sample with the curves; None: the period has not passed.

        The curve of a tag without requests since the last survey is that of the last survey.

        :raises NetlinkTimeout: if the kernel does not answer in time
        """
        if self._last is not None and sample.monotonic - self._last.monotonic < self._period:
            return None
        self._last = dataclasses.replace(sample, curves=tuple(self._curves(client, sample)))
        return self._last

    def _curves(self, client: "Client", sample: Sample) -> Iterator[TagCurve]:
        pools = {device.number: device.pool for device in sample.devices}
        last = self._last
        old = {(one.device, one.id): one for one in last.curves} if last else {}
        wanted = []
        for key, tag in sample.by_key.items():
            if not pools.get(tag.device):
                continue
            before = last.by_key.get(key) if last else None
            if key in old and before is not None and before.stats == tag.stats:
                yield old[key]
            else:
                wanted.append(key)
        yield from _some(client, wanted)


def _some(client: "Client", wanted: Sequence[TagKey]) -> Iterator[TagCurve]:
    """Yield the curves of some tags, if they have one."""
    if len(wanted) >= _BULK:
        try:
            found = client.curves()
        except NetlinkError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
        else:
            yield from (TagCurve(*key, found[key]) for key in wanted if key in found)
            return
    for key in wanted:
        try:
            yield TagCurve(*key, client.curve(*key))
        except NetlinkTimeout:
            raise
        except NetlinkError:
            continue  # the tag no longer exists, or the kernel has no sample of it

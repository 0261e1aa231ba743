# SPDX-License-Identifier: Apache-2.0
"""Divides the pool by a policy while the loads run: ``python -m bench.cache.divide POLICY FOLDER``.

Runs in the box. While the file FOLDER/divide exists, a control period ends every three seconds, as
in the agent: a survey, the decision function, new shares. The program ends when FOLDER/end exists.
Nothing is decided while a load is measured, since that would take a part of the only processor.
"""

import sys
import time
from pathlib import Path

from vcache_agent import pools
from vcache_agent.decide.decision import Config, decide
from vcache_agent.decide.history import History
from vcache_agent.dm import Dm
from vcache_agent.netlink import spec
from vcache_agent.netlink.bulk import TagDecoder
from vcache_agent.netlink.client import Client
from vcache_agent.observe.claim import Claim, PoolSize
from vcache_agent.observe.sample import take
from vcache_agent.observe.survey import Surveyor

PERIOD = 3.0


class Divider:
    """The agent's parts that divide pools."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._decoder, self._surveyor = TagDecoder(), Surveyor(0.0)
        self._history = History()

    def period(self, client: Client) -> str:
        """End a control period; return the shares as a line."""
        survey = self._surveyor.survey(client, take(client, self._decoder))
        assert survey is not None
        with Dm() as dm:
            sizes = {at: PoolSize(at, pool.chunks * pool.chunk_bytes) for at, pool in
                     pools.by_number(dm, {device.pool for device in survey.devices}).items()}
        of_device = {device.number: device.pool for device in survey.devices}
        claims = tuple(Claim(tag.device, tag.id, of_device[tag.device], tag.weight)
                       for tag in survey.tags if tag.mode is spec.Mode.WRITEBACK)
        found = decide(survey, self._history, Config(self._policy, claims, sizes))
        self._history = found.history
        for key, share in found.shares.items():
            client.tag_set(*key, cache_min=share.limits.least, cache_max=share.limits.most)
        cached = {tag.id: tag.cached_bytes >> 20 for tag in survey.tags}
        return ", ".join(f"{key[1]}: at least {share.limits.least >> 20} MiB, has {cached[key[1]]}"
                         for key, share in found.shares.items() if key[1])


def main() -> int:
    """Divide until the file ``end`` exists."""
    policy, folder = sys.argv[1], Path(sys.argv[2])
    divider = Divider(policy)
    (folder / "ready").touch()
    while not (folder / "end").exists():
        if (folder / "divide").exists():
            with Client() as client:
                print(divider.period(client), flush=True)
        time.sleep(PERIOD)
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Domains live while the agent is killed at random moments; ``make agent-churn`` does it longer."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host import lab
from tests.host.cached import CachedFilesystem, cached_filesystem
from tests.host.churn.run import churn
from tests.host.lab import Agent

pytestmark = pytest.mark.life


@pytest.fixture
def cached(module: None) -> Iterator[CachedFilesystem]:
    with cached_filesystem(Path("/dev/ram2"), Path("/dev/ram3"), Path("/run/churn")) as found:
        yield found


def test_churn(agent: Agent, cached: CachedFilesystem, request: pytest.FixtureRequest) -> None:
    options = request.config.option
    report = churn(cached, agent, options.churn_seconds, options.churn_seed)
    assert report["kills"] and report["actions"]["start"]
    path = lab.REPO / "build" / "test" / "churn.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report))

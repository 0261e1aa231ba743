# SPDX-License-Identifier: Apache-2.0
"""The commands ``vcache policy``, with prepared answers of the agent."""

import json
from pathlib import Path
from typing import Any

import pytest

from vcache_agent.cmd import cli, policy_cli

MIB = 1 << 20
CACHE = {"pool": "254:9", "volume": 3, "dirty_bytes": 0, "broken": False}


def tag(device: str, number: int, **fields: Any) -> dict[str, Any]:
    return {"device": device, "tag": number, "name": f"vm{number}", "mode": "writeback",
            "weight": 100, "cache_min_bytes": 0, "cache_max_bytes": 0, "cache_share_bytes": 0,
            "cached_bytes": 0, "cache_lanes": [], "cache_own_bytes": 0, "cache_hot_bytes": 0,
            "stats": {}, **fields}


STATE = {
    "policy": {"name": "static", "set": True},
    "devices": [{"device": "254:3", "cache": CACHE}, {"device": "254:4", "cache": None}],
    "tags": [tag("254:3", 1, cache_min_bytes=MIB, cache_max_bytes=MIB, cache_share_bytes=MIB,
                 cached_bytes=MIB // 2), tag("254:4", 2)]}


@pytest.fixture(name="asked")
def fixture_asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the requests to the agent, which answers with STATE."""
    asked: list[dict[str, Any]] = []

    def ask(_socket: Path, request: dict[str, Any], seconds: float = 5.0) -> dict[str, Any]:
        asked.append(request)
        return STATE

    monkeypatch.setattr(policy_cli, "ask", ask)
    return asked


@pytest.mark.parametrize(("word", "sent"), [
    ("static", "static"), ("weighted", "weighted"), ("configured", None)])
def test_set(asked: list[dict[str, Any]], word: str, sent: str | None) -> None:
    assert cli.main(["policy", "set", word]) == 0
    assert asked == [{"op": "policy-set", "policy": sent}]


def test_an_unknown_policy_is_wrong_usage(
        asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["policy", "set", "best"])
    assert "'static', 'weighted', 'throughput', 'mrc', 'configured'" in capsys.readouterr().err
    assert not asked


def test_show(asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["policy", "show", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["policy"], found["set"]) == ("static", True)
    assert [(item["pool"], item["tag"], item["cached_bytes"]) for item in found["tags"]] == [
        ("254:9", 1, MIB // 2)]
    assert "stats" not in found["tags"][0]
    assert cli.main(["policy", "show"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "policy static, set by an operator"
    assert lines[2].split() == ["POOL", "DEVICE", "TAG", "NAME", "MODE", "WEIGHT", "MIN", "MAX",
                                "SHARE", "HAS", "LANES", "OWN", "HOT"]
    assert lines[3].split()[:6] == ["254:9", "254:3", "1", "vm1", "writeback", "100"]
    assert lines[3].split()[-3:] == ["-", "-", "-"]
    assert len(lines) == 4


def test_show_lanes() -> None:
    found = policy_cli.describe({**STATE, "tags": [tag(
        "254:3", 1, cache_lanes=[1, 3], cache_own_bytes=2 * MIB, cache_hot_bytes=MIB)]})
    line = policy_cli.text(found).splitlines()[3]
    assert line.split()[-5:] == ["1,3", "2.0", "MiB", "1.0", "MiB"]


def test_show_without_caches(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(policy_cli, "ask", lambda *_: {
        **STATE, "policy": {"name": "weighted", "set": False}, "tags": []})
    assert cli.main(["policy", "show"]) == 0
    assert capsys.readouterr().out == "policy weighted, as configured; no tag has a cache\n"

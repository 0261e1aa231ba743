# SPDX-License-Identifier: Apache-2.0
"""nova-vcache-status upgrade check."""

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests_mock
from oslo_upgradecheck.upgradecheck import Code

from nova_vcache import conf as vcache_conf
from nova_vcache.cmd import status
from nova_vcache.placement import names

GOOD = """
[filter_scheduler]
available_filters = nova.scheduler.filters.all_filters
available_filters = nova_vcache.scheduler.filter.VCacheFilter
enabled_filters = ComputeFilter,VCacheFilter
weight_classes = nova.scheduler.weights.all_weighers,nova_vcache.scheduler.weigher.VCacheWeigher
[placement]
auth_type = none
endpoint_override = http://placement.invalid
[vcache]
endpoint_override = http://vcache.invalid
"""


@pytest.fixture
def http() -> Iterator[requests_mock.Mocker]:
    with requests_mock.Mocker() as mocker:
        mocker.get(requests_mock.ANY, status_code=204)
        yield mocker


def results(tmp_path: Path, text: str) -> dict[str, tuple[Code, str]]:
    path = tmp_path / "nova.conf"
    path.write_text(text)
    status.CONF.reset()
    vcache_conf.register(status.CONF)
    status.CONF([], default_config_files=[str(path)])
    checks = status.Checks()
    try:
        found = [(name, check(checks)) for name, check in checks._upgrade_checks]
    finally:
        status.CONF.reset()
    return {name: (result.code, result.details or "") for name, result in found}


def test_all_is_well(tmp_path, http):
    assert {code for code, _ in results(tmp_path, GOOD).values()} == {Code.SUCCESS}


@pytest.mark.parametrize(("old", "new", "name", "code", "text"), [
    ("ComputeFilter,VCacheFilter", "ComputeFilter", "Scheduler Filter", Code.FAILURE,
     "enabled_filters"),
    ("available_filters = nova_vcache.scheduler.filter.VCacheFilter\n", "", "Scheduler Filter",
     Code.FAILURE, "available_filters"),
    (",nova_vcache.scheduler.weigher.VCacheWeigher", "", "Scheduler Weigher", Code.WARNING,
     "weight_classes"),
    ("endpoint_override = http://vcache.invalid", "", "Options", Code.WARNING,
     "stale_policy = pass"),
    ("[vcache]", "[vcache]\nsummary_max_age = 15", "Options", Code.FAILURE, "summary_interval"),
])
def test_what_is_wrong_is_said(tmp_path, http, old, new, name, code, text):
    found = results(tmp_path, GOOD.replace(old, new))
    assert found.pop(name)[0] is code
    assert text in results(tmp_path, GOOD.replace(old, new))[name][1]
    assert {other for other, _ in found.values()} == {Code.SUCCESS}


def test_names_that_placement_lacks(tmp_path, http):
    http.get(f"http://placement.invalid/resource_classes/{names.TAG}", status_code=404)
    code, text = results(tmp_path, GOOD)["Placement Names"]
    assert code is Code.WARNING and names.TAG in text and names.CACHE_MB not in text
    http.get(requests_mock.ANY, status_code=503)
    code, text = results(tmp_path, GOOD)["Placement Names"]
    assert code is Code.FAILURE and "503" in text


def test_a_missing_entry_point(tmp_path, http, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    assert results(tmp_path, GOOD)["Extra-Spec Validators"][0] is Code.FAILURE

# SPDX-License-Identifier: Apache-2.0
"""Which report of a host counts, and how old its data is."""

import dataclasses
import time
from typing import Any

import pytest

from nova_vcache.api.directory import STALE, UP, Directory, Entry
from nova_vcache.rpc.report import HostReport, InstanceReport
from nova_vcache.summary import HostSummary


@pytest.fixture
def directory() -> Directory:
    return Directory(set, stale_after=60.0)


def report(age_s: float = 1.0, late: float = 0.0, **fields: Any) -> HostReport:
    """Return a report that was sent some seconds ago."""
    return dataclasses.replace(HostReport(
        HostSummary("n1", age_s=age_s), boot_id="a", sequence=1, sent_at=time.time() - late),
        **fields)


def taken(directory: Directory, *reports: HostReport) -> Entry:
    for item in reports:
        directory.took(item)
    entry = directory.host("n1")
    assert entry is not None
    return entry


def test_a_report_that_waited_in_the_bus_is_as_old_as_its_data(directory):
    entry = taken(directory, report(late=59.5, age_s=2.0))
    assert entry.age_s is not None and 61.5 <= entry.age_s < 70
    assert entry.state == STALE and entry.summary.age_s == entry.age_s
    assert not entry.problem, "the report itself is not that late"
    entry = taken(directory, report(late=61, sequence=2))
    assert "arrived 61 s after it was sent; the message bus" in entry.problem
    entry = taken(directory, report(sequence=3))
    assert (entry.state, entry.problem) == (UP, "")


def test_a_report_of_an_older_host_counts_from_when_it_came(directory):
    entry = taken(directory, report(boot_id="", sequence=0, sent_at=None))
    assert entry.state == UP and entry.since < 30


@pytest.mark.parametrize(("earlier", "later"), [
    ({"sequence": 1}, {"sequence": 2}),
    # The sequence decides, as a clock can be set back.
    ({"sequence": 1, "late": -3}, {"sequence": 2}),
    ({"boot_id": "old", "sequence": 99, "late": 5}, {"boot_id": "new", "sequence": 1})])
def test_an_older_report_does_not_replace_a_newer_one(directory, earlier, later):
    old, new = report(policy="old", **earlier), report(policy="new", **later)
    for order in ((old, new), (new, old)):
        entry = taken(Directory(set, 60.0), *order)
        assert entry.report is not None and entry.report.policy == "new"


def test_a_clock_that_is_ahead_is_told(directory):
    entry = taken(directory, report(late=-30))
    assert entry.state == UP and entry.since < 20
    assert "clock of the host is 30 s ahead of the clock of vcache-api" in entry.problem
    assert taken(directory, report(late=-30, sequence=2, problem="why")).problem == "why"


def test_the_fields_survive_the_message():
    sent = report()
    assert HostReport.parse(sent.to_json()) == sent
    older = sent.to_json()
    for name in ("boot_id", "sequence", "sent_at"):
        del older[name]
    assert HostReport.parse(older).sent_at is None


def details(*uuids: str, **fields: Any) -> HostReport:
    return report(instances=tuple(InstanceReport(uuid, project="p") for uuid in uuids), **fields)


def test_a_small_report_keeps_the_details(directory):
    directory.took(details("u", late=20))
    assert directory.beat(report(sequence=2, base=1, draining=True).without_details()) is False
    entry = directory.host("n1")
    assert entry.report.draining and [item.uuid for item in entry.report.instances] == ["u"]
    assert entry.since < 10 < 20 <= entry.details_since
    assert directory.instance("u")[0].report.draining
    directory.took(details(sequence=3))
    assert directory.instance("u") is None


@pytest.mark.parametrize("known", [None, {"sequence": 1}, {"boot_id": "old", "sequence": 9}])
def test_missing_details_are_requested_once(directory, known):
    if known:
        directory.took(details("u", late=1, **known))
    beats = [report(sequence=number, base=2).without_details() for number in (3, 4)]
    assert [directory.beat(item) for item in beats] == [True, False]
    assert directory.host("n1").state == UP
    # They are sent before the small ones, and arrive later.
    directory.took(details("v", sequence=2, policy="old"))
    entry = directory.host("n1")
    assert [item.uuid for item in entry.report.instances] == ["v"]
    assert (entry.report.sequence, entry.report.policy) == (4, "")
    assert directory.instance("u") is None and directory.instance("v") is not None
    assert directory.beat(report(sequence=5, base=2).without_details()) is False


def test_a_small_report_that_comes_late_counts_for_nothing(directory):
    directory.took(details("u", sequence=5, policy="new"))
    assert directory.beat(report(sequence=4, base=9).without_details()) is False
    assert directory.host("n1").report.policy == "new"


def test_a_new_process_waits_for_details():
    directory = Directory(lambda: {"n1"}, 60.0)
    directory.refresh()
    directory.beat(report().without_details())
    assert not directory.wait(0.01)
    directory.took(details())
    assert directory.wait(0.01)

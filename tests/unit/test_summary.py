# SPDX-License-Identifier: Apache-2.0
"""The document with the summaries of all hosts."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_vcache.extra_specs import Mode
from nova_vcache.summary import BadSummary, HostSummary, Summary

AMOUNT = st.integers(0, 2**40)
FIGURE = st.none() | st.floats(0, 1e12) | AMOUNT
KINDS = {str: st.text(), bool: st.booleans(), int: AMOUNT, float | None: FIGURE,
         frozenset[Mode]: st.frozensets(st.sampled_from([
             Mode.WRITEBACK, Mode.WRITETHROUGH, Mode.FLUSH_ONLY]))}
HOSTS = st.builds(HostSummary, **{
    field.name: KINDS[field.type] for field in dataclasses.fields(HostSummary)})  # type: ignore[index]


@given(st.dictionaries(st.text(), HOSTS, max_size=3))
def test_what_is_written_is_read_again(hosts):
    hosts = {node: dataclasses.replace(host, node=node) for node, host in hosts.items()}
    text = json.dumps(Summary(hosts).to_json())
    assert dict(Summary.parse(json.loads(text)).hosts) == hosts


def test_what_is_absent_is_not_known_and_what_is_new_is_ignored():
    (host,) = Summary.parse({"hosts": [
        {"node": "a", "modes": ["writeback", "holographic", []], "colour": "red"}], "next": 5},
    ).hosts.values()
    assert host == HostSummary("a", modes=frozenset({Mode.WRITEBACK}))


@pytest.mark.parametrize("document", [
    None, [], {}, {"hosts": {}}, {"hosts": [5]}, {"hosts": [{}]}, {"hosts": [{"node": 5}]}])
def test_what_is_no_summary_is_refused(document):
    with pytest.raises(BadSummary, match="hosts"):
        Summary.parse(document)


@pytest.mark.parametrize(("name", "value"), [
    ("tags_free", -1), ("tags_free", True), ("tags_free", 1.5), ("tags_free", None),
    ("flush_isolation", 1), ("modes", "writeback"), ("modes", None), ("flush_p99_ms", "1"),
    ("flush_p99_ms", float("nan")), ("iops_free", float("inf")), ("age_s", -0.5)])
def test_a_wrong_field_is_named_with_its_host(name, value):
    with pytest.raises(BadSummary, match=f"'n7': {name}"):
        Summary.parse({"hosts": [{"node": "n7", name: value}]})

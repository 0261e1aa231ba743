# SPDX-License-Identifier: Apache-2.0
"""The schema of the extra specs: every key, every limit, arbitrary text."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_vcache import extra_specs
from nova_vcache.extra_specs import (
    ExtraSpecs,
    InvalidExtraSpecs,
    Isolation,
    Kind,
    Mode,
    check_override,
    parse,
)

RANGED = [key for key in extra_specs.KEYS if key.kind in (Kind.INTEGER, Kind.NUMBER)]


def problem_of(specs: dict[str, str]) -> extra_specs.Problem:
    with pytest.raises(InvalidExtraSpecs) as caught:
        parse(specs)
    assert len(caught.value.problems) == 1
    return caught.value.problems[0]


def test_no_keys_are_the_defaults():
    assert parse({}) == ExtraSpecs()
    assert parse({"hw:cpu_policy": "dedicated", "resources:CUSTOM_VCACHE_MB": "x"}) == ExtraSpecs()


def test_the_table_and_the_class_agree():
    fields = {field.name: field.default for field in dataclasses.fields(ExtraSpecs)}
    assert fields == {key.name: key.default for key in extra_specs.KEYS}
    assert all(key.doc.endswith(".") and key.allowed for key in extra_specs.KEYS)


def test_every_key_is_parsed():
    assert parse({
        "vcache:mode": "flush-only", "vcache:weight": "400", "vcache:min_mb": "1",
        "vcache:max_mb": "2", "vcache:isolation": "dedicated", "vcache:slo_flush_ms": "0.5",
        "vcache:slo_read_us": "200", "vcache:slo_iops": "1000", "vcache:persist": "yes",
        "vcache:vssd_max_mb": "9", "vcache:vssd_mb": "8", "vcache:vssd_persist": "1",
        "vcache:required": "True",
    }) == ExtraSpecs(Mode.FLUSH_ONLY, 400, 1, 2, Isolation.DEDICATED, 0.5, 200.0, 1000.0,
                     True, 9, 8, True, True)


@pytest.mark.parametrize("key", RANGED, ids=lambda key: key.name)
def test_limits_are_allowed_and_beyond_is_not(key):
    for limit in (key.minimum, key.maximum):
        assert getattr(parse({key.key: str(limit)}), key.name) == limit
    step = 1 if key.kind is Kind.INTEGER else 0.0001
    for beyond in (key.minimum - step, key.maximum + step):
        problem = problem_of({key.key: f"{beyond:.4f}" if step < 1 else str(beyond)})
        assert problem.key == key.key
        assert str(key.minimum) in problem.allowed and str(key.maximum) in problem.allowed


@pytest.mark.parametrize("key", RANGED, ids=lambda key: key.name)
@pytest.mark.parametrize("text", [
    "", " ", "x", "1x", "0x10", "1e2", "+5", "5 ", " 5", "1_0", "५", "nan", "inf", "-", ".",
    "9" * 5000])
def test_only_plain_decimals_are_numbers(key, text):
    assert problem_of({key.key: text}).key == key.key


def test_a_problem_names_key_value_and_what_is_allowed():
    message = str(problem_of({"vcache:weight": "1001"}))
    assert "vcache:weight" in message and "'1001'" in message and "1 to 1000" in message
    message = str(problem_of({"vcache:mode": "fast"}))
    assert "'fast'" in message and "flush-only" in message and "writeback" in message


def test_unknown_keys_are_errors_only_for_who_writes_a_flavor():
    newer = {"vcache:mode": "writeback", "vcache:colour": "red", "vcache:required": "true"}
    assert parse(newer) == ExtraSpecs(Mode.WRITEBACK, required=True)
    assert extra_specs.warning(newer) == (
        "extra specs that this release does not know are ignored: vcache:colour")
    assert extra_specs.warning({"vcache:mode": "none", "hw:x": "y"}) == ""
    with pytest.raises(InvalidExtraSpecs) as caught:
        extra_specs.check(newer | {"vcache:weight": "0"})
    assert [problem.key for problem in caught.value.problems] == ["vcache:weight", "vcache:colour"]
    assert "the keys are vcache:mode, vcache:weight" in str(caught.value)
    with pytest.raises(InvalidExtraSpecs, match="vcache:colour"):
        extra_specs.check(newer)


def test_min_above_max_is_an_error():
    assert parse({"vcache:min_mb": "7", "vcache:max_mb": "7"}).max_mb == 7
    assert "vcache:max_mb" in str(problem_of({"vcache:min_mb": "8", "vcache:max_mb": "7"}))


def test_all_problems_are_reported_at_once():
    with pytest.raises(InvalidExtraSpecs) as caught:
        parse({"vcache:mode": "a", "vcache:weight": "0", "vcache:min_mb": ""})
    assert {problem.key for problem in caught.value.problems} == {
        "vcache:mode", "vcache:weight", "vcache:min_mb"}


def test_a_hostile_value_does_not_flood_the_message():
    assert len(str(problem_of({"vcache:mode": "A" * 10**6}))) < 300


@pytest.mark.parametrize(("text", "value"), [
    ("1", True), ("TRUE", True), (" on ", True), ("0", False), ("No", False), ("f", False)])
def test_booleans_are_those_of_nova(text, value):
    assert parse({"vcache:required": text}).required is value
    assert extra_specs.is_required({"vcache:required": text}) is value


def test_required_is_found_beside_a_bad_key():
    assert extra_specs.is_required({"vcache:required": "true", "vcache:mode": "bad"})
    assert not extra_specs.is_required({"vcache:required": "maybe"})


NUMBERS = {
    key.name: st.none() | (
        st.integers(int(key.minimum), int(key.maximum)) if key.kind is Kind.INTEGER
        else st.floats(key.minimum, key.maximum).map(lambda number: max(0.001, round(number, 6))))
    for key in RANGED}


@st.composite
def valid_specs(draw):
    values = {name: draw(strategy) for name, strategy in NUMBERS.items()}
    values = {name: value for name, value in values.items() if value is not None}
    for least, most in ("min_mb", "max_mb"), ("vssd_mb", "vssd_max_mb"):
        if values.get(most) is not None:
            values[least] = min(values.get(least, 0), values[most])
    return ExtraSpecs(
        mode=draw(st.sampled_from(Mode)), isolation=draw(st.sampled_from(Isolation)),
        vssd_persist=draw(st.booleans()), persist=draw(st.booleans()),
        required=draw(st.booleans()), **values)


@given(valid_specs())
def test_what_is_written_is_read_again(specs):
    assert parse(specs.to_extra_specs()) == specs


@given(st.dictionaries(
    st.sampled_from([key.key for key in extra_specs.KEYS])
    | st.text().map("vcache:".__add__) | st.text(),
    st.text() | st.integers().map(str) | st.floats().map(str)))
def test_any_text_is_parsed_or_refused_with_its_keys(specs):
    named: set[str] | None = None
    try:
        parsed = parse(specs)
    except InvalidExtraSpecs as error:
        named = {problem.key for problem in error.problems}
    else:
        assert 1 <= parsed.weight <= 1000
        assert parsed.max_mb is None or parsed.min_mb <= parsed.max_mb
    assert named is None or (named and named <= set(specs))


@pytest.mark.parametrize(("values", "words"), [
    ({"weight": 0}, "weight: '0' is not allowed, must be an integer from 1 to 1000, or null"),
    ({"weight": 1.5}, "an integer"), ({"weight": True}, "an integer"), ({"weight": "5"}, "integer"),
    ({"slo_iops": 0}, "a number from 1"), ({"slo_flush_ms": float("nan")}, "a number"),
    ({"mode": "none"}, "absent (the keys are weight, slo_flush_ms, slo_read_us, slo_iops)"),
])
def test_an_override_that_cannot_be(values, words):
    with pytest.raises(InvalidExtraSpecs) as caught:
        check_override(values)
    assert words in str(caught.value)


def test_an_override_that_can_be():
    check_override({"weight": 1000, "slo_flush_ms": 0.5, "slo_read_us": 3, "slo_iops": None})

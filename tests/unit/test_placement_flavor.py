# SPDX-License-Identifier: Apache-2.0
"""The Placement resources of flavors, and contradictions in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_vcache.extra_specs import ExtraSpecs, InvalidExtraSpecs, Isolation, Mode
from nova_vcache.placement import names
from nova_vcache.placement.flavor import disagreements, is_hard, placement_keys

TAG = {"resources:CUSTOM_VCACHE_VTAG": "1"}
FLUSH = {"trait:CUSTOM_VCACHE_FLUSH_ISOLATION": "required"}
NODE = "4f8a4a12-1f1b-4c56-9c56-4c1c77a41c11"

SPECS = st.builds(
    ExtraSpecs, mode=st.sampled_from(Mode), min_mb=st.integers(0, 9000),
    required=st.booleans(), persist=st.booleans(), isolation=st.sampled_from(Isolation),
    vssd_max_mb=st.none() | st.just(9000), vssd_mb=st.integers(0, 9000))


@pytest.mark.parametrize(("specs", "keys"), [
    (ExtraSpecs(), {}),
    (ExtraSpecs(min_mb=5, required=True), {}),
    (ExtraSpecs(Mode.FLUSH_ONLY), {}),
    (ExtraSpecs(Mode.FLUSH_ONLY, min_mb=5), {}),
    (ExtraSpecs(Mode.FLUSH_ONLY, min_mb=5, required=True), TAG | FLUSH),
    (ExtraSpecs(Mode.WRITEBACK), {}),
    (ExtraSpecs(Mode.WRITEBACK, min_mb=5), TAG | {"resources:CUSTOM_VCACHE_MB": "5"}),
    (ExtraSpecs(Mode.WRITEBACK, required=True),
     TAG | FLUSH | {"trait:CUSTOM_VCACHE_WRITEBACK": "required"}),
    (ExtraSpecs(vssd_max_mb=9, vssd_mb=5, required=True), {"resources:CUSTOM_VCACHE_MB": "5"}),
    (ExtraSpecs(vssd_max_mb=9), {}),
    (ExtraSpecs(vssd_mb=5), {}),
    (ExtraSpecs(Mode.FLUSH_ONLY, min_mb=3, vssd_max_mb=9, vssd_mb=5),
     TAG | {"resources:CUSTOM_VCACHE_MB": "5"}),
    (ExtraSpecs(Mode.WRITEBACK, min_mb=3, vssd_max_mb=9, vssd_mb=5),
     TAG | {"resources:CUSTOM_VCACHE_MB": "8"}),
    (ExtraSpecs(Mode.WRITETHROUGH, min_mb=9, required=True),
     TAG | FLUSH | {"trait:CUSTOM_VCACHE_WRITETHROUGH": "required",
                    "resources:CUSTOM_VCACHE_MB": "9"}),
])
def test_what_a_flavor_asks_for(specs, keys):
    assert placement_keys(specs) == keys


@given(SPECS)
def test_a_flavor_with_its_keys_agrees(specs):
    assert disagreements(specs.to_extra_specs() | placement_keys(specs)) == []


@given(SPECS)
def test_traits_come_only_with_required_and_never_without_a_resource(specs):
    keys = placement_keys(specs)
    traits = [key for key in keys if key.startswith("trait:")]
    assert not traits or specs.required
    assert bool(keys) == is_hard(specs)
    assert (f"resources:{names.TAG}" in keys) == (is_hard(specs) and specs.mode is not Mode.NONE)


@given(SPECS, SPECS)
def test_what_is_said_to_be_wrong_is_what_makes_it_right(specs, other):
    flavor = specs.to_extra_specs() | placement_keys(other) | {"hw:cpu_policy": "shared"}
    for item in disagreements(flavor):
        assert flavor.get(item.key) == item.has != item.should
        if item.should is None:
            del flavor[item.key]
        else:
            flavor[item.key] = item.should
    assert disagreements(flavor) == []
    assert flavor["hw:cpu_policy"] == "shared"


def test_a_disagreement_says_what_is_wrong_and_what_it_should_be():
    (wrong,) = disagreements({
        "vcache:mode": "writeback", "vcache:min_mb": "512",
        "resources:CUSTOM_VCACHE_MB": "256", **TAG})
    assert (wrong.key, wrong.has, wrong.should) == ("resources:CUSTOM_VCACHE_MB", "256", "512")
    assert "is '256', should be '512'" in str(wrong) and "min_mb" in str(wrong)


@pytest.mark.parametrize(("flavor", "text"), [
    ({"resources:CUSTOM_VCACHE_MB": "5"}, "mode is none"),
    ({"vcache:vssd_max_mb": "9", "vcache:vssd_mb": "5", "resources:CUSTOM_VCACHE_MB": "5", **TAG},
     "mode is none"),
    ({"vcache:vssd_max_mb": "9", "vcache:vssd_mb": "5", "resources:CUSTOM_VCACHE_MB": "5",
      "resources1:CUSTOM_VCACHE_MB": "5"}, "another provider"),
    ({"vcache:mode": "flush-only", "vcache:required": "true", **TAG, **FLUSH,
      "resources:CUSTOM_VCACHE_MB": "5"}, "uses no cache"),
    ({"vcache:mode": "writeback", **TAG}, "any host is possible"),
    ({"vcache:mode": "writeback", "trait:CUSTOM_VCACHE_ELASTIC": "required"}, "excludes some"),
    ({"vcache:mode": "writeback", "resources1:CUSTOM_VCACHE_MB": "5"}, "another provider"),
    ({"vcache:mode": "writeback", "resources_C:CUSTOM_VCACHE_MB": "5"}, "another provider"),
    ({"vcache:mode": "writeback", "vcache:min_mb": "1", **TAG,
      "resources:CUSTOM_VCACHE_MB": "1", "trait:CUSTOM_VCACHE_ELASTIC": "forbidden"},
     "excludes some"),
    ({"vcache:mode": "flush-only", "vcache:required": "1", **TAG, **FLUSH,
      "trait:CUSTOM_VCACHE_WRITEBACK": "required"}, "does not need it"),
])
def test_what_should_be_absent(flavor, text):
    (wrong,) = disagreements(flavor)
    assert wrong.should is None and "should be absent" in str(wrong) and text in str(wrong)


def test_an_operator_may_require_more_of_a_hard_flavor():
    specs = ExtraSpecs(Mode.WRITEBACK, required=True)
    flavor = specs.to_extra_specs() | placement_keys(specs)
    assert disagreements(flavor | {"trait:CUSTOM_VCACHE_TAGGED_SSD": "required"}) == []


def test_keys_of_others_are_none_of_our_business():
    assert disagreements({"resources:CUSTOM_VCACHED": "1", "trait:HW_CPU_X86_AVX": "required",
                          "xresources:CUSTOM_VCACHE_MB": "5"}) == []


def test_specs_that_do_not_parse_come_first():
    with pytest.raises(InvalidExtraSpecs, match="vcache:max_mb"):
        disagreements({"vcache:min_mb": "5", "vcache:max_mb": "4"})
    with pytest.raises(InvalidExtraSpecs, match="at most vcache:vssd_max_mb, which is 4"):
        disagreements({"vcache:vssd_mb": "5", "vcache:vssd_max_mb": "4"})


def test_a_provider_is_the_same_whenever_it_is_made():
    assert names.provider_uuid(NODE) == "e3c04d4b-e3a5-5946-a7e9-49e7096ce4ce"
    assert names.provider_uuid(NODE.upper()) == names.provider_uuid(NODE)
    assert names.provider_name("n1") == "n1_vcache"
    assert len(names.provider_name("n" * 255)) == 200

# SPDX-License-Identifier: Apache-2.0
"""The commands openstack vcache flavor: vcache:* and Placement's keys in one step."""

from collections.abc import Iterator

import pytest
import requests_mock

from nova_vcache.extra_specs import parse
from nova_vcache.placement import plan
from nova_vcache.placement.flavor import disagreements, placement_keys
from tests.openstack.clouds import Cloud

HARD = {"vcache:mode": "writeback", "vcache:min_mb": "1000", "vcache:required": "true"}
GOLD = {**HARD, **placement_keys(parse(HARD))}
TAG, MB = "resources:CUSTOM_VCACHE_VTAG", "resources:CUSTOM_VCACHE_MB"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with requests_mock.Mocker() as mocker:
        made = Cloud(mocker)
        made.flavors = {"1": ("plain", {"hw:cpu_policy": "shared"}), "2": ("gold", dict(GOLD))}
        yield made


class TestPlan:
    @pytest.mark.parametrize("changes", [
        HARD, {"vcache:mode": "none"}, {"vcache:required": None}, {"vcache:min_mb": "0"},
        {"vcache:mode": "flush-only", "vcache:min_mb": None}, {}])
    @pytest.mark.parametrize("before", [
        {}, GOLD, HARD, {**GOLD, "trait1:CUSTOM_VCACHE_ELASTIC": "required", MB: "5"}])
    def test_nothing_disagrees_afterwards_and_the_change_is_made(self, before, changes):
        made = plan.make(before, changes)
        after = {key: value for key, value in (before | made.values).items()
                 if key not in made.gone}
        assert disagreements(after) == []
        assert all(after.get(key) == value for key, value in changes.items())
        assert plan.make(after, changes) == plan.Plan({}, ())

    def test_what_an_operator_added_stays(self):
        added = {**GOLD, "trait:CUSTOM_VCACHE_TAGGED_SSD": "required"}
        assert plan.make(added, {"vcache:weight": "5"}) == plan.Plan({"vcache:weight": "5"}, ())


class TestSet:
    def test_in_one_request(self, cloud):
        cloud.good("flavor", "set", "plain", "--weight", "200", "--mode", "writeback",
                   "--min-mb", "1000", "--required")
        assert cloud.sent == [("POST", "os-extra_specs", {**GOLD, "vcache:weight": "200"})]
        assert cloud.flavors["1"][1]["hw:cpu_policy"] == "shared"

    def test_what_is_no_longer_needed_goes(self, cloud):
        cloud.good("flavor", "set", "2", "--no-required", "--min-mb", "0")
        assert cloud.flavors["2"][1] == {
            "vcache:mode": "writeback", "vcache:min_mb": "0", "vcache:required": "false"}
        assert cloud.sent[0][0] == "POST"
        assert {item[0] for item in cloud.sent[1:]} == {"DELETE"}

    def test_without_options_it_repairs(self, cloud):
        del cloud.flavors["2"][1][TAG]
        cloud.flavors["2"][1][MB] = "7"
        cloud.good("flavor", "set", "gold")
        assert cloud.flavors["2"][1] == GOLD
        assert cloud.sent == [("POST", "os-extra_specs", {TAG: "1", MB: "1000"})]

    def test_nothing_to_do_asks_for_nothing(self, cloud):
        cloud.good("flavor", "set", "gold", "--mode", "writeback")
        assert cloud.sent == []

    @pytest.mark.parametrize(("words", "said"), [
        (["--weight", "0"], "--weight: '0' is not allowed, must be an integer from 1 to 1000"),
        (["--slo-read-us", "x"], "must be a number from 0.001 to 60000000 us"),
        (["--mode", "fast"], "writeback"), (["--persist", "--no-persist"], "not allowed with")])
    def test_a_bad_option(self, cloud, words, said):
        assert said in cloud.bad("flavor", "set", "gold", *words, status=2)
        assert cloud.sent == []

    def test_what_contradicts_another_key(self, cloud):
        assert cloud.bad("flavor", "set", "gold", "--max-mb", "10") == (
            "Flavor 'gold' is unchanged: vcache:min_mb: '1000' is not allowed, must be at most "
            "vcache:max_mb, which is 10.")
        assert cloud.sent == []

    def test_what_is_unknown_already(self, cloud):
        cloud.flavors["2"][1]["vcache:wieght"] = "5"
        assert ("'openstack flavor unset --property vcache:wieght gold' deletes"
                in cloud.bad("flavor", "set", "gold", "--weight", "5"))
        cloud.good("flavor", "unset", "gold", "--all")
        assert cloud.flavors["2"][1] == {}

    def test_no_such_flavor(self, cloud):
        assert "No flavor 'glod'. 'openstack flavor list --all'" in cloud.bad(
            "flavor", "set", "glod", "--weight", "5")

    def test_a_delete_that_fails_says_what_is_left(self, cloud):
        cloud.refuse_delete = "trait:CUSTOM_VCACHE_FLUSH_ISOLATION"
        said = cloud.bad("flavor", "set", "gold", "--no-required")
        assert ("Flavor 'gold': could not delete "
                "trait:CUSTOM_VCACHE_FLUSH_ISOLATION, trait:CUSTOM_VCACHE_WRITEBACK: " in said)
        assert cloud.flavors["2"][1]["vcache:required"] == "false"


class TestUnset:
    def test_one(self, cloud):
        cloud.good("flavor", "unset", "gold", "--required", "--min-mb")
        assert cloud.flavors["2"][1] == {"vcache:mode": "writeback"}

    def test_all(self, cloud):
        cloud.flavors["2"][1]["hw:x"] = "y"
        cloud.good("flavor", "unset", "gold", "--all")
        assert cloud.flavors["2"][1] == {"hw:x": "y"}

    def test_what_it_takes(self, cloud):
        for words in ([], ["--all", "--mode"]):
            assert "Use either --all, or one or more of --mode" in cloud.bad(
                "flavor", "unset", "gold", *words)


class TestShow:
    def test_what_holds(self, cloud):
        found = cloud.json("flavor", "show", "gold")
        assert (found["id"], found["name"], found["weight"], found["min_mb"]) == (
            "2", "gold", 100, 1000)
        assert found["placement"] == placement_keys(parse(HARD))
        assert found["problems"] == []

    def test_what_is_wrong(self, cloud):
        cloud.flavors["2"][1][MB] = "7"
        (problem,) = cloud.json("flavor", "show", "gold")["problems"]
        assert problem.startswith(f"{MB} is '7', should be '1000'")
        cloud.flavors["2"][1]["vcache:weight"] = "0"
        found = cloud.json("flavor", "show", "gold")
        assert found["weight"] == "0"
        assert found["problems"] == [
            "vcache:weight: '0' is not allowed, must be an integer from 1 to 1000"]


class TestCheck:
    def test_all_is_well(self, cloud):
        assert cloud.json("flavor", "check") == []

    def test_what_disagrees_and_what_cannot_be_used(self, cloud):
        import json

        del cloud.flavors["2"][1][TAG]
        cloud.flavors["3"] = ("bad", {"vcache:mode": "fast"})
        status, out, _ = cloud.run("flavor", "check", "-f", "json")
        assert status == 1
        assert json.loads(out) == [
            {"Flavor": "gold", "ID": "2", "Key": TAG, "Has": None, "Should Be": "1",
             "Why": "an instance with vcache:min_mb or vcache:required needs one tag"},
            {"Flavor": "bad", "ID": "3", "Key": "vcache:mode", "Has": "fast",
             "Should Be": "one of writeback, writethrough, flush-only, none",
             "Why": "the value is invalid"}]
        assert cloud.run("flavor", "check", "plain")[0] == 0
        assert cloud.run("flavor", "check", "plain", "gold")[0] == 1
        assert "No flavor 'glod'" in cloud.bad("flavor", "check", "glod")

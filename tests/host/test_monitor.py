# SPDX-License-Identifier: Apache-2.0
"""Metrics, samples, events and reasons of a domain, with the real kernel."""

import json
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.host.lab import PATIENCE, Agent, Vm, cli, eventually, image, number_of, tags
from tests.host.test_cache import two_volumes
from vcache_agent.model import DeviceNumber, Tag
from vcache_agent.netlink.client import Client
from vcache_agent.observe.recording import read_samples

MakeVm = Callable[..., Vm]
METRICS = "http://127.0.0.1:9587/metrics"


def tag_of(vm: Vm, device: DeviceNumber) -> Tag:
    return eventually(lambda: next(
        (tag for tag in tags(device).values()
         if tag.name == f"{vm.uuid}:sda" and tag.cgroups and tag.extents_count), None),
        f"a tag of {vm.name}")


def metrics(label: str, value: object) -> dict[str, float]:
    """Return the metrics with a label by name, without the buckets."""
    with urllib.request.urlopen(METRICS, timeout=PATIENCE) as answer:  # noqa: S310
        text = answer.read().decode()
    return {one.name: one.value for family in text_string_to_metric_families(text)
            for one in family.samples
            if one.labels.get(label) == str(value) and "le" not in one.labels}


def test_the_fast_decoder_reads_what_the_kernel_sends(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    one = vm("decoded", [image(filesystem / "decoded", 4)], {"mode": "flush-only"})
    one.start()
    tag_of(one, device)
    one.io("write 0 64k")
    one.io("flush")

    def same() -> bool:
        # The host may write between the dumps.
        with Client() as client:
            fast = client.tags()
            slow = [client.tag(tag.device, tag.id) for tag in fast]
            return fast == slow and client.tags() == fast

    eventually(same, "both decoders return the same")


def test_a_domain_is_observed(agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber,
                              tmp_path: Path) -> None:
    one = vm("observed", [image(filesystem / "observed", 4)],
             {"mode": "flush-only", "weight": "250"})
    one.start()
    number = tag_of(one, device).id
    one.io("write 0 64k")
    one.io("flush")
    flushes = tags(device)[number].stats.flushes
    assert flushes
    count = "vcache_tag_flush_duration_seconds_count"
    eventually(lambda: metrics("tag", number).get(count) == flushes, "the flushes in the metrics")
    found = metrics("tag", number)
    assert found["vcache_tag_weight"] == 250
    assert found["vcache_tag_write_bytes_total"] >= 65536
    assert found["vcache_tag_flush_duration_seconds_sum"] > 0

    kinds = [event["kind"] for line in cli("events", "--json").splitlines()
             if (event := json.loads(line))["disk"] == f"{one.uuid}:sda"]
    assert "tag-set" in kinds
    assert "disk" in kinds
    why = json.loads(cli("why", str(number), "--json"))
    assert {"what": "weight", "value": 250,
            "because": ["flavor of observed: vcache:weight=250"]} in why["decisions"]
    rows = json.loads(cli("top", "--once", "--json", "--interval", "1"))["tags"]
    assert [row["domain"] for row in rows if row["tag"] == number] == ["observed"]

    cli("record", str(tmp_path / "recording"), "--seconds", "2")
    first, *_ = read_samples(tmp_path / "recording")
    assert first.by_key[device, number].stats.flushes == flushes

    one.destroy()
    eventually(lambda: any(
        json.loads(line)["kind"] == "tag-removed" and json.loads(line)["tag"] == number
        for line in cli("events", "--json").splitlines()), "the removal of the tag is an event")
    eventually(lambda: not metrics("tag", number), "the tag has no metrics")


def test_operators_settings_are_reasons_and_events(
        agent: Agent, vm: MakeVm, filesystem: Path, device: DeviceNumber) -> None:
    one = vm("reasons", [image(filesystem / "reasons", 4)], {"mode": "flush-only"})
    one.start()
    number = tag_of(one, device).id
    cli("tag", "set", str(number), "--weight", "700")
    why = json.loads(cli("why", str(number), "--json"))
    weight = next(item for item in why["decisions"] if item["what"] == "weight")
    assert weight["value"] == 700
    assert weight["because"][-1] == "vcache tag set --weight 700"
    assert f'tag-set: {{"tag": {number}, "weight": 700}}' in cli("events")


def test_a_disk_with_a_cache_and_its_pool(agent: Agent, vm: MakeVm) -> None:
    with two_volumes() as (volume, _):
        one = vm("pooled", [volume], {"mode": "writeback", "min_mb": "16"})
        one.start()
        share = eventually(lambda: tags(number_of(volume))[4001].cache_min_bytes, "a share")
        assert share == 16 << 20
        size = eventually(lambda: metrics("pool", "lab").get("vcache_pool_size_bytes"),
                          "metrics of the pool")
        why = json.loads(cli("why", "4001", "--json"))
        assert why["pool_bytes"] == size
        found = next(item for item in why["decisions"] if item["what"] == "share")
        assert found["value"]["min_bytes"] == share
        assert found["because"][0] == "flavor of pooled: vcache:min_mb=16"
        one.io("write 0 1M")
        one.io("flush")
        eventually(lambda: metrics("tag", 4001).get("vcache_tag_cached_bytes", 0) >= 1 << 20,
                   "cached data in the metrics")
        one.destroy()


def test_promtool_accepts_the_metrics_of_the_real_kernel(
        agent: Agent, device: DeviceNumber) -> None:
    with urllib.request.urlopen(METRICS, timeout=PATIENCE) as answer:  # noqa: S310
        text = answer.read()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                          check=False, timeout=PATIENCE)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")

# SPDX-License-Identifier: Apache-2.0
"""The demo's report: figures computed from single measurements."""

import base64
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.demo import aims, findings, plot, report, slow_report, weights_report
from bench.demo.settings import INTERVALS, NEVER, SLOW_INTERVALS, Settings, schedule
from bench.demo.vm import Instance
from tests.box.guest.image import Guest
from tests.unit.demo_weights import weights_found


def _latency(mean: int, count: int = 10) -> dict[str, Any]:
    if not count:
        return {"N": 0}
    return {"N": count, "min": mean // 2, "max": mean * 3, "mean": mean,
            "percentile": {"50.000000": mean, "99.000000": mean * 2}}


def _vm(iops: float, flush: int | None) -> dict[str, Any]:
    return {"write": {"iops": iops, "clat_ns": _latency(300_000)},
            "sync": {"lat_ns": _latency(flush or 0, 10 if flush else 0)}}


def _runs(rounds: int, loss: float, flush_ms: float,
          intervals: tuple[int, ...] = INTERVALS) -> list[dict[str, Any]]:
    """The machine gets slower from run to run; the loss stays what it is."""
    runs = []
    for number in range(rounds):
        for place, interval in enumerate(schedule(number, intervals)):
            speed = 1000.0 - 20 * number - 2 * place
            share = 1 - loss / 100 if interval else 1
            runs.append({
                "round": number, "interval": interval, "quiet": _vm(speed * share, None),
                "syncer": _vm(500, int(flush_ms * 1e6) if interval else None)})
    return runs


def _slow_disk_found() -> dict[str, Any]:
    """What the part on the slow disk measures; its lines are those of a real run."""
    tags = [{"role": role, "id": number, "name": f"u{number}:vda", "weight": 200,
             "mode": "writeback", "cgroup_paths": [f"machine/qemu-{number}-y"],
             "extents_count": 2, "limit_bytes": 2**20}
            for number, role in enumerate(("quiet", "syncer"), 1)]
    return {
        "slow": {"runs": _runs(2, 10, 1, SLOW_INTERVALS)},
        "cached": {
            "runs": _runs(2, -5, 8, SLOW_INTERVALS), "tags": tags,
            "table": "0 524288 vcache writeback 254:2 filesystem 3 pool 254:1 1",
            "status": "0 524288 vcache writeback filesystem fua 3160 3 0 100 6 3272 8 58827 "
                      "1 200 2066 6552 0 0 2 200 1088 6552 101 2320 "
                      "cache 1 dirty 8664 23740 0 0",
            "pool_table": "0 524288 vcache-pool 252:1",
            "pool_status": "0 524288 vcache-pool ok 2048 254 215 36 1 1 1 0 16.56 0",
            "detach_seconds": 27.6},
    }


def _found(bare_loss: float = 60, vcache_loss: float = 2,
           flush: tuple[float, float] = (20, 5)) -> dict[str, Any]:
    tag = {"role": "quiet", "id": 1, "name": "u/vda", "weight": 100,
           "mode": "flush-only", "cgroup_paths": ["machine/qemu-1-x"], "extents_count": 3,
           "limit_bytes": 2**20}
    own = {name: {"mean": 100.0, "p50": 90.0, "p99": 200.0, "count": 5, "device_flushes": 0}
           for name in ("write_us", "fua_write_us", "flush_us")}
    device = {"made_of": "disk & co", "nand": "jasmine", "flush": "exclusive", "slowdown": 7,
              "write_cache": "write back", "fua": 1, "own_figures": own}
    ssd = {
        "versions": {"kernel": "6.1"},
        "device": {"bare": {**device, "personality": "baseline"},
                   "vcache": {**device, "personality": "tagged"}},
        "bare": {"runs": _runs(3, bare_loss, flush[0]), "device_flushes": 99},
        "vcache": {"runs": _runs(3, vcache_loss, flush[1]), "device_flushes": 1,
                   "tags": [tag], "tags_after": [tag], "table": "t", "status": "s"}}
    return {name: {**part, "complete": True} for name, part in {
        "ssd": ssd, "slow_disk": _slow_disk_found(), "weights": weights_found()}.items()}


def _build(**options: Any) -> dict[str, Any]:
    return report.build(_found(**options), {"rounds": 3}, 12.34)


def test_form_of_the_top_level() -> None:
    result = _build()
    for name in ("neighbour_loss_pct", "flush_mean_us"):
        assert set(result[name]) == {"bare", "vcache"}
        for half in result[name].values():
            assert list(half) == ["32", "16", "8", "4", "2", "1"]


def test_loss_is_relative_to_the_neighbouring_runs() -> None:
    result = _build()
    assert result["neighbour_loss_pct"]["bare"] == pytest.approx(
        {str(k): 60 for k in INTERVALS})
    assert result["neighbour_loss_pct"]["vcache"]["1"] == pytest.approx(2)
    # each run is slower than the one before, no round's loss is
    assert result["loss_pct_of_each_round"]["bare"]["8"] == pytest.approx([60] * 3)


def test_gain_is_not_hidden() -> None:
    assert _build(vcache_loss=-40)["neighbour_loss_pct"]["vcache"]["4"] == pytest.approx(-40)


def test_flush_latency_in_microseconds() -> None:
    result = _build()
    assert result["flush_mean_us"]["bare"]["1"] == pytest.approx(20_000)
    assert result["flush_us"]["vcache"]["1"] == pytest.approx(
        {"mean": 5000, "p50": 5000, "p99": 10_000, "count": 30})


def _met(what: str, **options: Any) -> bool:
    found = [aim for aim in _build(**options)["aims"] if what in aim["aim"]]
    assert len(found) == 1
    assert aims.line(found[0]).split()[0] == ("met" if found[0]["met"] else "missed")
    return bool(found[0]["met"])


def test_aims_are_judged_by_the_figures() -> None:
    assert _met("largest loss")
    assert not _met("largest loss", vcache_loss=5.5)
    assert _met("mean fsync")
    assert not _met("mean fsync", flush=(20, 11))
    assert _met("sizes against weights")
    assert _met("maximum is kept")
    assert _met("duration")
    # A cached write with its fsync takes 8.3 ms, one on the slow disk 1.3.
    assert not _met("slow disk's")


def _errors(found: dict[str, Any]) -> list[str]:
    """Return the errors of the report; it has no figures of a part that is wrong."""
    result = report.build(found, {}, 1)
    assert result["partial"] is bool(result["errors"])
    errors: list[str] = result["errors"]
    return errors


def test_setting_without_its_reference_is_an_error() -> None:
    found = _found()
    # The second round has one run without fsync.
    found["ssd"]["bare"]["runs"] = found["ssd"]["bare"]["runs"][:12]
    assert "round 2: the quiet VM was not measured" in _errors(found)[0]


def test_reference_without_a_write_is_an_error() -> None:
    found = _found()
    found["ssd"]["bare"]["runs"][4]["quiet"]["write"]["iops"] = 0
    assert "round 1: the quiet VM was not measured, or wrote nothing" in _errors(found)[0]


def test_setting_without_a_flush_is_an_error() -> None:
    found = _found()
    for run in found["ssd"]["vcache"]["runs"]:
        if run["interval"] == 8:
            run["syncer"]["sync"]["lat_ns"] = {"N": 0}
    assert "sync at setting 8" in _errors(found)[0]


def test_a_failure_leaves_a_partial_report_with_all_that_was_measured() -> None:
    found = _found()
    del found["slow_disk"]["complete"], found["slow_disk"]["cached"]
    del found["weights"]
    result = report.build(found, {"rounds": 3}, 12.34, ["the agent has ended by SIGKILL"])
    assert result["partial"]
    assert result["errors"] == ["the agent has ended by SIGKILL"]
    assert result["neighbour_loss_pct"]["bare"]["1"] == pytest.approx(60)
    assert result["incomplete"]["slow_disk"]["slow"]["runs"][0]["interval"] == NEVER
    assert result["incomplete"]["weights"] == {}
    assert not {"slow_disk", "weights"} & set(result)
    assert not any("duration" in aim["aim"] for aim in result["aims"])
    json.dumps(result)


def test_a_part_that_was_not_reached_is_an_error_by_itself() -> None:
    assert not _errors(_found())
    found = _found()
    del found["weights"]
    assert _errors(found) == ["part weights is not complete"]


def test_figures_that_are_not_as_asked_make_the_report_partial() -> None:
    found = _found()
    found["weights"]["policy"] = "static"
    result = report.build(found, {}, 1)
    assert result["errors"] == ["weights: the policy is static"]
    assert result["incomplete"]["weights"]["policy"] == "static"
    assert "slow_disk" in result


def test_findings_are_in_their_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "part.json"
    found = findings.Findings(path)
    assert findings.read(path) == {}
    found.append("bare", "runs", value={"interval": 8})
    assert findings.read(path) == {"bare": {"runs": [{"interval": 8}]}}
    assert found.put("bare", "device_flushes", value=3) == 3
    assert findings.read(path) == found.data
    assert findings.read(tmp_path / "none.json") == {}


def test_every_round_measures_every_setting_between_references() -> None:
    assert schedule(0) == [NEVER, 32, 16, 8, NEVER, 4, 2, 1, NEVER]
    assert schedule(1) == schedule(3) == schedule(0)[::-1]
    assert schedule(0, SLOW_INTERVALS) == [NEVER, 8, 1, NEVER]


def test_one_round_that_was_disturbed_does_not_count() -> None:
    found = _found()
    for run in found["ssd"]["vcache"]["runs"]:
        run["round"] += 1
    found["ssd"]["vcache"]["runs"][:0] = _runs(1, 90, 5)
    result = report.build(found, {"rounds": 4}, 1)
    assert result["loss_pct_of_each_round"]["vcache"]["1"] == pytest.approx([90, 2, 2, 2])
    assert result["neighbour_loss_pct"]["vcache"]["1"] == pytest.approx(2)


def test_busy_machine_is_said() -> None:
    found = _found()
    assert report.noise(_build()) is None
    found["ssd"]["vcache"]["runs"][0]["quiet"]["write"]["iops"] = 100
    warning = report.noise(report.build(found, {}, 1))
    assert warning is not None
    assert "vcache 93 %" in warning
    found = _found()
    found["slow_disk"]["cached"]["runs"][0]["quiet"]["write"]["iops"] = 100
    assert "cached 92 %" in (report.noise(report.build(found, {}, 1)) or "")


def test_table_and_page_show_the_figures(tmp_path: Path) -> None:
    result = _build()
    text = report.table(result)
    assert len({len(line) for line in text.splitlines()}) == 1
    assert "60.0" in text
    picture, page = tmp_path / "demo.png", tmp_path / "report.html"
    plot.draw(result, picture)
    plot.write_page(result, picture, page)
    assert picture.read_bytes().startswith(b"\x89PNG")
    content = page.read_text()
    assert base64.b64encode(picture.read_bytes()).decode() in content
    assert "disk &amp; co" in content
    assert "jasmine, all times multiplied by 7" in content
    assert "machine/qemu-1-x" in content
    assert "<td>flush-only</td>" in content
    assert slow_report.table(result["slow_disk"]) in html.unescape(content)
    assert slow_report.cache_line(result["slow_disk"]) in html.unescape(content)
    assert "<td>writeback</td><td>200</td><td>machine/qemu-2-y</td>" in content
    assert weights_report.table(result["weights"]) in html.unescape(content)
    assert weights_report.line(result["weights"]) in html.unescape(content)
    # self-contained: nothing is fetched
    assert not re.search(r'(src|href)="(?!data:)', content)


def test_slow_disk_has_the_same_figures() -> None:
    part = _build()["slow_disk"]
    assert part["neighbour_loss_pct"]["slow"] == pytest.approx({"8": 10, "1": 10})
    assert part["neighbour_loss_pct"]["cached"] == pytest.approx({"8": -5, "1": -5})
    assert part["fsync_us"]["cached"]["1"] == pytest.approx(
        {"mean": 8000, "p50": 8000, "p99": 16_000, "count": 20})
    assert list(part["vms"]["slow"]["quiet"]["writes_per_s"]) == ["never", "8", "1"]


def test_a_write_on_the_slow_disk_counts_its_share_of_the_fsync() -> None:
    # a write of _vm takes 300 us, an fsync 1 ms and 8 ms
    found = _build()["slow_disk"]["write_with_fsync_mean_us"]
    assert found["slow"] == pytest.approx({"never": 300, "8": 300 + 125, "1": 300 + 1000})
    assert found["cached"] == pytest.approx({"never": 300, "8": 300 + 1000, "1": 300 + 8000})


def test_pool_and_volume_are_read_from_their_status() -> None:
    part = _build()["slow_disk"]
    assert (part["pool"]["state"], part["pool"]["chunks"]) == ("ok", 254)
    assert (part["pool"]["used"], part["pool"]["dirty"]) == (36, 1)
    assert part["volume"] == {"volume": 1, "state": "dirty", "dirty_sectors": 8664,
                              "destaged_sectors": 23740, "errors": 0, "damaged": 0}
    line = slow_report.cache_line(part)
    assert "syncer: tag 2, writeback, weight 200" in line
    assert "36 of 254 chunks used, 1 dirty" in line
    assert "4.2 MiB left to write" in line


@pytest.mark.parametrize(("name", "status"), [
    ("status", "0 8 vcache flush-only filesystem fua 0 0"),
    ("status", "0 8 vcache writeback filesystem fua 0 0 cache 1"),
    ("pool_status", "0 8 vcache-pool failed")])
def test_status_without_its_cache_is_an_error(name: str, status: str) -> None:
    found = _found()
    found["slow_disk"]["cached"][name] = status
    assert "status" in _errors(found)[0]


def test_settings_survive_the_command_line() -> None:
    settings = Settings(rounds=5, buffer_mb=7)
    assert Settings.from_json(settings.to_json()) == settings
    assert json.loads(settings.to_json())["rounds"] == 5


def test_domain_carries_the_flavor_as_nova_writes_it() -> None:
    from xml.etree import ElementTree as ET
    vm = Instance(17, "quiet", {"vcache:mode": "flush-only", "hw:note": "<&\">"})
    guest = Guest(Path("/k"), Path("/i"), "console=ttyS0")
    root = ET.fromstring(vm.domain_xml(guest, 96, "kvm"))  # noqa: S314 our own text
    nova = "{http://openstack.org/xmlns/libvirt/nova/1.1}"
    specs = root.findall(
        f"metadata/{nova}instance/{nova}flavor/{nova}extraSpecs/{nova}extraSpec")
    assert {spec.get("name"): spec.text for spec in specs} == vm.extra_specs
    assert root.findtext("name") == "instance-00000011"
    disk = root.find("devices/disk")
    assert disk is not None
    driver, source = disk.find("driver"), disk.find("source")
    assert driver is not None
    assert source is not None
    assert (driver.get("cache"), driver.get("io")) == ("none", "native")
    assert source.get("file") == f"/var/lib/nova/instances/{vm.uuid}/disk"

# SPDX-License-Identifier: Apache-2.0
"""The demo's part on weights: its figures, and its failure if they miss the settings."""

from collections.abc import Callable
from typing import Any

import pytest

from bench.demo import aims, weights_report
from bench.demo.figures import ReportError
from tests.unit.demo_weights import CHUNK, FELL, MIB, weights_found


def test_figures_before_and_after() -> None:
    part = weights_report.build(weights_found())
    assert part["before"]["small"] == pytest.approx(
        {"cached_mib": 7, "share_mib": 7, "hit_ratio": 0.25})
    assert part["before"]["large"] == pytest.approx(
        {"cached_mib": 21, "share_mib": 21, "hit_ratio": 0.5})
    assert part["after"]["small"]["cached_mib"] == pytest.approx(21)
    assert part["after"]["small"]["hit_ratio"] == pytest.approx(0.75)
    assert part["after"]["large"]["hit_ratio"] == pytest.approx(0.125)
    assert (part["size_ratio"], part["size_ratio_error"]) == pytest.approx((3, 0))
    assert (part["seconds_to_tell"], part["seconds_to_fall"]) == pytest.approx((1, 4))
    assert (part["left_mib"], part["gained_mib"]) == pytest.approx((15, 14))
    assert part["host_gained_mib"] == pytest.approx(0)


def test_series_has_all_samples_and_the_ratio_of_a_few_seconds() -> None:
    found = weights_found()
    lines = weights_report.series(found["samples"], ("small", "large", "host"), seconds=2)
    assert all(len(line) == len(found["samples"])
               for one in lines.values() for line in one.values())
    at = dict(zip(lines["small"]["t"], lines["small"]["hit_ratio"], strict=True))
    # Nothing was read yet; before the maximum; half of the time after it; after it.
    assert at[0.0] is None
    assert at[40.0] == pytest.approx(0.25)
    assert at[41.0] == pytest.approx(0.5)
    assert at[42.0] == pytest.approx(0.75)


def test_what_the_host_takes_counts_as_taken_over() -> None:
    found = _change(_each("host", "cached_bytes", 5 * MIB, FELL), (7 * MIB, 15 * MIB))
    part = weights_report.build(found)
    assert (part["gained_mib"], part["host_gained_mib"]) == pytest.approx((8, 4.75))


def test_text_has_the_figures() -> None:
    part = weights_report.build(weights_found())
    lines = weights_report.table(part).splitlines()
    assert lines[2].split() == [
        "small", "100", "|", "7.0", "7.0", "25%", "|", "7.0", "21.0", "75%"]
    assert "sizes 1:3.00" in weights_report.line(part)
    assert "kept 4.0 s after" in weights_report.line(part)
    assert "small 260 of 1024 blocks after 300 writes" in weights_report.line(part)


def _change(change: Callable[[dict[str, Any]], None],
            small: tuple[int, int] = (7 * MIB, 21 * MIB)) -> dict[str, Any]:
    found = weights_found(small)
    change(found)
    return found


def _each(role: str, key: str, value: int, start: float = 0) -> Callable[[dict[str, Any]], None]:
    """Return what sets something in all samples from a moment on."""
    def change(found: dict[str, Any]) -> None:
        for sample in found["samples"]:
            if sample["t"] >= start:
                sample[role][key] = value
    return change


@pytest.mark.parametrize(("found", "missed"), [
    (weights_found(), []),
    (weights_found(small=(9 * MIB, 22 * MIB)), ["error of the two VMs' sizes"]),
    (weights_found(small=(0, 21 * MIB)), ["error of the two VMs' sizes"]),
    (_change(lambda found: found["moments"].update(told=24.5)), ["time until a new maximum"]),
    (weights_found(small=(7 * MIB, 15 * MIB)), ["part of what one VM then leaves"]),
    (_change(_each("small", "share_bytes", 27 * MIB, FELL)), ["part of its share"])])
def test_how_well_it_is_kept_is_an_aim(found: dict[str, Any], missed: list[str]) -> None:
    judged = aims.judge({"weights": weights_report.build(found), "partial": True})
    assert len(judged) == 4
    names = [aim["aim"] for aim in judged if not aim["met"]]
    assert len(names) == len(missed)
    assert all(name.startswith(start) for name, start in zip(names, missed, strict=True))


@pytest.mark.parametrize(("found", "text"), [
    (_change(_each("small", "share_bytes", 8 * MIB)), "shares of 8.00 and 21.00 MiB are not 1:3"),
    (weights_found(small=(7 * MIB, 7 * MIB), large=(21 * MIB, 21 * MIB)),
     "21.00 MiB after the size had fallen are more than the maximum of 6"),
    (_change(_each("large", "cached_bytes", 6 * MIB + CHUNK, FELL + 9)), "6.25 MiB after the"),
    (_change(lambda found: found["moments"].update(full=39.5)), "only 1 samples"),
    (_change(lambda found: found["moments"].update(refilled=68.5)), "only 2 samples"),
    (_change(lambda found: found.update(policy="static")), "the policy is static"),
    (_change(lambda found: found["tags"].pop()), "tags of large, not of both VMs"),
    (_change(lambda found: found["checked"]["large"].update(written=0)), "wrote nothing to check"),
    (_change(_each("small", "read_bytes", 5)), "the small weight read nothing")])
def test_what_is_not_as_asked_is_an_error(found: dict[str, Any], text: str) -> None:
    with pytest.raises(ReportError, match=text):
        weights_report.build(found)


def test_shares_may_be_off_by_what_chunks_round() -> None:
    found = _change(_each("large", "share_bytes", 21 * MIB + 4 * CHUNK))
    assert weights_report.build(found)["before"]["large"]["share_mib"] == 22
    with pytest.raises(ReportError, match="shares"):
        weights_report.build(_change(_each("large", "share_bytes", 21 * MIB + 5 * CHUNK)))

# SPDX-License-Identifier: Apache-2.0
"""Print the figures beside the published ones."""

from collections.abc import Mapping
from typing import Any

from bench.svd import settings


def _case(case: Mapping[str, Any]) -> str:
    direct, cached = case["direct"], case["vcache"]
    return (f"{case['load']:13}{case['mapping']:6}{case['format']:7}"
            f"{direct['erases']:8.0f}{cached['erases']:8.0f}{case['erase_reduction_pct']:+8.1f}"
            f"{direct['waf_guest']:8.2f}{cached['waf_guest']:8.2f}{cached['waf_drive']:8.2f}"
            f"{case['data_reduction_pct']:+8.1f}"
            f"{direct['writes_s']:9.0f}{cached['writes_s']:9.0f}"
            f"{case['throughput_gain_pct']:+9.1f}")


def _published(name: str) -> str:
    value = settings.PUBLISHED[name]
    return " ... ".join(f"{end:.0f}" for end in value) if isinstance(value, list) \
        else f"{value:.0f}"


def text(result: Mapping[str, Any]) -> str:
    """Return the whole table."""
    lines = [f"{'':26}{'erases':^24}{'programs for each guest write':^32}{'guest writes/s':^27}",
             f"{'load':13}{'map':6}{'image':7}{'direct':>8}{'vcache':>8}{'less %':>8}"
             f"{'direct':>8}{'vcache':>8}{'(WAF)':>8}{'data -%':>8}"
             f"{'direct':>9}{'vcache':>9}{'gain %':>9}"]
    lines += [_case(case) for case in result["cases"]]
    for load, means in result["means"].items():
        lines.append(f"{load + ', mean':26}{'':16}{means['erase_reduction_pct']:+8.1f}{'':24}"
                     f"{means['data_reduction_pct']:+8.1f}{'':18}"
                     f"{means['throughput_gain_pct']:+9.1f}")
    lines += ["", f"{'summary':24}{'ours':>8}{'paper':>12}{'aim':>8}"]
    for name, value in result["summary"].items():
        aim = settings.AIMS[name]
        lines.append(f"{name:24}{value:8.1f}{_published(name):>12}{aim:8.1f}  "
                     f"{'met' if value >= aim else 'NOT MET'}")
    return "\n".join(lines)

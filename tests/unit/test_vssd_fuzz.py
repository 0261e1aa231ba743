# SPDX-License-Identifier: Apache-2.0
"""A short run of the fuzzer of elastic SSDs' protocol, and what it finds if a check is missing."""

import pytest

from tests.unit.vssd_fuzz import Broken, Fuzz
from vcache_agent.vssd import session
from vcache_guest import protocol


@pytest.mark.parametrize("seed", range(4))
def test_nothing_breaks(seed: int) -> None:
    fuzz = Fuzz(seed)
    fuzz.run(2000)
    assert fuzz.heard > 1000
    # Each kind of damage reaches the checks behind the checksum.
    assert min(one.refused for one in fuzz.decoders) > 100


def test_a_run_is_repeated_by_its_seed() -> None:
    first, second = Fuzz(7), Fuzz(7)
    first.run(500)
    second.run(500)
    assert (first.heard, first.host.mapped) == (second.heard, second.host.mapped)


@pytest.mark.parametrize(("module", "name", "broken"), [
    # Blocks are released that are not inside the device.
    (session, "_inside", lambda ranges, most: ranges),
    # A payload has any length.
    (protocol, "_exactly", lambda layout, data: layout.unpack(data)),
    (protocol, "_check_serial", lambda serial: None)])
def test_a_missing_check_is_found(monkeypatch: pytest.MonkeyPatch, module: object, name: str,
                                  broken: object) -> None:
    monkeypatch.setattr(module, name, broken)
    with pytest.raises(Broken, match="seed 1, message"):
        Fuzz(1).run(20_000)

# SPDX-License-Identifier: Apache-2.0
"""The ports' self-test on the host: every compiler must produce the same device."""

from pathlib import Path

import pytest

from tests.firmware import arm, build

KINDS = {"plain": ("-O0",), "optimised": ("-O3",), "sanitizers": build.SANITIZERS}


@pytest.fixture(scope="module")
def reference() -> list[str]:
    """Return the output of the program with which others are compared."""
    done = build.run(arm.build_host("gcc", build.BUILD / "fast"))
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_same_on_every_compiler(reference: list[str], compiler: str, kind: str) -> None:
    program = arm.build_host(compiler, build.BUILD / f"{compiler}-{kind}", KINDS[kind])
    done = build.run(program)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert arm.differences(reference, done.stdout.splitlines()) == []


def test_every_personality_collects_checkpoints_and_recovers(reference: list[str]) -> None:
    """Each configuration went through all phases, with data at risk."""
    configs = [line.split()[1] for line in reference if line.startswith("config ")]
    assert len(configs) == len(set(configs)) >= 4
    for config in configs:
        seen = [phase["phase"] for phase in arm.phases(reference) if phase["config"] == config]
        assert seen[:2] == ["fill", "load"]
        assert seen.count("recovered") == 4
        assert seen[-1] == "restarted"
    maps = [phase["map"] for phase in arm.phases(reference) if phase["phase"] == "load"]
    assert len(set(maps)) == len(configs), "two configurations made the same device"


#: Kind of error, file, change, message of the self-test.
BROKEN = [
    ("logs are not replayed", "core/recover.c", "status = replay(s, now, &all);", ";", "wrong="),
    ("a flush leaves out its own data", "core/ssd.c",
     "status = batch_tag(s, &batch, log, now);", ";", "wrong="),
    ("collection moves what is no longer valid", "core/gc.c",
     "s->map[slot[i].lpn] != address * s->slots + i)", "0)", "fail "),
    ("a trace that proves too little", "core/buffer.c",
     "s->stats.absorbed++;", ";", "no garbage was collected"),
]


@pytest.mark.parametrize(("file", "old", "new", "said"), [row[1:] for row in BROKEN],
                         ids=[row[0] for row in BROKEN])
def test_broken_firmware_fails(tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    tree = arm.copy_firmware(tmp_path / "tree")
    arm.change(tree / "firmware" / file, old, new)
    program = arm.build_host("gcc", tmp_path, ("-O2", "-w", "-Wno-error"), tree)
    done = build.run(program)
    assert done.returncode != 0
    if done.returncode > 0:
        assert said in done.stdout
        assert done.stdout.endswith("RESULT fail\n")

# SPDX-License-Identifier: Apache-2.0
"""The command ``vcache mrc``, with a program that prints its arguments as vcache-mrc."""

import json
import lzma
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vcache_agent.cmd import cli, mrc_cli

FAKE = f"""#!{sys.executable}
import json, sys
options = sys.argv[1:]
text = sys.stdin.read()
if "wrong" in text:
    print("vcache-mrc: line 7: field 2, the offset: must be bytes", file=sys.stderr)
    raise SystemExit(1)
sizes = [int(size) for size in options[options.index("--sizes") + 1].split(",")] \\
    if "--sizes" in options else [10, 20]
print(json.dumps({{"accesses": len(text), "sizes": [
    {{"blocks": size, "misses": size * 2, "miss_ratio": 0.25}} for size in sizes]}}))
with open({{log!r}}, "w") as file:
    json.dump(options, file)
"""


@pytest.fixture(name="asked")
def fixture_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with the options of the program."""
    program = tmp_path / "bin" / "vcache-mrc"
    program.parent.mkdir()
    program.write_text(FAKE.replace("{log!r}", repr(str(tmp_path / "asked"))))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    return tmp_path / "asked"


def trace(folder: Path, text: str = "1,0,4096,R\n") -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("given", "passed"), [
    ([], ["--samples", "8192"]),
    (["--samples", "100"], ["--samples", "100"]),
    (["--rate", "0.01"], ["--rate", "0.01"]),
    (["--exact"], ["--exact"]),
    (["--exact", "--sizes", "5"], ["--exact", "--sizes", "5"]),
])
def test_options(asked: Path, tmp_path: Path, given: list[str], passed: list[str]) -> None:
    assert cli.main(["mrc", str(trace(tmp_path)), *given]) == 0
    assert json.loads(asked.read_text()) == ["--json", *passed]


def test_sizes_in_any_order(asked: Path, tmp_path: Path,
                            capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["mrc", str(trace(tmp_path)), "--json", "--sizes", "30,10,30"]) == 0
    assert json.loads(asked.read_text())[-1] == "10,30"
    assert [one["blocks"] for one in json.loads(capsys.readouterr().out)["sizes"]] == [30, 10, 30]


def test_table(asked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["mrc", str(trace(tmp_path))]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "11 accesses of 4 KiB", "",
        "BLOCKS      SIZE  MISSES  MISS-RATIO",
        "    10  40.0 KiB      20    0.250000",
        "    20  80.0 KiB      40    0.250000"]


def test_compressed(asked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.csv.xz"
    path.write_bytes(lzma.compress(b"1,0,4096,R\n" * 500_000))
    assert cli.main(["mrc", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accesses"] == 5_500_000


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.xz"])
def test_wrong_line(asked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                    name: str) -> None:
    path = tmp_path / name
    data = b"wrong\n" * 100_000
    path.write_bytes(lzma.compress(data) if name.endswith(".xz") else data)
    assert cli.main(["mrc", str(path)]) == 1
    assert capsys.readouterr().err == (
        f"vcache: {path}: line 7: field 2, the offset: must be bytes\n")


def test_a_program_that_ended_does_not_hide_what_is_wrong_with_the_file(tmp_path: Path) -> None:
    closed = tmp_path / "closed"

    def pieces() -> Iterator[bytes]:
        yield b"1,0,4096,R\n"  # stays in the buffer of the pipe
        while not closed.exists():
            time.sleep(0.01)
        raise lzma.LZMAError("corrupt")

    with pytest.raises(lzma.LZMAError, match="corrupt"):
        mrc_cli._feed(["sh", "-c", f"exec <&-; : > {closed}; exec sleep 60"], pieces())


def test_files_that_cannot_be(asked: Path, tmp_path: Path,
                              capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["mrc", str(tmp_path / "none.csv")]) == 1
    assert "none.csv: No such file or directory" in capsys.readouterr().err
    path = tmp_path / "cut.csv.xz"
    path.write_bytes(lzma.compress(bytes(100_000))[:-20])
    assert cli.main(["mrc", str(path)]) == 1
    assert "cut.csv.xz: not a complete .xz file" in capsys.readouterr().err


def test_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                    capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mrc_cli, "_BUILT", tmp_path / "vcache-mrc")
    assert cli.main(["mrc", str(trace(tmp_path))]) == 1
    assert "build it with 'make tools'" in capsys.readouterr().err
    # The program built by make tools is found without PATH.
    (tmp_path / "vcache-mrc").write_text(f"#!{sys.executable}\nprint('{{\"accesses\": 0, "
                                         "\"sizes\": []}')\n")
    (tmp_path / "vcache-mrc").chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    assert cli.main(["mrc", str(trace(tmp_path))]) == 0


@pytest.mark.parametrize(("options", "error"), [
    (["--samples", "15"], "'15': must be an integer from 16 to 268435456"),
    (["--rate", "0"], "'0': must be a number from 1e-09 to 1"),
    (["--rate", "nan"], "'nan': must be a number from 1e-09 to 1"),
    (["--rate", "x"], "'x': must be a number from 1e-09 to 1"),
    (["--sizes", "1,,2"], "must be 1 to 4096 integers from 1 to 2^52"),
    (["--sizes", "0"], "must be 1 to 4096 integers from 1 to 2^52"),
    (["--exact", "--rate", "1"], "not allowed with argument"),
])
def test_wrong_usage(asked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                     options: list[str], error: str) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["mrc", str(trace(tmp_path)), *options])
    assert caught.value.code == 2
    assert error in capsys.readouterr().err

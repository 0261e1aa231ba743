# SPDX-License-Identifier: Apache-2.0
"""Parts of the all-in-one that need no running service."""

import fcntl
import subprocess
import sys
import time

import pytest

from tests.box.steps import at_end
from tests.cloud import __main__ as command
from tests.cloud import image, memory, network
from tests.cloud.control import Control
from tests.cloud.nova import AllInOne
from tests.cloud.processes import Process


@pytest.mark.parametrize(("method", "path", "status", "document"), [
    ("GET", "/v2.0/ports.json", "200 OK", {"ports": []}),
    ("GET", "/v2.0/security-groups", "200 OK", {"security_groups": []}),
    ("POST", "/v2.0/ports", "404 Not Found", None),
    ("GET", "/v2.0/ports/5", "404 Not Found", None),
])
def test_a_network_service_that_has_nothing(method, path, status, document):
    found = network.answer(method, path)
    assert found[0] == status
    assert document is None or found[1] == document


def test_an_image_is_made_once_of_what_a_folder_has(tmp_path):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file").write_text("inside")
    (folder / "link").symlink_to("sub/file")
    mark = folder / "complete"
    mark.touch()
    made = image.of_folder(folder, tmp_path / "image", mark)
    said = subprocess.run(["debugfs", "-R", "cat /sub/file", made], check=True,
                          capture_output=True, text=True).stdout
    assert said == "inside"
    before = made.stat().st_ino
    assert image.of_folder(folder, made, mark).stat().st_ino == before, "not again"
    time.sleep(0.01)
    mark.touch()
    assert image.of_folder(folder, made, mark).stat().st_ino != before, "it has changed"


def test_the_memory_of_a_process_is_that_of_its_children_too(tmp_path):
    child = "x = bytearray(80 << 20); import time; time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    made = Process(tmp_path, "parent", [sys.executable, "-c", parent])
    with at_end(made.stop):
        end = time.monotonic() + 30
        while memory.pss_mib(made.pid) < 80:
            assert time.monotonic() < end, memory.pss_mib(made.pid)
            time.sleep(0.2)
        assert memory.pss_mib(made.pid) < 160
        (number,) = memory.children()[made.pid]
    subprocess.run(["kill", str(number)], check=False)


def test_what_is_missing_is_one_line_that_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setattr(command.os, "geteuid", lambda: 0)
    monkeypatch.setattr(command.shutil, "which", lambda name, path: None)
    monkeypatch.setattr(command.sys, "argv", ["openstack"])
    assert command.main() == 1
    assert capsys.readouterr().err == (
        "openstack: mariadbd is missing: apt-get install mariadb-server-core\n")
    monkeypatch.setattr(command.os, "geteuid", lambda: 1000)
    assert command.missing() == "it has to run as root, as the box does"


def test_one_at_a_time_in_a_folder(tmp_path):
    with open(tmp_path / "run.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "file").touch()
        with pytest.raises(AssertionError, match="another one runs in .*/run"):
            AllInOne(tmp_path / "run")
    assert (tmp_path / "run" / "file").exists(), "it has what it had"


def test_what_was_started_is_ended_if_something_fails(tmp_path):
    ended = []

    class Fails(Control):
        def start(self) -> None:
            self.at_end("first", lambda: ended.append("first"))
            self.at_end("second", self._broken)
            self.at_end("third", lambda: ended.append("third"))
            raise KeyboardInterrupt

        def _broken(self) -> None:
            raise OSError("does not end")

    with pytest.raises(KeyboardInterrupt) as caught:
        Fails(tmp_path)
    assert ended == ["third", "first"]
    assert caught.value.__notes__ == [
        "clean-up also failed: ending second: does not end"]

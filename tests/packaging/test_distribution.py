# SPDX-License-Identifier: Apache-2.0
"""The contents of an installation of nova-vcache."""

import configparser
import email
import importlib
import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

#: Modules that need Nova; tests/openstack imports them.
NOVA_SIDE = "nova_vcache."


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel once."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps",
         "-w", str(folder), str(ROOT)],
        check=True, timeout=300)
    (path,) = folder.glob("nova_vcache-*.whl")
    return zipfile.ZipFile(path)


def test_nothing_but_our_packages_is_installed(wheel: zipfile.ZipFile) -> None:
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in top if not name.endswith((".dist-info", ".data"))} == {
        "nova_vcache", "vcache_agent", "vcache_cinder", "vcache_guest"}


def test_every_module_of_the_packages_is_installed(wheel: zipfile.ZipFile) -> None:
    sources = {
        path.relative_to(base).as_posix()
        for base, package in ((ROOT, "nova_vcache"), (ROOT / "agent", "vcache_agent"),
                              (ROOT / "agent", "vcache_guest"),
                              (ROOT / "cinder_driver", "vcache_cinder"))
        for path in (base / package).rglob("*.py")}
    assert sources <= set(wheel.namelist())
    # Read at import.
    assert "nova_vcache/api/openapi.yaml" in wheel.namelist()


def test_hook_units_and_samples_are_installed(wheel: zipfile.ZipFile) -> None:
    share = {name.partition("/share/nova-vcache/")[2] for name in wheel.namelist()}
    assert {"hooks/qemu", "vcache-generator", "vcache-udev", "vcache-agent.conf.sample",
            "hook.conf.sample", "udev/99-vcache.rules", "systemd/vcache-agent.service",
            "systemd/vcache-attach@.service", "systemd/vcache-host.service"} <= share


def test_nothing_is_needed_without_an_extra(wheel: zipfile.ZipFile) -> None:
    (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(wheel.read(name))
    needed = metadata.get_all("Requires-Dist") or []
    assert [line for line in needed if "extra ==" not in line] == []
    assert {"agent", "api", "cli", "host"} <= set(metadata.get_all("Provides-Extra") or [])


def test_entry_points_exist(wheel: zipfile.ZipFile) -> None:
    (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/entry_points.txt"))
    points = configparser.ConfigParser()
    points.optionxform = str  # type: ignore[assignment,method-assign]
    points.read_string(wheel.read(name).decode())
    assert set(points["console_scripts"]) == {
        "vcache", "vcache-agent", "vcache-guest", "vcache-host", "nova-vcache-status"}
    for section in points.sections():
        for target in points[section].values():
            module, _, function = target.partition(":")
            if module.startswith(NOVA_SIDE):
                path = module.replace(".", "/")
                assert {f"{path}.py", f"{path}/__init__.py"} & set(wheel.namelist())
            else:
                assert callable(getattr(importlib.import_module(module), function))

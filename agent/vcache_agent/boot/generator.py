# SPDX-License-Identifier: Apache-2.0
"""The systemd generator: from ``/etc/vcache/setup.conf`` to units.

systemd calls it early in the boot and at each ``daemon-reload``, with the folder for the units.
``vcache-pool@.service``, ``vcache-attach@.service`` and ``vcache-vssd@.service`` do the work; this
adds who wants them, in which order they start, and which mounts fail with them. Nothing here waits
or reads devices.
"""

import sys
from pathlib import Path

from vcache_agent.boot.setup_file import NO_POOL, AttachLine, SetupError, SetupFile

#: Where systemd reads units of packages, and of administrators.
_UNITS = (Path("/etc/systemd/system"), Path("/usr/lib/systemd/system"),
          Path("/lib/systemd/system"))
_TARGET = "local-fs.target.wants"
_KMSG = Path("/dev/kmsg")


def escape(text: str) -> str:
    """Escape a text for the name of a unit, as ``systemd-escape`` does."""
    found = []
    for at, byte in enumerate(text.encode()):
        char = chr(byte)
        if char == "/":
            found.append("-")
        elif byte < 128 and (char.isalnum() or char in ":_" or (char == "." and at)):
            found.append(char)
        else:
            found.append(f"\\x{byte:02x}")
    return "".join(found)


def escape_path(path: str) -> str:
    """Escape a path for the name of a unit, as ``systemd-escape --path`` does."""
    return escape("/".join(part for part in path.split("/") if part)) or "-"


def pool_unit(name: str) -> str:
    """Return the unit that activates a pool."""
    return f"vcache-pool@{escape(name)}.service"


def attach_unit(device: str) -> str:
    """Return the unit that attaches a device."""
    return f"vcache-attach@{escape_path(device)}.service"


def vssd_unit(name: str) -> str:
    """Return the unit that makes an elastic SSD."""
    return f"vcache-vssd@{escape(name)}.service"


def generate(setup: SetupFile, to: Path, units: tuple[Path, ...] = _UNITS) -> None:
    """Write the units.

    :param to: folder for them
    :param units: folders that may have the templates
    """
    for pool in setup.pools():
        unit = pool_unit(pool.value.name)
        _want(to, unit, units)
        # A pool that appears after all time limits takes what failed without it along.
        devices = [attach_unit(device.value.device) for device in setup.attached()
                   if device.value.pool == pool.value.name]
        devices += [vssd_unit(vssd.value.name) for vssd in setup.vssds()
                    if vssd.value.pool == pool.value.name]
        if devices:
            _drop_in(to, unit, f"Wants={' '.join(devices)}\n")
    for device in setup.attached():
        _device(to, device.value, units)
    for vssd in setup.vssds():
        unit, pool_of = vssd_unit(vssd.value.name), pool_unit(vssd.value.pool)
        _want(to, unit, units)
        _drop_in(to, unit, f"Requires={pool_of}\nAfter={pool_of}\n")


def _device(to: Path, line: AttachLine, units: tuple[Path, ...]) -> None:
    unit = attach_unit(line.device)
    _want(to, unit, units)
    mounts = [f"{escape_path(path)}.mount" for path in line.mounts]
    for mount in mounts:
        _drop_in(to, mount, f"Requires={unit}\nAfter={unit}\n", unit)
    text = ""
    if line.pool != NO_POOL:
        pool = pool_unit(line.pool)
        # Wants and not Requires: without its pool, a clean device continues.
        text = f"Wants={pool}\nAfter={pool}\n"
    if mounts:
        # If the device is attached late, its mounts have failed already.
        text += f"Wants={' '.join(mounts)}\n"
    if text:
        _drop_in(to, unit, text)


def _drop_in(to: Path, unit: str, text: str, name: str = "vcache") -> None:
    folder = to / f"{unit}.d"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"50-{name}.conf").write_text(f"[Unit]\n{text}")


def _want(to: Path, unit: str, units: tuple[Path, ...]) -> None:
    template = unit.partition("@")[0] + "@.service"
    path = next((folder / template for folder in units if (folder / template).exists()),
                units[-1] / template)
    folder = to / _TARGET
    folder.mkdir(parents=True, exist_ok=True)
    (folder / unit).symlink_to(path)


def _say(text: str) -> None:
    """Log to the kernel's log: no other exists yet."""
    try:
        _KMSG.write_text(f"<4>vcache-generator: {text}\n")
    except OSError:
        print(f"vcache-generator: {text}", file=sys.stderr)


def main() -> int:
    """Run the generator; the first argument is the folder for the units."""
    if len(sys.argv) < 2:
        print("usage: vcache-generator FOLDER [FOLDER FOLDER]", file=sys.stderr)
        return 2
    try:
        setup = SetupFile()
        for problem in setup.problems:
            _say(f"{problem}; the line is ignored")
        generate(setup, Path(sys.argv[1]))
    except (SetupError, OSError) as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

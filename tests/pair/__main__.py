# SPDX-License-Identifier: Apache-2.0
"""Run the tests of this folder in two machines of User Mode Linux, with a link and a disk.

``python -m tests.pair [pytest arguments]``

pytest runs in the first machine, the other one executes what it is told over the link.
"""

import socket
import sys
import tempfile
import threading
from pathlib import Path

from tests.box import Uml, boxed, uml
from tests.box.guest import image
from tests.box.kernels import default
from tests.box.machine import REPO, BoxError, Disk

_DISK_BYTES = 64 << 20
_SECONDS = 1800


def machines(folder: Path, write_ms: int = 0) -> list[Uml]:
    """Return the two machines.

    :param folder: folder of the disk
    :param write_ms: delay of each write of the disk
    """
    disk = folder / "shared"
    with open(disk, "wb") as file:
        file.truncate(_DISK_BYTES)
    ports = _free_ports()
    made = []
    for number in (0, 1):
        link = ("vec0:transport=l2tpv3,udp=1,v6=0,src=127.0.0.1,dst=127.0.0.1,"
                f"srcport={ports[number]},dstport={ports[1 - number]},"
                "rx_session=1,tx_session=1,depth=128")
        env = {"VCACHE_PAIR": str(number + 1), "VCACHE_WRITE_MS": str(write_ms)}
        made.append(Uml(memory="1G", disks=[Disk(disk, "shared", shared=True)],
                        kernel_args=[link], env=env))
    return made


def _free_ports() -> list[int]:
    """Return two UDP ports that are not in use."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def run(command: list[str], folder: Path, timeout: float = _SECONDS, write_ms: int = 0) -> int:
    """Run a command in the first machine beside the second one; return its exit status."""
    first, second = machines(folder, write_ms)

    def serve() -> None:
        try:
            second.run([sys.executable, "-m", "tests.pair.host"], timeout=timeout)
        except BoxError as error:
            print(error, file=sys.stderr)

    other = threading.Thread(target=serve)
    other.start()
    try:
        return first.run(command, timeout=timeout).status
    except BoxError as error:
        print(error, file=sys.stderr)
        return boxed.FAILED
    finally:
        other.join()


def main() -> int:
    """Run the tests, and return pytest's exit status."""
    image.build(default())
    uml.build_module()
    named = [word for word in sys.argv[1:] if "tests/" in word and not word.startswith("-")]
    (REPO / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pair-", dir=REPO / "build") as folder:
        return run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", "--tb=short",
                    *sys.argv[1:], *([] if named else ["tests/pair"])], Path(folder))


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""A temporary copy of this machine's root file system.

It consists of layers in memory over the real root, in mount and process namespaces. It uses
the machine's network. The changes of a node are in a separate layer, so a test can list
what remains of them.
"""

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.box.limits import limit
from tests.box.steps import describe, on_error

# The namespace's first process: when it exits, all others are killed.
_HOLD = """
set -eu
mount -t tmpfs -o mode=755 vcache-devstack "$1"
mkdir "$1/root"
for layer in base node; do mkdir "$1/$layer" "$1/$layer.work"; done
touch "$1/ready"
while :; do sleep 3600 || :; done
"""
_MOUNT = """
set -eu
cd "$1"
umount -R root 2>/dev/null || :
mount -t overlay vcache-devstack -o "lowerdir=$2,upperdir=$1/$3,workdir=$1/$3.work" root
mount -t proc proc root/proc
for name in sys dev; do mount --rbind "/$name" "root/$name"; done
# A folder of its own: what runs here must not be found by what runs outside.
mount -t tmpfs -o mode=755 run root/run
mkdir -m 1777 root/run/lock
mkdir -p root/opt/lab
mount --bind "$4" root/opt/lab
"""

# A sparse file; its contents are not compared.
_LARGE = 256 << 20


class Sandbox:
    """A private root file system.

    :param folder: an empty folder for it
    :param libraries: a folder that is mounted in it as /opt/lab
    """

    def __init__(self, folder: Path, libraries: Path) -> None:
        self._folder = folder
        self._libraries = libraries
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
             "sh", "-c", _HOLD, "sh", str(folder)], stdin=subprocess.DEVNULL)
        with on_error(self.close):
            self._pid = self._find()
            self.layer("base", "/")

    @property
    def root(self) -> Path:
        """Return the path of its root, as seen from outside."""
        return Path(f"/proc/{self._pid}/root{self._folder}/root")

    def _find(self) -> int:
        """Return the process ID of the first process inside, once it is ready."""
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        for _ in range(300):
            if self._holder.poll() is not None:
                raise RuntimeError("no namespaces: unshare has failed")
            for child in children.read_text().split():
                if Path(f"/proc/{child}/root{self._folder}/ready").exists():
                    return int(child)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._holder.wait(0.1)
        raise RuntimeError("no namespaces within 30 s")

    def _enter(self, *command: str) -> list[str]:
        return ["nsenter", f"--target={self._pid}", "--mount", "--pid", *command]

    def layer(self, name: str, below: str) -> None:
        """Record later changes in a separate layer."""
        subprocess.run(self._enter("sh", "-c", _MOUNT, "sh", str(self._folder), below, name,
                                   str(self._libraries)), check=True)

    def node(self) -> None:
        """Begin a node: the first layer, without the changes of other nodes."""
        self.kill()
        subprocess.run(self._enter("sh", "-c", 'cd "$1" && umount -R root && rm -rf node node.work '
                                   "&& mkdir node node.work", "sh", str(self._folder)), check=True)
        self.layer("node", f"{self._folder}/base:/")

    def run(self, *command: str, user: str = "root", check: bool = True,
            seconds: float = 600) -> subprocess.CompletedProcess[str]:
        """Run a command in it.

        :raises AssertionError: with its output, if it fails
        """
        line = self._enter(
            "chroot", f"--userspec={user}", str(self._folder / "root"), "env", "-i",
            f"HOME={'/opt/stack' if user == 'stack' else '/root'}", f"USER={user}", "LANG=C.UTF-8",
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            *(f"{name}={value}" for name, value in os.environ.items() if _of_network(name)),
            *command)
        try:
            done = subprocess.run(
                line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, errors="replace", timeout=limit(seconds), check=False)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(describe(error)) from None
        assert not check or done.returncode == 0, f"{command}: {done.stdout[-6000:]}"
        return done

    def kill(self) -> None:
        """Kill all processes in it except the first, which keeps it alive."""
        subprocess.run(self._enter("sh", "-c", "kill -9 -1"), check=False)

    def files(self) -> dict[str, str]:
        """Return the changes of the node: by path, the new state."""
        top = Path(f"/proc/{self._pid}/root{self._folder}/node")
        return {str(path.relative_to(top)): _describe(path) for path in _walk(top)}

    def close(self) -> None:
        """Stop everything in it, and remove it."""
        # Only SIGKILL stops unshare; its children exit with it.
        self._holder.kill()
        self._holder.wait(30)
        shutil.rmtree(self._folder, ignore_errors=True)


def _of_network(name: str) -> bool:
    """Return whether pip, apt or git may need a variable for network access."""
    return name.startswith("PIP_") or name.lower().endswith("_proxy") or "_CA_" in name \
        or name.startswith("SSL_CERT_")


def _walk(top: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(top):
        for name in [*folders, *files]:
            yield Path(folder, name)


def _describe(path: Path) -> str:
    found = path.lstat()
    if stat.S_ISDIR(found.st_mode):
        return f"folder {found.st_mode & 0o7777:o} {found.st_uid}"
    if stat.S_ISLNK(found.st_mode):
        return f"link {os.readlink(path)}"
    if stat.S_ISCHR(found.st_mode) and not found.st_rdev:
        return "gone"
    if stat.S_ISREG(found.st_mode) and found.st_size > _LARGE:
        return f"file {found.st_mode & 0o7777:o} {found.st_uid}, {found.st_size} bytes"
    if stat.S_ISREG(found.st_mode):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return f"file {found.st_mode & 0o7777:o} {found.st_uid} {digest}"
    return "other"

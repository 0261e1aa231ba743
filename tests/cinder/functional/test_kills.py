# SPDX-License-Identifier: Apache-2.0
"""cinder-volume is killed before each step of an operation, and starts again."""

from collections.abc import Callable
from typing import Any

from tests.box.inside import run
from tests.cinder.functional import lab
from tests.cinder.functional.test_life import (
    MIB,
    Content,
    check_cached,
    nothing_is_left,
)

assert nothing_is_left

_LVM = {"lvcreate", "lvchange", "lvextend", "lvremove", "lvconvert", "lvrename"}
_AGENT = {"volume-put", "volume-drain", "volume-delete"}


class Killed(BaseException):
    """No handler of Cinder's catches it."""


class Steps:
    """The steps of a driver: commands that change something, of LVM and of the agent.

    :param survived: number of steps after which the process is killed
    """

    def __init__(self, driver: Any, survived: int) -> None:
        self.done: list[str] = []
        self.dead = False
        self._survived = survived
        self._driver = driver
        self._old = driver.vg._execute, driver.agent._ask
        driver.vg._execute = lambda *words, **options: self._step(
            next((word for word in words if word in _LVM), words[0]), _LVM,
            lambda: self._old[0](*words, **options))
        driver.agent._ask = lambda path, request, seconds: self._step(
            request["op"], _AGENT, lambda: self._old[1](path, request, seconds))

    def _step(self, name: str, counted: set[str], act: Callable[[], Any]) -> Any:
        # What is dead does not clean up either.
        if len(self.done) == self._survived and (name in counted or self.dead):
            self.dead = True
            raise Killed
        answer = act()
        if name in counted:
            self.done.append(name)
        return answer

    def end(self) -> None:
        """Leave nothing of the process."""
        self._driver.vg._execute, self._driver.agent._ask = self._old
        self._driver.vg._lost.clear()


def killed(cloud: Any, survived: int, operation: str, *arguments: Any) -> list[str] | None:
    """Kill the service after some steps of an operation, and start it again.

    :param operation: a method of the driver
    :return: the steps; None: the operation has no more steps
    """
    steps = Steps(cloud.driver, survived)
    try:
        getattr(cloud.driver, operation)(*arguments)
    except Killed:
        pass
    finally:
        steps.end()
    cloud.restart()
    assert len(steps.done) == survived
    return steps.done if steps.dead else None


def record(volume: str) -> Any:
    from cinder import context, objects

    return objects.Volume.get_by_id(context.get_admin_context(), volume)


class Written:
    """A volume in mode writeback with dirty data."""

    def __init__(self, cloud: Any) -> None:
        self.volume = cloud.make("writeback")
        self.attachment, connection = cloud.attach(self.volume)
        self.path, self.content = connection["device_path"], Content()
        self.write(0)

    def write(self, place: int) -> None:
        run("vcache", "destage", self.path, "--pause", "600")
        self.content.write(self.path, place * MIB, b"abcdefgh"[place % 8:][:1])
        assert lab.volumes()[self.volume]["dirty_bytes"]


def test_extending_a_volume_in_use_ends(cloud: Any) -> None:
    cloud.kind("writeback", mode="writeback")
    one = Written(cloud)
    seen: list[list[str] | None] = []
    done: list[str] | None = []
    while done is not None:
        size = 2 + len(seen)
        done = killed(cloud, len(seen), "extend_volume", record(one.volume), size)
        check_cached(one.volume, "writeback")
        one.content.check(one.path)
        seen.append(done)
        one.write(len(seen))
    assert ["lvchange", "volume-drain", "lvextend"] in seen
    assert lab.size(one.path) == size << 30
    cloud.detach(one.volume, one.attachment)
    cloud.delete(one.volume)

# SPDX-License-Identifier: Apache-2.0
"""Calls into oslo.messaging that return in time, whatever happens to the message bus.

oslo.messaging limits neither the time to set up a connection nor the time to repair one before
it returns to the pool of connections. While the bus is down, a call can therefore wait until
the bus is back, in spite of its timeout and its limit of retries.
"""

import concurrent.futures
import threading
from collections.abc import Callable
from typing import TypeVar

from nova_vcache.rpc.errors import BusDown

Answer = TypeVar("Answer")


class Bounded:
    """Runs each call in a thread of its own, which is left behind when the time is over.

    :param most: number of calls that may wait at a time, those left behind included
    """

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._free = threading.BoundedSemaphore(most)

    def call(self, seconds: float, function: Callable[[], Answer]) -> Answer:
        """Call a function.

        A function that is left behind still runs when the message bus is back. So a message
        that changes something must carry a deadline.

        :param seconds: time limit
        :raises BusDown: if the time is over, or too many calls wait
        """
        if not self._free.acquire(blocking=False):
            raise BusDown(f"the message bus is not reachable: {self._most} calls wait for it")
        future: concurrent.futures.Future[Answer] = concurrent.futures.Future()
        threading.Thread(target=self._run, args=(future, function), name="vcache-call",
                         daemon=True).start()
        concurrent.futures.wait([future], seconds)
        if not future.done():
            raise BusDown(f"the message bus is not reachable: no progress within {seconds:g} s")
        return future.result()

    def _run(self, future: "concurrent.futures.Future[Answer]",
             function: Callable[[], Answer]) -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)
        finally:
            self._free.release()

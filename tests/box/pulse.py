# SPDX-License-Identifier: Apache-2.0
"""Interrupt the box now and then.

QEMU's emulation of AMD's virtualisation (svm_helper.c; seen with 10.0.2) changes the word
of pending interrupts without the lock that devices change it under. An interrupt that
comes meanwhile stays pending in the APIC, and the processor is told of it with the next
one. For a box that is idle but for a nested VM that next one may never come: its timer
is set for one shot, and that shot is the one that was lost.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

# Longest that a box stands still, in seconds.
_PERIOD = 0.25


def qemu_options(fifo: Path) -> list[str]:
    """Return the options of a port that QEMU reads from `fifo`, which has to be there."""
    path = str(fifo).replace(",", ",,")
    return ["-chardev", f"pipe,id=boxpulse,path={path}",
            "-device", "virtserialport,name=box.pulse,chardev=boxpulse"]


@contextlib.contextmanager
def beating(fifo: Path) -> Iterator[None]:
    """Send a byte each quarter of a second, of which the box reads as many as it likes."""
    # For reading, too: there is no reader before QEMU has come so far, nor after it.
    pipe = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    over = threading.Event()

    def beat() -> None:
        while not over.wait(_PERIOD):
            with contextlib.suppress(BlockingIOError):
                os.write(pipe, b".")

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        os.close(pipe)

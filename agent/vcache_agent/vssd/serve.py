# SPDX-License-Identifier: Apache-2.0
"""One elastic SSD: the session, the device, and the channel to the guest.

The channel is the host's end of a virtio-serial port, which libvirt offers as a Unix socket. The
guest may not read it. So nothing here waits for the channel: what does not fit is dropped, and
the guest is asked again when it says hello.
"""

import contextlib
import copy
import logging
import socket

from vcache_agent.dm import DmError
from vcache_agent.vssd.device import Device
from vcache_agent.vssd.session import Action, Force, Recall, Release, Send, Session, SetQuota, State
from vcache_guest.protocol import PREAMBLE, Call, Decoder, Message, Welcome, encode

LOG = logging.getLogger(__name__)

#: Most bytes read at a time; a guest that sends without end delays the host no longer than that.
_CHUNK = 1 << 16


class Server:
    """Serves one guest.

    :param device: its elastic SSD
    :param now: the time in seconds, of any clock
    :param deadline: see :class:`Session`
    """

    def __init__(self, device: Device, now: float = 0.0, deadline: float = 0.0) -> None:
        self._device = device
        self.session = Session(device.block_bytes, device.persist, device.state(), now, deadline)
        self._channel: socket.socket | None = None
        self._decoder = Decoder()

    def connect(self, channel: socket.socket, serial: str) -> None:
        """Use a channel; the one before, if any, is closed.

        :param serial: serial number of the disk
        """
        self.disconnect()
        channel.setblocking(False)
        self._channel, self._decoder = channel, Decoder()
        self._do(self.session.connected(serial))

    def disconnect(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        self.session.disconnected()

    @property
    def block_bytes(self) -> int:
        """Size of a block."""
        return self._device.block_bytes

    @property
    def most(self) -> int:
        """Size of the disk in blocks."""
        return self.session.most

    @property
    def persist(self) -> bool:
        """Whether its data is kept when the device is removed."""
        return self._device.persist

    @property
    def pool(self) -> str:
        """Device number of its pool."""
        return self._device.pool

    def state(self) -> State:
        """Return what the kernel reports of the device.

        :raises DmError: if it has disappeared
        """
        return self._device.state()

    def fileno(self) -> int:
        """Return the descriptor of the channel; -1: there is none."""
        return -1 if self._channel is None else self._channel.fileno()

    def resize(self, blocks: int, now: float, deadline: float) -> None:
        """Give the guest another size, see :meth:`Session.resize`.

        :raises DmError: if the kernel refuses it; then nothing has changed
        """
        before = copy.copy(self.session)
        try:
            self._do(self.session.resize(blocks, now, deadline))
        except DmError:
            # The change of the quota is the first action.
            self.session = before
            raise

    def step(self, now: float) -> None:
        """Read what the guest has sent, and go on. Call it each second, or when there is data."""
        for message in self._receive():
            self._do(self.session.received(message, now))
        self._do(self.session.observed(self._device.state(), now))

    def _receive(self) -> list[Message]:
        if self._channel is None:
            return []
        try:
            data = self._channel.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError as error:
            LOG.info("the channel of an elastic SSD has ended: %s", error)
            data = b""
        if not data:
            self.disconnect()
        return self._decoder.feed(data)

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(message):
                    self._send(message)
                case SetQuota(blocks, keep):
                    self._device.set_quota(blocks, keep=keep)
                case Release(ranges):
                    self._device.release(ranges)
                case Force():
                    self._do(self.session.forced(self._device.force()))
                case Recall():
                    self._do(self.session.recalled(self._device.taken()))

    def _send(self, message: Message) -> None:
        """Send a message whole, or end the channel: a part of one would be worse than none."""
        if self._channel is None:
            return
        data = (PREAMBLE if isinstance(message, Call | Welcome) else b"") + encode(message)
        sent = 0
        with contextlib.suppress(OSError):
            sent = self._channel.send(data)
        if sent != len(data):
            LOG.warning("a guest does not read the channel of its elastic SSD")
            self.disconnect()

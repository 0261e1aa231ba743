# SPDX-License-Identifier: Apache-2.0
"""Elastic SSDs: the side of the host.

``session.py`` decides, without I/O, what the host and the guest tell each other; ``device.py`` is
the device of the target ``vcache-vssd``; ``serve.py`` connects both with a channel. The messages
are those of ``vcache_guest.protocol``.
"""

# SPDX-License-Identifier: Apache-2.0
"""Live migration: the agents of both hosts agree before QEMU starts to copy.

::

    destination                                       source
    hook migrate ─► arrivals ─► relay ══ bus ══► relay ─► departures ─► worker: writethrough
    hook prepare ─► arrivals ◄─ relay ══ bus ══► relay ◄─ drained? settings of the operator
                       └► worker: flush-only, empty cache, until the guest runs here

libvirt waits for the destination's hook before it starts to copy, and there is no hook when
the guest moves. So the destination refuses in `prepare` unless the source has confirmed
that its volumes are on their origins and stay there. ``doc/source/admin/migration.rst``
describes this for operators.

=================  ====================================================================
`messages.py`      the messages between the agents, and their limits
`verdict.py`       pure decisions: may it come here, is it over at the source
`moves.py`         what is going on, with files that survive the agent
`departures.py`    the source's part
`arrivals.py`      the destination's part
`emptying.py`      releases what caches have of volumes that another host writes
`sights.py`        libvirt's state of the domains that migrate
`relay.py`         the client of the relay, which vcache-host provides
=================  ====================================================================
"""

# SPDX-License-Identifier: Apache-2.0
"""The decision what to change: libvirt's domains + the store + the kernel's tags → actions.

Pure functions, so that any state can be tested. :func:`.decide.decide` calls the
parts in this order; each has explicit inputs and outputs:

=============  ====================================================================
`identify.py`  the identity of each disk
`holders.py`   which layers belong to which disk, and which are shared
`assign.py`    the tag number of each disk and each shared layer
`remember.py`  the rows of the store for what is in use
`modes.py`     the mode that a disk gets on its device
`wanted.py`    the wanted state of each tag: name, weight, cgroups, mode, extents
`nesting.py`   the weights of disks in nested shares
`release.py`   tags and rows that no domain uses
`divide.py`    the range and the lanes of each tag in its pool
`actions.py`   the difference between the wanted tags and the kernel's
=============  ====================================================================

`state.py` has the inputs and outputs of the whole decision.

The decision is idempotent: after its actions have been applied, it returns no
further actions, even if an earlier run was interrupted. So the agent handles its
start and every event in the same way.
"""

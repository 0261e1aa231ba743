# SPDX-License-Identifier: Apache-2.0
"""vcache-host, which connects the agent of a compute host with OpenStack."""

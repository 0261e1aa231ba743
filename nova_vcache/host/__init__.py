# SPDX-License-Identifier: Apache-2.0
"""vcache-host: OpenStack's side of a compute host, beside its agent."""

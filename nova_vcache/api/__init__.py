# SPDX-License-Identifier: Apache-2.0
"""vcache-api: hosts, pools, instances and flavors over HTTP."""

# SPDX-License-Identifier: Apache-2.0
"""What tenants with different working sets get of one cache."""

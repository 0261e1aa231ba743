# SPDX-License-Identifier: Apache-2.0
"""nova-scheduler's filter and weigher."""

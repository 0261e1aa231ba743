# SPDX-License-Identifier: Apache-2.0
"""Cost of the filter and the weigher for the scheduler: ``make bench-scheduler``."""

# SPDX-License-Identifier: Apache-2.0
"""What filter and weigher cost the scheduler: ``make bench-scheduler``."""

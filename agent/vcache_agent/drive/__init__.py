# SPDX-License-Identifier: Apache-2.0
"""What a drive does when data must become durable."""

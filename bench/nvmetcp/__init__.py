# SPDX-License-Identifier: Apache-2.0
"""Speed of the emulated SSD's controller: python -m bench.nvmetcp."""

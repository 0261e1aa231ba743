# SPDX-License-Identifier: Apache-2.0
"""The speed of the emulated SSD's controller: python -m bench.nvmetcp."""

# SPDX-License-Identifier: Apache-2.0
"""Tests of the NVMe/TCP controller, firmware/nvmetcp."""

# SPDX-License-Identifier: Apache-2.0
"""Tests of the firmware on the host's NAND model."""

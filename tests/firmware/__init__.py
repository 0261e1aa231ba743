# SPDX-License-Identifier: Apache-2.0
"""Tests of the firmware on the NAND model of the host."""

# SPDX-License-Identifier: Apache-2.0
"""Instances that move between two compute hosts."""

# SPDX-License-Identifier: Apache-2.0
"""Instances that change between two compute hosts."""

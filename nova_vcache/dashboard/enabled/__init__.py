# SPDX-License-Identifier: Apache-2.0
"""Horizon's files for enabled plug-ins."""

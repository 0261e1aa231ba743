# SPDX-License-Identifier: Apache-2.0
"""Restarts of a host under a real systemd: make reboot-test."""

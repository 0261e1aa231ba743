# SPDX-License-Identifier: Apache-2.0
"""Tests with two hosts that share a disk: two machines, each with libvirtd, agent, target."""

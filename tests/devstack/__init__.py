# SPDX-License-Identifier: Apache-2.0
"""Tests of the devstack plugin, by phase, with devstack's functions, in a copy of this root."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# SPDX-License-Identifier: Apache-2.0
"""The devstack plugin, phase by phase, with devstack's own functions, in a copy of this root."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

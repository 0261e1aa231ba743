# SPDX-License-Identifier: Apache-2.0
"""Fixtures of several files."""

from tests.unit.locate_model import hanging, thread_helpers

__all__ = ["hanging", "thread_helpers"]

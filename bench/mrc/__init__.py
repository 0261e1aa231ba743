# SPDX-License-Identifier: Apache-2.0
"""Accuracy and speed of miss-ratio curves."""

# SPDX-License-Identifier: Apache-2.0
"""Erases and write amplification: images on the SSD itself, and cached in it."""

# SPDX-License-Identifier: Apache-2.0
"""Erases and write amplification of images on the SSD, and behind it as a cache."""

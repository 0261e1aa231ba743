# SPDX-License-Identifier: Apache-2.0
"""Tests of native/core on the host, under sanitizers."""

# SPDX-License-Identifier: Apache-2.0
"""Horizon in Chromium, with a real Keystone, Nova API, vcache-api and vcache-host."""

# SPDX-License-Identifier: Apache-2.0
"""Tests with Django's test runner and Horizon's test case: make horizon-test."""

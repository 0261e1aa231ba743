# SPDX-License-Identifier: Apache-2.0
"""Instances on the all-in-one, observed on the host."""

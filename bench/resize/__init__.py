# SPDX-License-Identifier: Apache-2.0
"""How fast shares and the pool change their size, and how near tags come to their weights."""

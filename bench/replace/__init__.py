# SPDX-License-Identifier: Apache-2.0
"""What the rules of replacement miss, beside those of others."""

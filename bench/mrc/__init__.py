# SPDX-License-Identifier: Apache-2.0
"""How near and how fast miss-ratio curves are."""

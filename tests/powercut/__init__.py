# SPDX-License-Identifier: Apache-2.0
"""Power cuts: what survives on the origin at any moment, judged by the contract."""

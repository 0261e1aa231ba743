# SPDX-License-Identifier: Apache-2.0
"""Power cuts: compare the data on the origin at any moment with the contract."""

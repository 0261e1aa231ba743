# SPDX-License-Identifier: Apache-2.0
"""Speed of size changes of shares and the pool, and accuracy of weights."""

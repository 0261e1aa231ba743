# SPDX-License-Identifier: Apache-2.0
"""Cost of a request without flushes: python -m bench.overhead."""

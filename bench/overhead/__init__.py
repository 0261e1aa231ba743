# SPDX-License-Identifier: Apache-2.0
"""What a request costs without any flush: python -m bench.overhead."""

# SPDX-License-Identifier: Apache-2.0
"""Miss ratios of the replacement rules, compared with other policies."""

# SPDX-License-Identifier: Apache-2.0
"""Hot data in shared lanes, and the cost of its migration to dedicated lanes."""

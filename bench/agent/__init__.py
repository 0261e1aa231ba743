# SPDX-License-Identifier: Apache-2.0
"""The cost of the agent's work, and of what it asks of the kernel."""

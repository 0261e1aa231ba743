# SPDX-License-Identifier: Apache-2.0
"""What becomes of instances on the all-in-one, looked at on the host."""

# SPDX-License-Identifier: Apache-2.0
"""Write amplification of the emulated SSD under four tenants with placement handles."""

# SPDX-License-Identifier: Apache-2.0
"""What vcache-api and the hosts say to each other over oslo.messaging."""

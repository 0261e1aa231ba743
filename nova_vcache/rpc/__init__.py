# SPDX-License-Identifier: Apache-2.0
"""The RPC interfaces between vcache-api and the hosts, over oslo.messaging."""

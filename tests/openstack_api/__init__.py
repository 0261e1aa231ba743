# SPDX-License-Identifier: Apache-2.0
"""vcache-api and vcache-host with Keystone, Placement and RabbitMQ, on loopback."""

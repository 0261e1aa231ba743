# SPDX-License-Identifier: Apache-2.0
"""vcache-api with up to 1,000 hosts that report, over a real RabbitMQ: make bench-api."""

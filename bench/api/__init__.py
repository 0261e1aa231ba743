# SPDX-License-Identifier: Apache-2.0
"""vcache-api with up to 1,000 reporting hosts on RabbitMQ: make bench-api."""

# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL and SQLite on a cache, alone and beside other tenants, compared with other caches."""

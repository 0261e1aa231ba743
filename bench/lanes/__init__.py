# SPDX-License-Identifier: Apache-2.0
"""How hot shared lanes get, and what it costs to have what is hot in a tag's own."""

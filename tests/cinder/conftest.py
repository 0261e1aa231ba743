# SPDX-License-Identifier: Apache-2.0
"""What cinder-volume does before it imports a driver."""

import os

# In a box, cloud.py imports Cinder's tests, which do it.
if not os.environ.get("VCACHE_BOX"):
    from cinder import objects

    objects.register_all()

# SPDX-License-Identifier: Apache-2.0
"""Settings of the Horizon that is served: its defaults, and what every installation sets.

Our own settings come from the files of which .ci/horizon-venv makes links, as in an installation.
"""

import os

from openstack_dashboard.settings import *  # noqa: F403,H303

_FOLDER = os.environ["HORIZON_FOLDER"]

SECRET_KEY = "of a test"  # noqa: S105
ALLOWED_HOSTS = ["127.0.0.1"]
OPENSTACK_KEYSTONE_URL = os.environ["HORIZON_KEYSTONE"]
CACHES = {"default": {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
                      "LOCATION": f"{_FOLDER}/cache"}}
SESSION_ENGINE = "django.contrib.sessions.backends.file"
SESSION_FILE_PATH = f"{_FOLDER}/sessions"
# Made once by .ci/horizon-venv, in Horizon's own folder.
COMPRESS_OFFLINE = True
# A machine that is busy draws pages late, and a message that has faded cannot be read.
HORIZON_CONFIG["auto_fade_alerts"] = {  # noqa: F405
    "delay": 600000, "fade_duration": 1500, "types": []}

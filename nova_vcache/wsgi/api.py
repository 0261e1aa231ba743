# SPDX-License-Identifier: Apache-2.0
"""vcache-api for a WSGI server: ``uwsgi --module nova_vcache.wsgi.api:application``.

Configuration: the files of the environment variable ``OS_VCACHE_CONFIG_FILES``, separated
by ``;``, or ``/etc/vcache/vcache-api.conf``.
"""

from nova_vcache.api.app import init_application

application = init_application()

# SPDX-License-Identifier: Apache-2.0
"""Glance, and a network service that has nothing."""

from pathlib import Path

from tests.cloud.control import Control
from tests.cloud.processes import BIN, free_port, run, uwsgi

_GLANCE = """
[DEFAULT]
enabled_backends = file:file
[database]
connection = {database}
[glance_store]
default_backend = file
[file]
filesystem_store_datadir = {folder}/images
[paste_deploy]
flavor = keystone
config_file = {etc}/glance/glance-api-paste.ini
"""


def start(cloud: Control, user: str) -> str:
    """Start both for a cloud. Return Glance's URL.

    :param user: as whom Glance checks tokens
    """
    path = cloud.write("glance-api.conf", _GLANCE, cloud.tokens(user),
                       database=cloud.database("glance"), etc=BIN.parent / "etc")
    run(cloud.folder, "glance-manage", "glance-manage", "--config-file", str(path), "db_sync")
    port = free_port()
    made = uwsgi(cloud.folder, "glance", "glance.wsgi.api", port,
                 OS_GLANCE_CONFIG_DIR=str(cloud.folder),
                 OS_GLANCE_CONFIG_FILES="glance-api.conf")
    cloud.at_end("glance", made.stop, made)
    url = f"http://127.0.0.1:{port}"
    cloud.register("image", url)
    port = free_port()
    made = uwsgi(cloud.folder, "network", "tests.cloud.network", port,
                 PYTHONPATH=str(Path(__file__).parents[2]))
    cloud.at_end("network", made.stop, made)
    cloud.register("network", f"http://127.0.0.1:{port}")
    return url

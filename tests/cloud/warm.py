# SPDX-License-Identifier: Apache-2.0
"""Import all that the command openstack imports, for shell.py: it forks from what has done so."""

import contextlib
import os
import sys

# Its name in messages, which it takes from here.
sys.argv = ["openstack"]

from openstackclient import shell  # noqa: E402

with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), \
        contextlib.suppress(SystemExit):
    shell.main(["vcache", "host", "list", "--help"])

# SPDX-License-Identifier: Apache-2.0
"""What has to be set before Nova is imported."""

import os

# Nova's own switch: no test of ours patches the interpreter.
os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"

from nova import monkey_patch

# Before a test's imports bring eventlet in, which Nova's own would then refuse.
monkey_patch.patch()

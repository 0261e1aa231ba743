# SPDX-License-Identifier: Apache-2.0
# Horizon executes this file in its settings, so the names are those of its settings.
import os.path

import nova_vcache.dashboard

# The file of an operator, in POLICY_FILES_PATH; it need not exist.
POLICY_FILES["vcache"] = "vcache_policy.yaml"
DEFAULT_POLICY_FILES["vcache"] = os.path.join(
    os.path.dirname(nova_vcache.dashboard.__file__), "conf/default_policies/vcache.yaml")

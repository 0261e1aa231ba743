# SPDX-License-Identifier: Apache-2.0
"""Put instances into Nova's database, as nova-compute leaves them: there is none in this cloud.

seed.py CONFIG PROJECT USER FLAVOR UUID=NAME=HOST ...
"""

import sys

from nova import config, context, objects
from nova.network import model
from nova.objects import cell_mapping, instance_mapping

objects.register_all()
config.parse_args(["seed", "--config-file", sys.argv[1]])
project, user, flavor = sys.argv[2:5]
made = context.RequestContext(user, project, is_admin=True)
(cell,) = [item for item in cell_mapping.CellMappingList.get_all(made) if not item.is_cell0()]
kind = objects.Flavor.get_by_name(made, flavor)
for uuid, name, host in (text.split("=") for text in sys.argv[5:]):
    instance_mapping.InstanceMapping(
        made, instance_uuid=uuid, cell_mapping=cell, project_id=project, user_id=user,
        queued_for_delete=False).create()
    with context.target_cell(made, cell) as inside:
        found = objects.Instance(
            inside, uuid=uuid, display_name=name, hostname=name, project_id=project, user_id=user,
            host=host, node=host, compute_id=1, vm_state="active", power_state=1, flavor=kind,
            memory_mb=512, vcpus=1, root_gb=1, ephemeral_gb=0, instance_type_id=kind.id,
            image_ref="", launched_on=host, metadata={}, system_metadata={}, old_flavor=None,
            new_flavor=None, info_cache=objects.InstanceInfoCache(
                inside, instance_uuid=uuid, network_info=model.NetworkInfo([])))
        found.create()

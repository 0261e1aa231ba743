#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1090,SC1091,SC2034,SC2154 # devstack's files are not here
#
# node.sh MODE [PHASE]: call the plugins like stack.sh, unstack.sh and clean.sh.
# node.sh prepare: do the steps of stack.sh before it calls them, as far as they depend on these.

TOP_DIR=/opt/stack/devstack
cd "$TOP_DIR" || exit
FILES=$TOP_DIR/files
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export LC_ALL=C.UTF-8

source "$TOP_DIR/functions"
source "$TOP_DIR/lib/stack"
GetDistro
rm -f "$TOP_DIR/.localrc.auto"
extract_localrc_section "$TOP_DIR/local.conf" "$TOP_DIR/localrc" "$TOP_DIR/.localrc.auto"
source "$TOP_DIR/stackrc"
set -o errexit
trap 'echo "node.sh: failed in line $LINENO of ${BASH_SOURCE[0]}: $BASH_COMMAND" >&2' ERR

# stack.sh defines this function itself, and asks for the password.
function echo_summary {
    echo "== $*"
}
SERVICE_PASSWORD=secret
ADMIN_PASSWORD=secret
DATABASE_TYPE=mysql
BASE_SQL_CONN=mysql+pymysql://root:secret@127.0.0.1

for library in database rpc_backend host; do
    source "$TOP_DIR/lib/$library"
done
run_phase override_defaults
for library in apache tls infra libraries lvm horizon keystone glance nova placement cinder \
        swift neutron ldap dstat atop tcpdump etcd3 os-vif; do
    source "$TOP_DIR/lib/$library"
done
run_phase source
KEYSTONE_SERVICE_URI=$LAB_KEYSTONE
export PATH=$DEVSTACK_VENV/bin:$PATH
PYTHON=$DEVSTACK_VENV/bin/python3

if [[ "$1" == "prepare" ]]; then
    rm -rf "$SYSTEMD_DIR"/devstack@*
    if [[ -n "$LAB_CLOUD" ]]; then
        write_clouds_yaml
    fi
    sudo install -d -o "$STACK_USER" "$NOVA_CONF_DIR" "$NOVA_STATE_PATH" "$NOVA_INSTANCES_PATH"
    # The plugin does not use the virtual hosts of the cells.
    function rpc_backend_add_vhost {
        :
    }
    create_nova_conf
    configure_placement_nova_compute
else
    run_phase "$@"
fi

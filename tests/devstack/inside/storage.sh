#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034,SC2154 # lib/storage uses what is set here, and sets the rest
#
# storage.sh VENV: in the box, run the plugin's lib/storage with a real target, loop devices
# and file systems. test_storage.py reads the output after lines that begin with "==".
set -o errexit
here=$(cd "$(dirname "$0")" && pwd)
PATH=$1/bin:$PATH:/usr/sbin:/sbin

# The box has only root, and devstack's functions are not tested here.
function sudo {
    "$@"
}
function die {
    echo "== died: ${*:2}"
    exit 1
}
function say {
    echo "== $*"
}

STACK_USER=daemon
DATA_DIR=/run/data
NOVA_INSTANCES_PATH=$DATA_DIR/instances
VCACHE_INSTANCES_NAME=vcache-instances
VCACHE_INSTANCES_SIZE=256M
VCACHE_POOL_NAME=vcache-pool
VCACHE_POOL_SIZE=128M
VCACHE_MODE=writeback
source "$here/../../../devstack/lib/storage"

# Print the state of a node: mount, owner, file, device-mapper targets, loop devices.
function look {
    local file=$NOVA_INSTANCES_PATH/file
    say "$1: mount $(findmnt -no SOURCE,FSTYPE "$NOVA_INSTANCES_PATH" | xargs)"
    say "$1: owner $(stat -c %U "$NOVA_INSTANCES_PATH" 2>/dev/null)"
    say "$1: file $(sha256sum <"$file" 2>/dev/null)"
    say "$1: tables $(dmsetup table 2>/dev/null | awk '/: / { print $1, $4, ($4 == "vcache" ? $5 : "") }' | sort | xargs)"
    say "$1: loops $(losetup -n -O BACK-FILE | sort | xargs)"
}

modprobe loop
python -m tests.box.inside module-load
init_vcache_storage
head -c 8M /dev/urandom >"$NOVA_INSTANCES_PATH/file"
sync
look first
init_vcache_storage
look again
# As after a restart of the host: memory is lost, the data on devices remains.
umount "$NOVA_INSTANCES_PATH"
dmsetup remove "$VCACHE_INSTANCES_NAME"
dmsetup remove "$VCACHE_POOL_NAME"
losetup -D
init_vcache_storage
look restarted
cleanup_vcache_storage
look cleaned
cleanup_vcache_storage
VCACHE_MODE=flush-only
init_vcache_storage
look flush-only
umount "$NOVA_INSTANCES_PATH"
mount -t tmpfs other "$NOVA_INSTANCES_PATH"
(init_vcache_storage) || say "refused"
umount "$NOVA_INSTANCES_PATH"
cleanup_vcache_storage
look end

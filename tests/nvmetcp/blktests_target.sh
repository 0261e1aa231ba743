#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# blktests calls this script to control its target: NVME_TARGET_CONTROL (blktests,
# Documentation/running-tests.md). blktests.sh sets the variables.
#   VCACHE_SSD      the program
#   VCACHE_RUN      folder for its output and process ID
#   VCACHE_UUID     of its first namespace
set -u
nqn=nqn.2026-01.org.example:blktests
hostid=0f01fb42-9f7f-4856-b0b3-51e60b8de349

config() {
    case $1 in
    --show-blkdev-type) echo device ;;
    --show-trtype) echo tcp ;;
    --show-hostnqn) echo "nqn.2014-08.org.nvmexpress:uuid:$hostid" ;;
    --show-hostid) echo $hostid ;;
    --show-host-traddr | --show-traddr) echo 127.0.0.1 ;;
    --show-trsvid) echo 4420 ;;
    --show-subsysnqn) echo $nqn ;;
    --show-subsys-uuid) echo "${VCACHE_UUID:-}" ;;
    esac
}

stop() {
    [ -e "$VCACHE_RUN/pid" ] || return 0
    kill "$(cat "$VCACHE_RUN/pid")" 2> /dev/null
    while kill -0 "$(cat "$VCACHE_RUN/pid")" 2> /dev/null; do sleep 0.1; done
    rm -f "$VCACHE_RUN/pid"
}

# A new SSD each time, in memory, like the new file of blktests' own target.
setup() {
    stop
    : > "$VCACHE_RUN/out"
    "$VCACHE_SSD" --size 256M --nqn $nqn > "$VCACHE_RUN/out" 2>> "$VCACHE_RUN/errors" &
    echo $! > "$VCACHE_RUN/pid"
    until [ -s "$VCACHE_RUN/out" ]; do
        kill -0 "$(cat "$VCACHE_RUN/pid")" || return 1
        sleep 0.1
    done
}

command=$1
shift
case $command in
config) config "$@" ;;
setup) setup ;;
cleanup) stop ;;
*) exit 1 ;; # add-ports: one already exists
esac

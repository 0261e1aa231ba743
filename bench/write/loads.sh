#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs in the box, in virtual time: up to four tenants write through each cache
# in turn. fio's results go to the folder $1, one file for each stack, load and
# number of tenants, with what the disks saw beside it.
# shellcheck disable=SC2034 # peers/stacks.sh uses what is set here
set -eu
name=bench-write
out=$1
module=$2
shift 2
tenants=4
region=48
slice=60
. "$(dirname "$0")/../peers/stacks.sh"

load() { # stack, load, tenants
    run "$1-$2-$3" size=32m "runtime=${SECONDS_EACH:-3}"
}

measure() { # stack
    stack=$1
    # Every block exists and, where there is a cache, is in it.
    for t in $(seq $tenants); do
        fio --name=fill --filename="$(device "$t")" --ioengine=psync --direct=1 --size=32m \
            --rw=write --bs=64k --loops=2 --end_fsync=1 --allow_file_create=0 >/dev/null
    done
    sleep 20
    for n in 1 2 4; do
        for t in $(seq $n); do
            job "$t" rw=randwrite bs=4k fsync=1
        done | load "$stack" sync "$n"
        for t in $(seq $n); do
            job "$t" rw=randrw rwmixread=70 bs=4k fsync=16
        done | load "$stack" mixed "$n"
        for t in $(seq $n); do
            job "$t" rw=write bs=256k fsync=64
        done | load "$stack" sequential "$n"
        # One that never syncs, at a rate that all of them can keep; the others sync.
        for t in $(seq $n); do
            if [ "$t" = 1 ]; then
                job 1 rw=randwrite bs=16k rate_iops=400
            else
                job "$t" rw=randwrite bs=4k fsync=1
            fi
        done | load "$stack" neighbour "$n"
    done
}

measure_all "$@"

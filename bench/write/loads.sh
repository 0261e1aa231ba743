#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs in the box, in virtual time: up to four tenants write through the cache $4. The
# results of fio and the counters of the disks go to the folder $1, one file for each
# stack, load and number of tenants. $3 is "fits" for loads that the SSD holds, or
# "outrun" for one that is faster than the slow disk for minutes.
# shellcheck disable=SC2034 # peers/stacks.sh uses what is set here
set -eu
name=bench-write
out=$1
module=$2
setup=$3
shift 3
case $setup in
fits)
    tenants=4
    region=48
    slice=60
    ;;
outrun)
    tenants=2
    region=248
    slice=48
    ;;
esac
. "$(dirname "$0")/../peers/stacks.sh"

load() { # stack, load, tenants
    run "$1-$2-$3" size=32m "runtime=${SECONDS_EACH:-3}"
}

# Tenant 1 writes more than the SSD has, as fast as it can. Tenant 2 needs a small
# part of what the SSD and the disk can do.
outrun() {
    {
        job 1 size=240m rw=randwrite bs=4k fsync=16
        job 2 size=8m rw=randwrite bs=4k fsync=1 rate_iops=20
    } | run "$1-outrun-2" "runtime=${SECONDS_OUTRUN:-120}"
}

measure() { # stack
    "$setup" "$1"
}

fits() {
    stack=$1
    # Write every block, so that it exists and is in the cache, if there is one.
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
        # A tenant that never syncs, at a rate that all stacks can serve; the others sync.
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

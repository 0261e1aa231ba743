#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs in the box, in virtual time. Two or four tenants ($3), with working sets of
# different sizes, read and write through one cache, the stack $4. The results of fio
# and the counters of the disks go to the folder $1, one file for each load.
# shellcheck disable=SC2034 # peers/stacks.sh uses what is set here
set -eu
name=bench-cache
out=$1
module=$2
tenants=$3
shift 3
# The SSD has 192 MiB for all tenants. Their working sets have 320 MiB.
region=248
slice=$((192 / tenants))
case $tenants in
2) sets='48 240' ;;
4) sets='16 48 96 160' ;;
esac
. "$(dirname "$0")/../peers/stacks.sh"

set_of() { # tenant: MiB that it uses
    echo "$sets" | cut -d ' ' -f "$1"
}

# Some blocks are used more often than others, as on real disks. They are the same in
# all loads, so that the cache is warm. Without a given start, fio derives their
# place from the seed.
skewed='random_distribution=zipf:0.9:0.5'

reads() {
    for t in $(seq $tenants); do
        job "$t" "size=$(set_of "$t")m" rw=randread bs=4k $skewed
    done
}

# Tenant 1 is a database. The others read, and write without syncs.
mixed() {
    job 1 "size=$(set_of 1)m" rw=randwrite bs=4k fsync=1 $skewed
    for t in $(seq 2 $tenants); do
        job "$t" "size=$(set_of "$t")m" rw=randrw rwmixread=70 bs=4k $skewed
    done
}

# A tenant whose working set fits into its share, at a rate that the cache can serve;
# then the same beside others whose reads and synced writes do not fit.
alone() {
    job 1 "size=$(set_of 1)m" rw=randread bs=4k rate_iops=1000
}

neighbours() {
    alone
    for t in $(seq 2 $tenants); do
        job "$t" "size=${region}m" rw=randrw rwmixread=50 bs=4k fsync=8
    done
}

# vcache whose shares follow the policy mrc while a load is warmed; see divide.py.
vcache_mrc() {
    control=/run/divide
    mkdir -p $control
    "$PYTHON" -m bench.cache.divide mrc $control >"$out/divide-$tenants.log" 2>&1 &
    while [ ! -e $control/ready ]; do
        kill -0 $! # ends the run if the process has failed
        sleep 1
    done
    vcache vcache-mrc
    touch $control/end
    wait
    rm -r $control
}

# Twice: the first run warms the cache, with another sequence.
measure_load() { # load, seconds for warming
    seed=100
    [ ! -d "${control:-}" ] || touch "$control/divide"
    "$1" | run "$stack-$1-$tenants-warm" "runtime=$2"
    seed=0
    [ ! -d "${control:-}" ] || rm "$control/divide"
    "$1" | run "$stack-$1-$tenants" "runtime=${SECONDS_EACH:-3}"
}

measure() { # stack
    stack=$1
    # Write every block. The newest are in the cache, if it caches writes.
    for t in $(seq $tenants); do
        fio --name=fill --filename="$(device "$t")" --ioengine=psync --direct=1 \
            --size="$(set_of "$t")m" --rw=write --bs=256k --end_fsync=1 \
            --allow_file_create=0 >/dev/null
    done
    sleep 60
    measure_load reads "${SECONDS_WARM:-30}"
    measure_load mixed 6
    measure_load alone 6
    measure_load neighbours 3
}

measure_all "$@"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs in the box, in virtual time: a database on tenant 1, alone and beside tenant 2, on one
# stack. Writes to the folder $1 the transactions, fio's results and the counters of the disks,
# one file for each load.
#
# Arguments: folder for results, module, archive with the data folder of PostgreSQL, MiB of SSD
# for each tenant, number of the run, loads ("alone quiet busy second sqlite"), stack.
# Environment: SECONDS_WARM, SECONDS_EACH.
# shellcheck disable=SC2034 # peers/stacks.sh uses what is set here
set -eu
name=bench-database
out=$1
module=$2
template=$3
slice=$4
seed=$5
loads=$6
shift 6
tenants=2
region=248
warm=${SECONDS_WARM:-10}
each=${SECONDS_EACH:-20}
. "$(dirname "$0")/../peers/stacks.sh"
here=$(dirname "$0")
programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)

as_postgres() {
    runuser -u postgres -- "$@"
}

# Put a database on a tenant's disk, and start it.
start() { # tenant
    mkfs.ext4 -q -b 4096 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$(device "$1")"
    mkdir -p "/run/db$1"
    mount "$(device "$1")" "/run/db$1"
    tar -C "/run/db$1" -xf "$template"
    sync -f "/run/db$1"
    as_postgres "$programs/pg_ctl" -s -w -t 600 -D "/run/db$1/data" -l "/tmp/postgres$1.log" \
        -o "-p $((5432 + $1)) -k /tmp" start
}

# Save the counters, the times of the processor, and how much vcache has relocated.
save() { # name of the file
    snapshot "$1"
    head -n 1 /proc/stat >"$out/$1.cpu"
    [ "$stack" != vcache ] || dmsetup status pool >"$out/$1.pool"
}

stop() { # tenant
    as_postgres "$programs/pg_ctl" -s -w -t 600 -D "/run/db$1/data" -m fast stop
    umount "/run/db$1"
}

bench() { # tenant, seconds, name of the results
    (
        cd /tmp
        as_postgres "$programs/pgbench" -n -h /tmp -p $((5432 + $1)) -c 4 -j 1 -T "$2" \
            --random-seed=$((seed * 100 + $1)) -l --log-prefix="/tmp/log$1" bench \
            >"/tmp/pgbench$1" 2>&1
    ) || { cat "/tmp/pgbench$1" "/tmp/postgres$1.log" >&2; exit 1; }
    cat /tmp/log"$1".* >"$3"
    rm -f /tmp/log"$1".*
}

# Jobs of fio for tenant 2 are on standard input, if a neighbour is to run.
beside() { # load
    result=$stack-$slice-$seed-$1
    {
        echo '[global]'
        printf '%s\n' ioengine=psync direct=1 randrepeat=0 allow_file_create=0 time_based \
            thread "runtime=$each"
        cat
    } >"$out/$result.fio"
    save "$result.before"
    if [ -s "$out/$result.fio" ] && grep -q filename "$out/$result.fio"; then
        fio --output-format=json --output="$out/$result.json" "$out/$result.fio" &
        neighbour=$!
    else
        neighbour=
    fi
    [ "$1" != second ] || { bench 2 "$each" "$out/$result.log2" & neighbour=$!; }
    bench 1 "$each" "$out/$result.log"
    [ -z "$neighbour" ] || wait "$neighbour"
    save "$result.after"
    echo "$name: $result"
}

alone() {
    beside alone </dev/null
}

# Writes at a rate that all stacks can serve, and never syncs.
quiet() {
    job 2 size=64m rw=randwrite bs=16k rate_iops=200 | beside quiet
}

# Reads and writes as fast as it can.
busy() {
    job 2 size=64m rw=randrw rwmixread=70 bs=4k | beside busy
}

second() {
    start 2
    beside second </dev/null
    stop 2
}

# In place of PostgreSQL.
sqlite() {
    result=$stack-$slice-$seed-sqlite
    stop 1
    mount "$(device 1)" /run/db1
    save "$result.before"
    /usr/bin/python3 "$here/sqlite.py" /run/db1/sqlite "$each" "$seed" >"$out/$result.log"
    save "$result.after"
    umount /run/db1
    echo "$name: $result"
}

measure() { # stack
    stack=$1
    start 1
    bench 1 "$warm" /dev/null
    for load in $loads; do
        "$load"
    done
    ! mountpoint -q /run/db1 || stop 1
}

measure_all "$@"

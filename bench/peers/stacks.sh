# SPDX-License-Identifier: Apache-2.0
# Sourced by the benchmarks' scripts in the box, in virtual time: caches on one SSD
# in front of one slow disk, and functions to run fio on them.
#
# The SSD is a null_blk with a volatile cache. A request takes 80 us. A FLUSH takes
# as long as writing back all data in the cache, of any tenant. The origins are on one
# disk that executes one request at a time, 4 ms each, of any size. The SSD does not
# support discards: null_blk would free its memory, which takes half a millisecond of
# the only processor per MiB. No SSD does this.
#
# Variables to set before sourcing:
#   name      of the benchmark, for messages
#   out       folder for results
#   module    dm-vcache.ko
#   tenants   how many disks there are
#   region    MiB of such a disk
#   slice     MiB of the SSD for each tenant, under peers without sharing; the
#             others have the sum of them
# The function `measure STACK` must run loads on the disks $(device 1), ...
config=/sys/kernel/config/nullb
dsync=no # whether each write is durable when it completes, and there is no fsync

disk() { # name, MiB, then attribute=value
    mkdir "$config/$1"
    folder=$config/$1
    echo "$2" >"$folder/size"
    echo 1 >"$folder/memory_backed"
    echo 2 >"$folder/irqmode"
    echo 1 >"$folder/submit_queues"
    shift 2
    for setting; do
        echo "${setting#*=}" >"$folder/${setting%%=*}"
    done
    echo 1 >"$folder/power"
}

drop() {
    echo 0 >"$config/$1/power"
    rmdir "$config/$1"
}

sectors() { # MiB
    echo $(($1 * 2048))
}

hardware() {
    disk ssd $((tenants * slice + 16)) completion_nsec=80000 hw_queue_depth=64 \
        cache_size=$((tenants * slice + 16))
    disk hdd $((tenants * (region + 16))) completion_nsec=4000000 hw_queue_depth=1
    for t in $(seq $tenants); do
        dmsetup create "origin$t" --table \
            "0 $(sectors $region) linear /dev/hdd $(sectors $(((t - 1) * (region + 16))))"
        dmsetup create "fast$t" --table \
            "0 $(sectors $slice) linear /dev/ssd $(sectors $(((t - 1) * slice)))"
    done
}

strip() {
    for t in $(seq $tenants); do
        dmsetup remove --retry "origin$t"
        dmsetup remove --retry "fast$t"
    done
    drop ssd
    drop hdd
}

job() { # tenant, fio arguments of its own; $seed, if set, gives another sequence
    t=$1
    shift
    echo "[tenant$t]"
    echo "filename=$(device "$t")"
    echo "randseed=$((t + ${seed:-0}))"
    for line; do
        echo "$line"
    done
}

# Save the counters of the disks and of the volume of tenant 1.
snapshot() { # name of the file
    for disk in /dev/ssd /dev/hdd "$(device 1)"; do
        cat "/sys/dev/block/$(stat -L -c %Hr:%Lr "$disk")/stat"
    done >"$out/$1"
}

run() { # name of the results, then lines for all jobs; the jobs are on standard input
    result=$1
    shift
    {
        echo '[global]'
        printf '%s\n' ioengine=psync direct=1 randrepeat=0 allow_file_create=0 time_based \
            thread group_reporting=0 "$@"
        if [ "$dsync" = yes ]; then
            echo sync=dsync
            sed '/^fsync=/d'
        else
            cat
        fi
    } >"$out/$result.fio"
    snapshot "$result.before"
    fio --output-format=json --output="$out/$result.json" "$out/$result.fio"
    snapshot "$result.after"
    echo "$name: $result"
}

prepare() {
    # After each load, udevd would examine the disks during the next load, on the
    # only processor.
    udevadm control --exit
    while udevadm control --ping --timeout 1 2>/dev/null; do sleep 0.1; done
    rm -f /run/udev/control # else dmsetup says that udev runs and does not answer
    export DM_DISABLE_UDEV=1
    mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
    modprobe null_blk nr_devices=0
    modprobe -a dm-mod libcrc32c dm-cache dm-cache-smq dm-writecache bcache
    insmod "$module"
}

dm_cache() {
    hardware
    for t in $(seq $tenants); do
        disk "meta$t" 16 completion_nsec=80000
        dmsetup create "t$t" --table \
            "0 $(sectors $region) cache /dev/meta$t /dev/mapper/fast$t /dev/mapper/origin$t 64 1 writeback smq 0"
    done
    device() { echo "/dev/mapper/t$1"; }
    measure dm-cache
    for t in $(seq $tenants); do
        dmsetup remove --retry "t$t"
        drop "meta$t"
    done
    strip
}

dm_writecache() {
    hardware
    for t in $(seq $tenants); do
        dmsetup create "t$t" --table \
            "0 $(sectors $region) writecache s /dev/mapper/origin$t /dev/mapper/fast$t 4096 0"
    done
    device() { echo "/dev/mapper/t$1"; }
    measure dm-writecache
    for t in $(seq $tenants); do
        dmsetup remove --retry "t$t"
    done
    strip
}

vcache() { # another name of the stack
    hardware
    dmsetup create pool --table "0 $(sectors $((tenants * slice))) vcache-pool /dev/ssd"
    for t in $(seq $tenants); do
        dmsetup create "t$t" --table \
            "0 $(sectors $region) vcache writeback /dev/mapper/origin$t volume $t 3 pool /dev/mapper/pool $t"
    done
    device() { echo "/dev/mapper/t$1"; }
    measure "${1:-vcache}"
    dmsetup status pool >"$out/vcache.status"
    for t in $(seq $tenants); do
        dmsetup status "t$t" >>"$out/vcache.status"
        dmsetup remove --retry "t$t"
    done
    dmsetup remove --retry pool
    strip
}

# No cache: the disks are on the SSD itself. QEMU with cache=directsync opens an image with
# O_DSYNC, and its guest has no write cache to flush.
directsync() {
    own=$slice
    [ "$slice" -ge "$region" ] || slice=$region # all data must fit
    hardware
    device() { echo "/dev/mapper/fast$1"; }
    dsync=yes
    measure directsync
    dsync=no
    strip
    slice=$own
}

# One cache set for all, as intended by bcache. Last, since it cannot be removed.
bcache() {
    hardware
    # It needs the whole SSD.
    for t in $(seq $tenants); do
        dmsetup remove --retry "fast$t"
    done
    # Created together, they are attached automatically. The buckets are small, since
    # bcache refuses an SSD with fewer than 513.
    make-bcache --writeback --bucket 128k -C /dev/ssd \
        -B $(for t in $(seq $tenants); do echo "/dev/mapper/origin$t"; done) >/dev/null
    for disk in /dev/ssd $(for t in $(seq $tenants); do echo "/dev/mapper/origin$t"; done); do
        echo "$disk" 2>/dev/null >/sys/fs/bcache/register || true
    done
    for n in $(seq 0 $((tenants - 1))); do
        tries=0
        until [ -e "/sys/block/bcache$n/bcache/cache" ]; do
            tries=$((tries + 1))
            [ $tries -lt 600 ] || { echo "$name: bcache$n did not come up" >&2; exit 1; }
            sleep 0.1
        done
        echo writeback >"/sys/block/bcache$n/bcache/cache_mode"
        echo 0 >"/sys/block/bcache$n/bcache/sequential_cutoff"
    done
    device() { echo "/dev/bcache$(($1 - 1))"; }
    measure bcache
}

measure_all() { # stacks
    prepare
    for stack; do
        echo "$name: stack $stack"
        "$(echo "$stack" | tr - _)"
    done
}

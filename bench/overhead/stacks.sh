#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs in the box, in virtual time: measure reads and writes of 4 KiB, one at a
# time and without flushes, on one stack after another. The results of fio go to the
# folder $1, one file per stack and direction.
#
# Origin and cache device are in the memory of null_blk, so that only the code of
# each target is measured. Each stack has the same region of 64 MiB, which is in the
# cache if there is one. The cache is four times as large, so that no target
# writes back during the run.
set -eu
out=$1
module=$2
config=/sys/kernel/config/nullb
region=64
cache=256

disk() { # name, MiB
    mkdir "$config/$1"
    echo "$2" >"$config/$1/size"
    echo 1 >"$config/$1/memory_backed"
    # No timer: requests complete in the submitting context, without delay.
    echo 0 >"$config/$1/irqmode"
    echo 1 >"$config/$1/power"
}

sectors() { # MiB
    echo $(($1 * 2048))
}

load() { # stack, device, name, then fio arguments
    stack=$1 device=$2 name=$3
    shift 3
    fio --name="$name" --filename="$device" --ioengine=psync --direct=1 --size=${region}m \
        --randrepeat=0 --randseed=7 --allow_file_create=0 --output-format=json \
        --output="$out/$stack-$name.json" "$@"
}

measure() { # stack, device
    echo "overhead: $1"
    # Write every block twice, in whole cache blocks, so that it exists and is in
    # the cache, if there is one.
    load "$1" "$2" fill --rw=write --bs=64k --loops=2 --end_fsync=1
    # Let background work finish.
    sleep 10
    load "$1" "$2" read --rw=randread --bs=4k --number_ios=12000
    load "$1" "$2" write --rw=randwrite --bs=4k --number_ios=12000
}

mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
modprobe null_blk nr_devices=0
modprobe -a dm-mod libcrc32c
insmod "$module"

pair() { # sets $origin and $fast
    origin=$1o fast=$1c
    disk "$origin" "$cache"
    disk "$fast" "$cache"
    origin=/dev/$origin fast=/dev/$fast
}

disk raw "$cache"
measure raw /dev/raw

disk linear "$cache"
dmsetup create linear --table "0 $(sectors $region) linear /dev/linear 0"
measure dm-linear /dev/mapper/linear
dmsetup remove linear

pair cache
disk cachem 16
modprobe dm-cache dm-cache-smq
dmsetup create cache --table \
    "0 $(sectors $region) cache /dev/cachem $fast $origin 128 1 writeback smq 0"
measure dm-cache /dev/mapper/cache
dmsetup status cache >"$out/dm-cache.status"
dmsetup remove cache

pair wc
modprobe dm-writecache
dmsetup create wc --table "0 $(sectors $region) writecache s $origin $fast 4096 0"
measure dm-writecache /dev/mapper/wc
dmsetup status wc >"$out/dm-writecache.status"
dmsetup remove wc

pair bc
modprobe bcache
make-bcache --writeback -B "$origin" -C "$fast" >/dev/null
# udev may have been faster. Check only that the device appears.
for disk in "$origin" "$fast"; do
    echo "$disk" 2>/dev/null >/sys/fs/bcache/register || true
done
n=0
until [ -e /dev/bcache0 ]; do
    n=$((n + 1))
    [ "$n" -lt 100 ] || { echo "overhead: bcache did not come up" >&2; exit 1; }
    sleep 0.1
done
# The sequential writes that fill the region must be cached too.
echo 0 >/sys/block/bcache0/bcache/sequential_cutoff
measure bcache /dev/bcache0

disk vcache "$cache"
dmsetup create vcache --table "0 $(sectors $region) vcache flush-only /dev/vcache volume 1"
measure vcache /dev/mapper/vcache
dmsetup status vcache >"$out/vcache.status"

dmsetup remove vcache

pair vp
dmsetup create pool --table "0 $(sectors $cache) vcache-pool $fast"
dmsetup create vcache --table \
    "0 $(sectors $region) vcache writeback $origin volume 1 3 pool /dev/mapper/pool 1"
measure vcache-pool /dev/mapper/vcache
dmsetup status vcache >"$out/vcache-pool.status"
dmsetup remove vcache
dmsetup remove pool

# In addition: the cost of a read from the buffer, and of a write that first has to
# free buffer space, with a buffer of an eighth of the region.
dmsetup create vcache --table \
    "0 $(sectors $region) vcache flush-only /dev/vcache volume 1 2 age_ms 600000"
echo 512 >/sys/module/dm_vcache/parameters/buffer_mb
load vcache-buffered /dev/mapper/vcache fill --rw=write --bs=64k
load vcache-buffered /dev/mapper/vcache read --rw=randread --bs=4k --number_ios=12000
echo 8 >/sys/module/dm_vcache/parameters/buffer_mb
load vcache-full /dev/mapper/vcache write --rw=randwrite --bs=4k --number_ios=12000
dmsetup remove vcache

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs in the box, in virtual time: random reads and writes of 4 KiB over NVMe/TCP
# and loopback, at depth 1 and 32, on one target after another. The results of fio go
# to the folder $1, one file per target and load. $2 is the program vcache-ssd.
#
# Neither target waits for a medium: null_blk completes requests in the submitting
# context, and the NAND of the SSD takes no time.
set -eu
out=$1
program=$2
config=/sys/kernel/config
region=64
ios=4000

load() { # target, device, name, then fio arguments
    target=$1 device=$2 name=$3
    shift 3
    fio --name="$name" --filename="$device" --ioengine=libaio --direct=1 --size=${region}m \
        --randrepeat=0 --randseed=7 --allow_file_create=0 --output-format=json --lat_percentiles=1 \
        --output="$out/$target-$name.json" "$@"
}

measure() { # target, port
    echo "nvmetcp: $1"
    nvme connect -t tcp -a 127.0.0.1 -s "$2" -n "nqn.2026-01.org.example:$1" --nr-io-queues=1
    device=
    until [ -b "$device" ]; do
        sleep 0.1
        device=$(ls /dev/nvme*n1 2>/dev/null || true)
    done
    # Write all blocks before they are read.
    load "$1" "$device" fill --rw=write --bs=64k --iodepth=4 --end_fsync=1
    for depth in 1 32; do
        for direction in read write; do
            load "$1" "$device" "$direction-$depth" --rw=rand$direction --bs=4k \
                --iodepth=$depth --number_ios=$ios --norandommap
        done
    done
    nvme disconnect -n "nqn.2026-01.org.example:$1"
}

ip link set lo up
mountpoint -q $config || mount -t configfs none $config
modprobe nvme-tcp

modprobe null_blk nr_devices=0
mkdir $config/nullb/memory
echo 256 >$config/nullb/memory/size
echo 4096 >$config/nullb/memory/blocksize
echo 1 >$config/nullb/memory/memory_backed
echo 0 >$config/nullb/memory/irqmode
echo 1 >$config/nullb/memory/power
modprobe nvmet-tcp
subsystem=$config/nvmet/subsystems/nqn.2026-01.org.example:nvmet
mkdir $subsystem $subsystem/namespaces/1 $config/nvmet/ports/1
echo 1 >$subsystem/attr_allow_any_host
echo /dev/memory >$subsystem/namespaces/1/device_path
echo 1 >$subsystem/namespaces/1/enable
echo tcp >$config/nvmet/ports/1/addr_trtype
echo ipv4 >$config/nvmet/ports/1/addr_adrfam
echo 127.0.0.1 >$config/nvmet/ports/1/addr_traddr
echo 4421 >$config/nvmet/ports/1/addr_trsvcid
ln -s $subsystem $config/nvmet/ports/1/subsystems/
measure nvmet 4421

"$program" --listen 127.0.0.1:4420 --size 256M --nand none \
    --nqn nqn.2026-01.org.example:vcache >"$out/vcache-ssd.out" &
ssd=$!
until [ -s "$out/vcache-ssd.out" ]; do sleep 0.1; done
measure vcache 4420
kill $ssd
wait $ssd

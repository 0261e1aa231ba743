#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In the box: fio writes and verifies repeatedly, while vcache-ssd is stopped, killed
# and started again.
#   soak.sh PROGRAM SECONDS
# Prints "rounds N" at the end if there was no error, otherwise fio's messages.
set -eu
program=$1
end=$(($(date +%s) + $2))
nqn=nqn.2026-01.org.example:soak
dir=$(mktemp -d)
device=/dev/nvme0n1
starts=0

start() {
    : >"$dir/out"
    "$program" --listen 127.0.0.1:4420 --image "$dir/image" --size 128M --nqn $nqn "$@" >"$dir/out" &
    ssd=$!
    until [ -s "$dir/out" ]; do
        kill -0 $ssd
        sleep 0.1
    done
    starts=$((starts + 1))
}

# SIGTERM keeps all data; SIGKILL is a power cut.
restart() { # signal, options of the program
    signal=$1
    shift
    kill "-$signal" $ssd
    wait $ssd || [ "$signal" = KILL ]
    start "$@"
}

live() {
    until grep -q live /sys/class/nvme/nvme0/state; do sleep 0.2; done
}

verify() { # name, then fio arguments
    name=$1
    shift
    fio --name="$name" --filename=$device --direct=1 --ioengine=libaio --iodepth=16 \
        --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed="$rounds" \
        --allow_file_create=0 --output="$dir/fio" "$@" || { cat "$dir/fio"; exit 1; }
}

content() {
    dd if=$device iflag=direct bs=1M status=none | sha256sum
}

# Blocks of all sizes, with flushes and reads; the program is stopped in between.
mixed() {
    verify mixed --rw=randrw --rwmixread=30 --size=24M --bsrange="$bs-256k" --blockalign="$bs" \
        --fsync=32 --end_fsync=1 &
    fio=$!
    trim
    restart TERM --block-size "$bs"
    trim
    wait $fio
}

# Trim behind fio's range: fio cannot verify reads of ranges that it trims.
trim() {
    head -c 4M /dev/urandom >"$dir/data"
    dd if="$dir/data" of=$device bs=1M seek=96 oflag=direct status=none
    blkdiscard -o $((97 << 20)) -l $((1 << 20)) $device
    dd if=/dev/zero of="$dir/data" bs=1M seek=1 count=1 conv=notrunc status=none
    dd if=$device bs=1M skip=96 count=4 iflag=direct status=none | cmp - "$dir/data"
}

# All data is flushed, so a power cut loses nothing.
cut() {
    sync $device
    before=$(content)
    restart KILL --block-size "$bs"
    live
    [ "$before" = "$(content)" ] || { echo "a power cut took what was flushed"; exit 1; }
}

# Each write is durable at completion (FUA); a power cut in between.
durable() {
    verify durable --rw=randwrite --size=8M --bsrange="$bs-64k" --blockalign="$bs" --sync=dsync &
    fio=$!
    sleep 4
    restart KILL --block-size "$bs"
    wait $fio
}

round() {
    start --block-size "$bs"
    nvme connect -t tcp -a 127.0.0.1 -s 4420 -n $nqn --hdr-digest --data-digest --reconnect-delay=1
    until [ -b $device ]; do sleep 0.2; done
    mixed
    cut
    durable
    nvme disconnect -n $nqn
    kill $ssd
    wait $ssd
}

ip link set lo up
modprobe nvme-tcp
rounds=0
while [ "$(date +%s)" -lt $end ]; do
    bs=4096
    [ $((rounds % 2)) = 0 ] || bs=512
    round
    rounds=$((rounds + 1))
    echo "round $rounds: blocks of $bs, $starts starts"
done
# Errors of the disk, not of a path to it (nvme0c0n1). The host cancels requests in
# flight when the connection breaks (sct 3, sc 71h) and sends them again, except
# readahead (REQ_RAHEAD, bit 19), which is repeated on demand.
dmesg | grep -i 'i/o error, dev nvme0n1,' | grep -v '(READ) flags 0x8[0-9a-f]\{4\} ' && exit 1
echo "rounds $rounds"

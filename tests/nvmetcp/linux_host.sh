#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In the box: the Linux NVMe/TCP host and nvme-cli with vcache-ssd.
#   linux_host.sh PROGRAM PYTHON
# test_linux.py reads the output after lines that begin with "==".
set -eu
program=$1 python=$2
nqn=nqn.2026-01.org.example:boxed
dir=$(mktemp -d)

say() {
    echo "== $*"
}

start() {
    "$program" --listen 127.0.0.1:4420 --image "$dir/image" --size 128M --namespaces 2 \
        --nqn $nqn > "$dir/out" &
    ssd=$!
    until [ -s "$dir/out" ]; do sleep 0.1; done
}

connect() {
    nvme connect -t tcp -a 127.0.0.1 -s 4420 -n $nqn --nr-io-queues=1 --nr-write-queues=1 "$@"
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ -b /dev/nvme0n2 ] && return
        sleep 0.2
    done
    echo "no namespaces" >&2
    return 1
}

ip link set lo up
modprobe nvme-tcp
start

say discover
nvme discover -t tcp -a 127.0.0.1 -s 4420
say connect with digests
connect --hdr-digest --data-digest --reconnect-delay=1
say list
nvme list
say id-ctrl
nvme id-ctrl /dev/nvme0
say id-ns
nvme id-ns /dev/nvme0n1
say ns-descs
nvme ns-descs /dev/nvme0n1
say queue
for file in logical_block_size max_hw_sectors_kb write_cache fua discard_max_bytes \
        write_zeroes_max_bytes; do
    echo "$file $(cat /sys/block/nvme0n1/queue/$file)"
done
say logs
nvme smart-log /dev/nvme0
nvme effects-log /dev/nvme0
nvme get-feature /dev/nvme0 -f 7

say probe
"$python" -m vcache_agent.cmd.cli device probe --json --measure --neighbour /dev/nvme0n2 /dev/nvme0n1
say file system
mkfs.ext4 -q /dev/nvme0n1
mkdir "$dir/mnt"
mount /dev/nvme0n1 "$dir/mnt"
fio --name=verify --filename="$dir/mnt/file" --size=4M --rw=randwrite --bsrange=4k-256k \
    --ioengine=libaio --iodepth=16 --direct=1 --fsync=16 --verify=crc32c --do_verify=1 \
    --randseed=1 --output-format=terse > "$dir/fio" || { cat "$dir/fio"; exit 1; }
sha256sum < "$dir/mnt/file" > "$dir/sum"
head -c 8M /dev/zero > "$dir/mnt/other"
sync
rm "$dir/mnt/other"
sync
fstrim -v "$dir/mnt" | sed 's/.*: /trimmed /'
umount "$dir/mnt"
e2fsck -fn /dev/nvme0n1 > /dev/null
echo "file system is right"

say commands
block() {
    nvme read /dev/nvme0n2 -s "$1" -c 0 -z 4096 -d "$dir/got" 2> /dev/null
    sha256sum < "$dir/got" | cut -c1-16
}
head -c 4096 /dev/zero | sha256sum | cut -c1-16 | sed 's/^/zeroes /'
head -c 4096 /dev/urandom > "$dir/data"
sha256sum < "$dir/data" | cut -c1-16 | sed 's/^/data /'
nvme write /dev/nvme0n2 -s 10 -c 0 -z 4096 -d "$dir/data"
echo "written $(block 10)"
nvme compare /dev/nvme0n2 -s 10 -c 0 -z 4096 -d "$dir/data"
nvme dsm /dev/nvme0n2 -d -s 10 -b 1
echo "deallocated $(block 10)"
nvme write /dev/nvme0n2 -s 11 -c 0 -z 4096 -d "$dir/data"
nvme write-zeroes /dev/nvme0n2 -s 11 -c 0
echo "zeroed $(block 11)"
nvme flush /dev/nvme0n2 -n 2

say tagged
tagged() {
    opcode=$1 tag=$2 block=$3
    shift 3
    nvme io-passthru /dev/nvme0n2 --opcode="$opcode" --namespace-id=2 --cdw2="$tag" \
        --cdw10="$block" "$@"
}
tagged 0xc1 7 12 --data-len=4096 --write --input-file="$dir/data"
tagged 0xc0 7 0
tagged 0xc2 7 12 --data-len=4096 --read --raw-binary > "$dir/got"
echo "read $(sha256sum < "$dir/got" | cut -c1-16)"
nvme get-log /dev/nvme0 --log-id=0xc0 --log-len=64
nvme get-log /dev/nvme0 --log-id=0xc1 --log-len=384
for log in 0xc0:512 0xc1:384 0xc2:512 0xc3:1088; do
    say "log ${log%:*}"
    nvme get-log /dev/nvme0 --log-id="${log%:*}" --log-len="${log#*:}" --raw-binary | od -An -v -tx1
done
say shares
"$python" -m vcache_agent.cmd.cli device tags --json --weight 7=300 /dev/nvme0n1

say power cut
tagged 0xc1 8 13 --data-len=4096 --write --input-file="$dir/data"
echo "before $(block 13)"
kill -9 $ssd
wait $ssd || true
rm "$dir/out"
start
until grep -q live /sys/class/nvme/nvme0/state; do sleep 0.2; done
echo "flushed $(block 12)"
echo "unflushed $(block 13)"
nvme disconnect -n $nqn

say again without digests
connect --disable-sqflow
mount /dev/nvme0n1 "$dir/mnt"
sha256sum < "$dir/mnt/file" | cmp - "$dir/sum"
echo "the file is right"
umount "$dir/mnt"
nvme disconnect -n $nqn
say kernel
dmesg | grep 'nvme' | grep -v -e ommand.line -e virtme
say stop
kill $ssd
wait $ssd
echo "status $?"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In the box: run blktests' NVMe tests against vcache-ssd.
#   blktests.sh CHECKOUT PROGRAM TEST...
set -eu
checkout=$1
export VCACHE_SSD="$2"
shift 2
VCACHE_RUN=$(mktemp -d)
export VCACHE_RUN
NVME_TARGET_CONTROL=$(realpath "$(dirname "$0")/blktests_target.sh")
export NVME_TARGET_CONTROL

ip link set lo up
modprobe nvme-tcp

# The UUID of a namespace is derived from the SSD's name: read it from the host.
"$NVME_TARGET_CONTROL" setup
nqn=$("$NVME_TARGET_CONTROL" config --show-subsysnqn)
nvme connect -t tcp -a 127.0.0.1 -s 4420 -n "$nqn"
until [ -e /sys/block/nvme0n1/uuid ]; do sleep 0.1; done
VCACHE_UUID=$(cat /sys/block/nvme0n1/uuid)
export VCACHE_UUID
nvme disconnect -n "$nqn"
"$NVME_TARGET_CONTROL" cleanup

cd "$checkout"
# Under emulation, use small numbers to limit the duration.
NVME_IMG_SIZE=64M NVME_NUM_ITER=5 TIMEOUT=30 ./check -o "$VCACHE_RUN/results" "$@" || true
# Print the output of failed tests.
find "$VCACHE_RUN/results" -name '*.out.bad' -o -name '*.dmesg' | while read -r file; do
    echo "== ${file#"$VCACHE_RUN/results/"}"
    tail -n 40 "$file"
done
echo "== errors of vcache-ssd"
cat "$VCACHE_RUN/errors"

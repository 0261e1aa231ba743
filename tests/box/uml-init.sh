#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first process in User Mode Linux. It mounts the file systems, calls enter.sh,
# which runs the command, and powers off. The root file system is the host's,
# read-only. $1 is the folder that the host and this machine share.
io=$1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
mount -t configfs configfs /sys/kernel/config
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/pts /dev/shm /dev/disk/by-id
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
ln -sf /proc/self/fd /dev/fd
ln -sf fd/0 /dev/stdin
ln -sf fd/1 /dev/stdout
mount -t tmpfs -o mode=0755 run /run
mkdir -p /run/box/io /run/lock

# Mount a copy-on-write view of each folder in $io/overlays.
number=0
while read -r folder; do
    [ -d "$folder" ] || continue
    mkdir -p "/run/box/upper$number" "/run/box/work$number"
    mount -t overlay -o "lowerdir=$folder,upperdir=/run/box/upper$number,workdir=/run/box/work$number" \
        overlay "$folder" || echo "uml: no copy-on-write view of $folder" >&2
    number=$((number + 1))
done < "$io/overlays"

# Mount the writable folders of the host. enter.sh binds them to their places.
mount -t hostfs -o "$io" hostfs /run/box/io
while read -r source target; do
    mkdir -p "$source"
    mount -t hostfs -o "$target" hostfs "$source" || echo "uml: no $target" >&2
done < "$io/binds"

# The modules of this kernel replace those of the host.
read -r modules < "$io/modules"
mkdir -p /lib/modules
mount --bind "$modules" /lib/modules

# Create the names of the disks, because there is no udev.
while read -r device name; do
    ln -s "../../$device" "/dev/disk/by-id/virtio-$name"
done < "$io/disks"

hostname box
ip link set lo up 2>/dev/null

# Raw mode keeps the output unchanged. The FIFO hides the terminal from programs.
stty -F /dev/ttyS0 raw -echo
stty -F /dev/ttyS1 raw -echo
mkfifo /run/box/stdout
cat /run/box/stdout > /dev/ttyS0 &
cat=$!
sh "$io/enter.sh" /run/box/io /dev/ttyS1 > /run/box/stdout

# Wait for the last lines, but not for a daemon that keeps the FIFO open.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    kill -0 "$cat" 2>/dev/null || break
    sleep 0.1
done
echo o > /proc/sysrq-trigger
sleep 60

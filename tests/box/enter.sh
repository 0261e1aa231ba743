#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# First thing that runs inside the box, as root: finishes the file systems
# that virtme-ng leaves read-only or missing, runs the command, and records its
# exit status where the host reads it. $1 is the folder shared with the host,
# $2 the device for the command's errors (default: a virtio port).
io=$1
errors=${2-}
status=setup        # anything but a number: the box itself failed

finish() {
    dmesg > "$io/dmesg" 2>/dev/null
    echo "$status" > "$io/status.new"
    mv "$io/status.new" "$io/status"
    sync
    exit 0
}
trap finish EXIT

# Folders of libvirt start empty: what the host has there is not ours, and the
# sockets and xattrs libvirt wants do not work through 9p.
for dir in lib cache log; do
    mkdir -p "/var/$dir/libvirt"
    mount -t tmpfs -o mode=0755 "libvirt-$dir" "/var/$dir/libvirt" || exit 0
    mkdir -p "/var/$dir/libvirt/qemu"
done
mkdir -p /run/libvirt /run/lock

# configfs is a module of Debian's kernel, virtme-ng mounts it only if built in.
modprobe configfs && { mountpoint -q /sys/kernel/config ||
    mount -t configfs configfs /sys/kernel/config; }

# A cgroup v2 hierarchy with the controllers that libvirt and we need.
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup || exit 0
for controller in cpu cpuset io memory pids; do
    echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null
done

# Writable host folders, mounted by virtme-ng under /run/box, go to their place.
while read -r source target; do
    [ -n "$source" ] || continue
    mount --bind "$source" "$target" || exit 0
done < "$io/binds"

# Not /dev/virtio-ports/NAME: udev makes that, later in a slow box.
port() {
    for name in /sys/class/virtio-ports/*/name; do
        [ ! -e "$name" ] || [ "$(cat "$name")" != "$1" ] || basename "${name%/name}"
    done
}

# What comes there is of no interest but for its interrupts, see pulse.py.
pulse=$(port box.pulse)
[ -z "$pulse" ] || cat "/dev/$pulse" > /dev/null &

if [ -z "$errors" ]; then
    errors=/dev/$(port box.stderr)
    [ -c "$errors" ] || { echo "box: there is no port for the errors" >&2; exit 0; }
fi

# A virtio port can be opened only once, but programs do open /dev/stderr: a
# FIFO before it.
mkfifo /run/box/stderr || exit 0
cat /run/box/stderr > "$errors" &
cat=$!
# virtme-ng's init points it to the console, which is not the command's.
ln -sf /proc/self/fd/2 /dev/stderr

. "$io/environment"
cd "$VCACHE_BOX_CWD" || exit 0
: > "$io/started"
sh "$io/command" < /dev/null 2> /run/box/stderr
status=$?

# Let the last lines through; a daemon left running may hold the FIFO open.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    kill -0 "$cat" 2>/dev/null || break
    sleep 0.1
done

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the booted root as vcache-test.service. The kernel command line has vtest=WORD,WORD,...:
# what to check, what to do, and how to end. Each line for the host begins with "VTEST ".
state=/var/lib/vtest
mkdir -p $state
words=$(sed -n 's/.*vtest=\([^ ]*\).*/\1/p' /proc/cmdline | tr , ' ')
lost=0 failed=0

say() { echo "VTEST $*" >/dev/ttyS0; }
check() {
    local what=$1
    shift
    if "$@" >/tmp/out 2>&1; then say "ok $what"; else
        say "FAILED $what: $(tail -c 400 /tmp/out | tr '\n' ' ')"
        failed=$((failed + 1))
    fi
}
mode() { [ "$(dmsetup table "vg0-$1" | awk '{print $3, $4}')" = "vcache $2" ]; }

setup() {
    local origin=/dev/disk/by-id/virtio-origin
    pvcreate -q -y $origin && vgcreate -q vg0 $origin
    lvcreate -q -y -n a -L 200M vg0 && lvcreate -q -y -n b -L 400M vg0
    mkfs.ext4 -q /dev/vg0/a && mkfs.xfs -q /dev/vg0/b
    mkdir -p /srv/a /srv/b
    echo "/dev/vg0/a /srv/a ext4 defaults,x-systemd.device-timeout=200 0 2" >>/etc/fstab
    echo "UUID=$(blkid -s UUID -o value /dev/vg0/b) /srv/b xfs defaults,x-systemd.device-timeout=200 0 2" >>/etc/fstab
    check "pool create" vcache pool create fast /dev/disk/by-id/virtio-cache
    check "attach a" vcache attach /dev/vg0/a --pool fast --filesystem
    check "attach b" vcache attach /dev/vg0/b --pool fast --tag 7
    check "setup check" vcache setup check
    sed -i 's/$/ timeout=45/; s/^\(#.*\) timeout=45$/\1/; /^ timeout/s/.*//' /etc/vcache/setup.conf
    check "setup check after a change by hand" vcache setup check
    systemctl daemon-reload
    mount -a
}

# Write a number to each file system and fsync it; what was fsynced must be there later.
fill() {
    local n
    n=$(($(cat $state/last 2>/dev/null || echo 0) + 1))
    for at in a b; do
        dd if=/dev/urandom of=/srv/$at/data.$((n % 8)) bs=64k count=8 conv=fsync status=none || return 1
        echo "$n" >/srv/$at/number.new && sync /srv/$at/number.new &&
            mv /srv/$at/number.new /srv/$at/number && sync -f /srv/$at/number &&
            sha256sum /srv/$at/data.* >/srv/$at/sums && sync /srv/$at/sums || return 1
    done
    echo "$n" >$state/last && sync $state/last
}

verify() {
    local n
    n=$(cat $state/last)
    for at in a b; do
        if ! mountpoint -q /srv/$at; then
            say "FAILED /srv/$at is not mounted"
            failed=$((failed + 1))
        elif [ "$(cat /srv/$at/number)" -lt "$n" ]; then
            say "LOST /srv/$at: $(cat /srv/$at/number), must be $n"
            lost=$((lost + 1))
        fi
    done
}

for word in $words; do
    case $word in
    setup) setup ;;
    verify) verify ;;
    cached) check "a has its cache" mode a writeback; check "b has its cache" mode b writeback ;;
    plain) check "a has no cache" mode a flush-only; check "b has no cache" mode b flush-only ;;
    unmounted)
        for at in a b; do check "/srv/$at is not mounted" test ! -f /srv/$at/number; done
        check "the journal says what to do" sh -c \
            'journalctl -b -u "vcache-attach@*" | grep -q "is not made available.*systemctl start"'
        ;;
    warned) check "the journal warns" sh -c 'journalctl -b | grep -q "WITHOUT ITS CACHE"' ;;
    retry) systemctl start 'vcache-pool@fast.service'; systemctl restart 'vcache-attach@*.service' ; mount -a ;;
    late)
        say ready
        for _ in $(seq 120); do mode a writeback && mode b writeback && break; sleep 1; done
        ;;
    units)
        check "no unit of vcache has failed" sh -c '! systemctl --failed --plain --no-legend | grep vcache'
        check "the agent runs" systemctl is-active vcache-agent
        ;;
    fill) for _ in 1 2 3; do check fill fill; done ;;
    purge)
        umount /srv/a /srv/b
        check "detach a" vcache detach /dev/vg0/a
        check "detach b" vcache detach /dev/vg0/b
        check "pool remove" vcache pool remove fast
        check "the file is empty" sh -c '! grep -E "^(pool|attach)" /etc/vcache/setup.conf'
        check "remove" apt-get remove -y -q nova-vcache-agent nova-vcache-dkms
        check "purge" apt-get purge -y -q nova-vcache-agent nova-vcache-dkms python3-nova-vcache
        check "no unit is left" sh -c '! systemctl list-unit-files "vcache*" | grep vcache'
        check "no rule is left" test ! -e /usr/lib/udev/rules.d/99-vcache.rules
        ;;
    debug) systemctl --failed --plain --no-legend >/dev/ttyS0; journalctl -b --no-pager -u 'vcache*' | tail -60 >/dev/ttyS0; vcache setup check >/dev/ttyS0; dmsetup table >/dev/ttyS0 ;;
    esac
done
say "result lost=$lost failed=$failed"
case " $words " in
*" reboot "*) systemctl --no-block reboot ;;
*" force "*) reboot -f ;;
*" hold "*) while fill; do :; done ;;
esac

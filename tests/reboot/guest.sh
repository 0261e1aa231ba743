#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the booted root as reboot-test.service. The kernel command line has vtest=WORD,WORD,...:
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
    # As the guide advises. No limit for the device: an emulated processor is slow.
    local options=nofail,x-systemd.device-timeout=0
    echo "/dev/vg0/a /srv/a ext4 $options 0 2" >>/etc/fstab
    echo "UUID=$(blkid -s UUID -o value /dev/vg0/b) /srv/b xfs $options 0 2" >>/etc/fstab
    check "pool create" vcache pool create fast /dev/disk/by-id/virtio-cache
    check "attach a" vcache attach /dev/vg0/a --pool fast --filesystem
    check "attach b" vcache attach /dev/vg0/b --pool fast --tag 7
    check "setup check" vcache setup check
    sed -i '/^pool/s/$/ timeout=20/; /^attach/s/$/ timeout=3600/' /etc/vcache/setup.conf
    check "setup check after a change by hand" vcache setup check
    systemctl daemon-reload
    mount -a
}

# Write data to each file system, fsync it, then write its number and its hash; what was fsynced
# must be there later.
fill() {
    local n data
    n=$(($(cat $state/last 2>/dev/null || echo 0) + 1))
    for at in a b; do
        data=/srv/$at/data.$((n % 8))
        dd if=/dev/urandom of=$data bs=64k count=8 conv=fsync status=none || return 1
        echo "$n $(sha256sum <$data)" >/srv/$at/number.new && sync /srv/$at/number.new &&
            mv /srv/$at/number.new /srv/$at/number && sync -f /srv/$at/number || return 1
    done
    echo "$n" >$state/last.new && sync $state/last.new && mv $state/last.new $state/last &&
        sync -f $state
}

verify() {
    local last n sum
    last=$(cat $state/last)
    for at in a b; do
        if ! mountpoint -q /srv/$at; then
            say "FAILED /srv/$at is not mounted"
            failed=$((failed + 1))
            continue
        fi
        read -r n sum </srv/$at/number
        if [ "$n" -lt "$last" ]; then
            say "LOST /srv/$at: number $n, must be $last"
            lost=$((lost + 1))
        elif [ "$(sha256sum </srv/$at/data.$((n % 8)))" != "$sum" ]; then
            say "LOST /srv/$at: the data of number $n"
            lost=$((lost + 1))
        else
            say "ok /srv/$at: number $n"
        fi
    done
}

# What the log of a failed boot needs.
explain() {
    systemctl --failed --plain --no-legend
    journalctl -b --no-pager -u 'vcache*' | tail -60
    vcache setup check
    dmsetup table
} >/dev/ttyS0 2>&1

# When each unit became active; the order of systemctl's output may change.
active_since() {
    systemctl show -p ActiveEnterTimestampMonotonic 'vcache-attach@*' 'vcache-pool@*' | sort
}

upgrade() {
    local before
    before=$(active_since)
    check "upgrade" apt-get install -y -q --no-install-recommends \
        /var/lib/vtest/newer/*agent*.deb /var/lib/vtest/newer/python3-nova*.deb \
        /var/lib/vtest/newer/python3-vcache-guest*.deb
    check "the agent has the new version" sh -c \
        'dpkg-query -W nova-vcache-agent | grep -q +newer && systemctl is-active vcache-agent'
    check "no device was set up again" test "$before" = "$(active_since)"
}

purge() {
    rm -rf /etc/systemd/system/vcache-stop.service.d
    umount /srv/a /srv/b
    check "remove is refused while a device is attached" sh -c \
        '! apt-get remove -y -q nova-vcache-agent && test -x /usr/bin/vcache'
    check "detach a" vcache detach /dev/vg0/a
    check "detach b" vcache detach /dev/vg0/b
    check "pool remove" vcache pool remove fast
    check "the file is empty" sh -c '! grep -E "^(pool|attach)" /etc/vcache/setup.conf'
    check "remove" apt-get remove -y -q nova-vcache-agent nova-vcache-dkms
    check "the module is gone" sh -c '! ls /lib/modules/*/updates/dkms/dm-vcache*'
    check "purge" apt-get purge -y -q nova-vcache-agent nova-vcache-dkms python3-nova-vcache \
        python3-vcache-guest
    check "no unit is left" sh -c '! systemctl list-unit-files "vcache*" | grep vcache'
    check "no file is left" sh -c '! find /usr/bin /usr/lib /etc /var/lib -xdev -name "*vcache*" -not -path "/var/lib/vtest/*" | grep .'
}

for word in $words; do
    case $word in
    setup) setup ;;
    verify) verify ;;
    cached) check "a has its cache" mode a writeback; check "b has its cache" mode b writeback ;;
    plain) check "a has no cache" mode a flush-only; check "b has no cache" mode b flush-only ;;
    unmounted)
        for at in a b; do check "/srv/$at is not mounted" test ! -e /srv/$at/number; done
        check "the journal says what to do" sh -c \
            'journalctl -b -u "vcache-attach@*" | grep -q "is not made available.*systemctl start"'
        ;;
    warned) check "the journal warns" sh -c 'journalctl -b | grep -q "WITHOUT ITS CACHE"' ;;
    plug) say plug ;;
    # The host has a limit.
    late) until mountpoint -q /srv/a && mountpoint -q /srv/b; do sleep 1; done ;;
    # A cache that must be clean is drained for as long as it takes.
    drain)
        mkdir -p /etc/systemd/system/vcache-stop.service.d
        printf '[Service]\nTimeoutStopSec=infinity\nExecStop=\nExecStop=%s\n' \
            "/usr/bin/vcache setup stop --wait 3000 --drain 3000" >/etc/systemd/system/vcache-stop.service.d/test.conf
        systemctl daemon-reload
        ;;
    upgrade) upgrade ;;
    units)
        check "no unit of vcache has failed" sh -c '! systemctl --failed --plain --no-legend | grep vcache'
        check "the agent runs" systemctl is-active vcache-agent
        ;;
    fill) for _ in 1 2 3; do check fill fill; done ;;
    purge) purge ;;
    esac
done
[ $failed -eq 0 ] || explain
say "result lost=$lost failed=$failed"
case " $words " in
*" reboot "*) systemctl --no-block reboot ;;
*" force "*) reboot -f ;;
*" hold "*) while fill; do :; done ;;
esac

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# prepare.sh PYTHON COMMAND...: bring the sandbox's root to the state after the start of
# stack.sh. The COMMANDs are those that would change the kernel.
set -eu
python=$1
shift
here=$(dirname "$0")
venv=/opt/stack/data/venv

# Services must not start here.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
if ! command -v sudo >/dev/null || ! command -v a2ensite >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends sudo apache2
fi
a2enmod -q proxy proxy_uwsgi
echo 'ServerName localhost' >/etc/apache2/conf-enabled/lab.conf

# This Python may be in a home directory without access for others.
folder=$python
while [ "$folder" != / ]; do
    folder=$(dirname "$folder")
    chmod o+x "$folder"
done
useradd --home-dir /opt/stack --shell /bin/bash stack
echo 'stack ALL=(root) NOPASSWD:ALL' >/etc/sudoers.d/stack

cp "$here/systemctl" /usr/bin/systemctl
for name; do
    cp "$here/kernel" "/usr/local/sbin/$name"
done

# devstack's global environment, with the packages that it has installed.
"$python" -m venv --system-site-packages "$venv"
packages=$("$venv/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo /opt/lab >"$packages/lab.pth"
cp "$here/openstack" "$here/uwsgi" "$venv/bin/"
ln -s "$venv/bin/openstack" /usr/local/bin/openstack
# openstack/requirements: no constraints, and its tool to remove the constraint of a package.
mkdir -p /opt/stack/requirements/.venv/bin
cp "$here/edit-constraints" /opt/stack/requirements/.venv/bin/
echo 'nova-vcache===0.0.1' >/opt/stack/requirements/upper-constraints.txt
chown -R stack /opt/stack

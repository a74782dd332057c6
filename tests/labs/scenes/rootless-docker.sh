#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# the admin has stopped the system's Docker, and runs one without root, by Docker's own tool
# It needs the scene rootless-tools. This machine has no module ip_tables, so Docker goes without.
set -eu
user="admin"
id=$(id -u $user)
systemctl stop docker.socket docker.service
# A container has no such file. A machine has it from its start.
[ -e /dev/net/tun ] || { mkdir -p /dev/net && mknod -m 0666 /dev/net/tun c 10 200; }
loginctl enable-linger $user
systemctl start "user@$id.service"
# The tool expects Docker in its own folder, and Debian has it elsewhere.
install -d -o $user -g $user /home/$user/bin
ln -sf /usr/bin/docker /usr/share/docker.io/contrib/dockerd-rootless*.sh /home/$user/bin
exec su $user -c "
    cd && export XDG_RUNTIME_DIR=/run/user/$id PATH=/home/$user/bin:\$PATH
    dockerd-rootless-setuptool.sh --skip-iptables install"

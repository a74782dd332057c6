#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# the admin has installed the driver of Debian 13, and rebooted
set -eu
list=/etc/apt/sources.list.d
components='main contrib non-free non-free-firmware'
sed "s|/debian/ /|/debian/ trixie $components|" $list/debian.list > $list/non-free.list
apt-get --quiet update
DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes --no-install-recommends install \
    "linux-headers-$(uname -r)" nvidia-open-kernel-dkms nvidia-smi libcuda1 nvidia-persistenced
xargs modprobe --all < /etc/modules-load.d/nvidia.conf
systemctl restart nvidia-persistenced.service

#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# a machine that never had a kubelet or an engine
set -eu
systemctl stop kubelet containerd
if command -v dnf; then
    dnf --assumeyes --disablerepo='*' remove kubelet containerd.io container-selinux
else
    dpkg --purge kubelet containerd.io
fi
rm -rf /etc/containerd /etc/kubernetes /usr/lib/systemd/system/kubelet.service.d
find /var/lib/kubelet -mindepth 1 -delete
systemctl daemon-reload

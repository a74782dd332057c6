#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# a machine that never had a kubelet; its Docker, if it has one, stays
set -eu
systemctl stop kubelet
dpkg --purge kubelet
if dpkg-query --show cri-dockerd; then
    systemctl stop cri-docker.socket cri-docker.service
    dpkg --purge cri-dockerd
fi
rm -rf /etc/kubernetes /usr/lib/systemd/system/kubelet.service.d
find /var/lib/kubelet -mindepth 1 -delete
systemctl daemon-reload

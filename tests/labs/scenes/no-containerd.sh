#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# containerd and its settings are removed; the kubelet waits for an engine
set -eu
systemctl stop containerd
if command -v dnf; then
    dnf --assumeyes --disablerepo='*' remove containerd.io container-selinux
else
    dpkg --purge containerd.io
fi
rm -rf /etc/containerd

#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# containerd and its settings are removed; the kubelet waits for an engine
set -eu
systemctl stop containerd
dpkg --purge containerd.io
rm -rf /etc/containerd

#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# the feature gate DevicePlugins is set, but another file overrides it; the kubelet runs
set -eu
mkdir -p /etc/systemd/system/kubelet.service.d
printf '%s\n' '[Service]' \
    'Environment="KUBELET_EXTRA_ARGS=--feature-gates=DevicePlugins=true --v=1"' \
    > /etc/systemd/system/kubelet.service.d/20-gpu.conf
echo 'KUBELET_EXTRA_ARGS=--v=2' > /etc/default/kubelet
systemctl daemon-reload
systemctl restart kubelet

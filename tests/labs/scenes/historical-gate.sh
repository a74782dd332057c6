#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# the feature gate DevicePlugins is set in three places; the kubelet fails to start
# Guides of 2018 ask for this gate. Admins set it in three places over the years.
set -eu
printf 'featureGates:\n  DevicePlugins: true\n' >> /var/lib/kubelet/config.yaml
echo 'KUBELET_EXTRA_ARGS=--feature-gates=DevicePlugins=true --v=2' > /etc/default/kubelet
mkdir -p /etc/systemd/system/kubelet.service.d
printf '%s\n' '[Service]' \
    'Environment="KUBELET_EXTRA_ARGS=--feature-gates=DevicePlugins=true"' \
    > /etc/systemd/system/kubelet.service.d/20-gpu.conf
systemctl daemon-reload
systemctl restart kubelet

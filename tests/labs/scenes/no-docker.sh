#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# Docker and its settings are removed; the kubelet waits for an engine
set -eu
dpkg --purge cri-dockerd docker.io docker-cli containerd runc \
    docker-ce docker-ce-cli containerd.io
rm -rf /etc/docker /etc/containerd
find /srv/docker /var/lib/docker /var/lib/containerd -mindepth 1 -delete

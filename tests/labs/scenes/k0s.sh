#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# a worker of k0s, as far as the roles see one: a stand-in runs the real containerd and kubelet
# It has the unit, the processes and the files of tests/recorded/distributions.yml. The containerd of
# the host stays installed, and no longer runs.
set -eu
bin=/var/lib/k0s/bin
mkdir -p $bin /etc/k0s/containerd.d
systemctl disable --now kubelet containerd
cp /usr/bin/containerd /usr/bin/kubelet $bin
version=$(kubelet --version | sed 's/^Kubernetes //')
sed "s/@VERSION@/$version+k0s.0/" k0s > /usr/local/bin/k0s
chmod 755 /usr/local/bin/k0s
mv /etc/kubernetes/kubelet.conf /var/lib/k0s/kubelet.conf
mv /var/lib/kubelet/config.yaml /var/lib/k0s/kubelet-config.yaml
grep -v '^version' /etc/containerd/config.toml > /var/lib/k0s/base.toml
dpkg --purge kubelet
rm -rf /usr/lib/systemd/system/kubelet.service.d /var/lib/kubelet/kubeadm-flags.env
cp k0sworker.service /etc/systemd/system/
systemctl daemon-reload
systemctl enable --now k0sworker
# The configuration that it generates is there before the socket is.
timeout 120 sh -c 'until [ -S /run/k0s/containerd.sock ]; do sleep 0.2; done'

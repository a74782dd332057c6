#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# an agent of k3s, as far as the roles see one: a stand-in runs the real containerd and kubelet
# It has the unit, the processes and the files of tests/recorded/distributions.yml. The containerd of
# the host stays installed, and no longer runs.
set -eu
data=/var/lib/rancher/k3s
bin=$data/data/current/bin
mkdir -p $bin $data/agent/etc/containerd /run/k3s/containerd
chmod 700 $data/agent # the files in it are for everybody
systemctl disable --now kubelet containerd
# One file with many names: the process of containerd has this file, and another first word.
cp /usr/bin/containerd $bin/k3s
ln -s k3s $bin/containerd
# Without its name: the real k3s has no process of the kubelet.
cp /usr/bin/kubelet $bin/embedded
cp registries.py $bin
version=$(kubelet --version | sed 's/^Kubernetes //')
sed "s/@VERSION@/$version+k3s1/" k3s > /usr/local/bin/k3s
chmod 755 /usr/local/bin/k3s
mv /etc/kubernetes/kubelet.conf $data/agent/kubelet.kubeconfig
mv /var/lib/kubelet/config.yaml $data/agent/kubelet.yaml
grep -v '^version' /etc/containerd/config.toml > $data/agent/base.toml
# k3s has a root of its own. Here only this folder can have layers, so that of the host goes below it.
sed -i '/^version/a root = "/var/lib/containerd/of-the-host"' /etc/containerd/config.toml
dpkg --purge kubelet
rm -rf /usr/lib/systemd/system/kubelet.service.d /var/lib/kubelet/kubeadm-flags.env
cp k3s-agent.service /etc/systemd/system/
systemctl daemon-reload
systemctl enable --now k3s-agent
# The configuration that it generates is there before the socket is.
timeout 120 sh -c 'until [ -S /run/k3s/containerd/containerd.sock ]; do sleep 0.2; done'

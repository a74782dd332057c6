#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# an admin's drop-in with which k0s looks for registries, written before k0s starts
# Without it, the containerd of k0s reads no folder of registries: see tests/recorded/registries.yml.
set -eu
folder=/etc/k0s/containerd.d
mkdir -p $folder
cat > $folder/cri-registry.toml <<TOML
version = 3

[plugins."io.containerd.cri.v1.images".registry]
config_path = "$folder/certs.d"
TOML

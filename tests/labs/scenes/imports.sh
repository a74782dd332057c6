#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# containerd's config.toml imports a folder, where the admin has local additions
set -eu
sed -i '/^version = /a\
# Local additions go into files of their own.\
imports = ["/etc/containerd/conf.d/*.toml"]' /etc/containerd/config.toml
systemctl restart containerd

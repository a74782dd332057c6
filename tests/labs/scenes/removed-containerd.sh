#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# containerd was removed, and its settings stayed; the kubelet waits for an engine
set -eu
systemctl stop containerd
dpkg --remove containerd.io

#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# CRI-O is removed; the admin's drop-in stays, and the kubelet waits for an engine
set -eu
systemctl stop crio
dpkg --purge cri-o

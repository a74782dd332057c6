#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# an update has installed kernel 6.1.0-52-amd64 without its headers, and nobody has rebooted the node
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get --quiet=2 update
apt-get --quiet=2 install linux-image-amd64=6.1.152-1 > /dev/null

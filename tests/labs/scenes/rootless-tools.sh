#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# a user could run Docker without root: Debian's packages for it are there
# The scene rootless-docker does it.
set -eu
apt-get --quiet update
DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes --no-install-recommends install \
    rootlesskit slirp4netns uidmap libpam-systemd

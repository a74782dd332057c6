#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# the sources of an installation of Debian 13, without contrib and non-free
set -eu
cd /etc/apt/sources.list.d
address=$(sed -n 's|^deb .*\] \(http.*\)/debian/ /$|\1|p' debian.list)
stanza() { # stanza FOLDER SUITES
    printf '%s\n' 'Types: deb' "URIs: $address/$1/" "Suites: $2" \
        'Components: main non-free-firmware' 'Signed-By: /usr/share/keyrings/debian-mirror.asc'
}
{
    stanza debian 'trixie trixie-updates'
    echo
    stanza debian-security trixie-security
} > debian.sources
rm debian.list

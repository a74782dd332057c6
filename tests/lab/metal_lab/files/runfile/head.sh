#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# Laboratory stand-in for NVIDIA's .run file: the installer is in the archive after the last line.
version=@VERSION@
machine=@MACHINE@
if [ "$(uname -m)" != "$machine" ]; then
    echo "ERROR: this .run file is intended for the Linux-$machine platform, but this is Linux-$(uname -m)." >&2
    exit 1
fi
folder=$(mktemp -d "${TMPDIR:-/tmp}/selfgzXXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
sed '1,/^exit_of_the_header$/d' "$0" | tar -x -C "$folder" || exit 1
cd "$folder" || exit 1
echo "Uncompressing NVIDIA Accelerated Graphics Driver for Linux-$machine $version"
./nvidia-installer "$@"
exit $?
# shellcheck disable=SC2317 # the mark before the archive
exit_of_the_header

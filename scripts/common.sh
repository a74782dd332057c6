# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=bash disable=SC2034
#
# Shared by the scripts. Source it from the root of the checkout.

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/metal-gpu
export PATH=$PWD/.venv/bin:$PATH:/usr/sbin:/sbin # ordinary users of Debian do not have the last two

say() { printf '%s\n' "== $*"; }

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

as_root() { if ((EUID == 0)); then "$@"; else sudo "$@"; fi; }

# The laboratory uses Docker as root, so that users need not join the group docker.
docker_answers() { as_root docker version >/dev/null 2>&1; }

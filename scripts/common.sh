# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=bash disable=SC2034
#
# What the scripts share; run from the root of the checkout.

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/metal-gpu
export PATH=$PWD/.venv/bin:$PATH:/usr/sbin:/sbin # an ordinary user of Debian lacks the last two

say() { printf '%s\n' "== $*"; }

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

as_root() { if ((EUID == 0)); then "$@"; else sudo "$@"; fi; }

# The laboratory asks the engine as root, so nobody has to join the group docker.
docker_answers() { as_root docker version >/dev/null 2>&1; }

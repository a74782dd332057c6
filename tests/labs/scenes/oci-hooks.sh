#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# The hook of a removed nvidia-container-runtime-hook of 2018, and a hook of the admin
set -eu
hooks=/usr/share/containers/oci/hooks.d
mkdir -p "$hooks"
cat > "$hooks/oci-nvidia-hook.json" <<'JSON'
{
    "version": "1.0.0",
    "hook": {
        "path": "/usr/bin/nvidia-container-runtime-hook",
        "args": ["nvidia-container-runtime-hook", "prestart"],
        "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    },
    "when": {
        "always": true,
        "commands": [".*"]
    },
    "stages": ["prestart"]
}
JSON
cat > "$hooks/acme-audit.json" <<'JSON'
{
    "version": "1.0.0",
    "hook": {"path": "/usr/bin/touch", "args": ["touch", "/var/log/acme-audit"]},
    "when": {"annotations": {"^example.com/audit$": "^yes$"}},
    "stages": ["prestart"]
}
JSON
systemctl restart crio

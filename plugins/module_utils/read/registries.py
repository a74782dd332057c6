# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Where container engines keep what they know about registries.

Source: tests/recorded/registries.yml
"""

from __future__ import annotations

import re
from posixpath import join

ROLE = "registries"
ACTOR = f"metal.gpu.{ROLE}"

# Folders of certificates, with one folder for each registry below them.
CONTAINERD = "/etc/containerd/certs.d"
DOCKER = "/etc/docker/certs.d"
CONTAINERS = "/etc/containers/certs.d"
K3S = "/etc/rancher/k3s"
RKE2 = "/etc/rancher/rke2"
K3S_CERTIFICATES = f"{K3S}/certs.d"
RKE2_CERTIFICATES = f"{RKE2}/certs.d"
CERTIFICATES = (CONTAINERD, DOCKER, CONTAINERS, K3S_CERTIFICATES, RKE2_CERTIFICATES)

HOSTS = "hosts.toml"
# Our own files in the folder of a registry: the CA, and the certificate of the client with its key.
# Docker and CRI-O recognise them by these endings.
CA, CERTIFICATE, KEY = "metal-gpu.crt", "metal-gpu.cert", "metal-gpu.key"
OWN = (CA, CERTIFICATE, KEY)

KUBELET_LOGIN = "/var/lib/kubelet/config.json"
# Where the kubelet looks for logins without that file: in its directory, and in that of a user.
LOGINS_OF_KUBELET = ("/config.json", "/.docker/config.json")
DOCKER_LOGIN = "/root/.docker/config.json"
CONTAINERS_CONFIG = "/etc/containers/registries.conf"
CONTAINERS_DROP_INS = "/etc/containers/registries.conf.d"
CONTAINERS_DROP_IN = f"{CONTAINERS_DROP_INS}/50-metal-gpu.conf"
CRIO_DROP_IN = "/etc/crio/crio.conf.d/98-metal-gpu-registries.conf"
CRIO_LOGIN = "/etc/crio/metal-gpu-auth.json"
# Where CRI-O looks for logins without global_auth_file: of podman login, and of docker login.
DEFAULT_LOGINS = (
    "/run/containers/0/auth.json",
    "/root/.config/containers/auth.json",
    DOCKER_LOGIN,
)
REGISTRIES_YAML = {"k3s": f"{K3S}/registries.yaml", "RKE2": f"{RKE2}/registries.yaml"}
CERTIFICATES_OF = {"k3s": K3S_CERTIFICATES, "RKE2": RKE2_CERTIFICATES}

# Files of fixed names that are read on each node.
FILES = (
    *(KUBELET_LOGIN, *LOGINS_OF_KUBELET, *DEFAULT_LOGINS, CRIO_LOGIN, CONTAINERS_CONFIG),
    f"{CONTAINERS_DROP_INS}/*.conf",
    *REGISTRIES_YAML.values(),
)
# A line that a role adds to a file of certificates, which ignores all lines outside of PEM blocks.
CREATED = "# created "

_CONFIG_PATH = re.compile(r"""^\s*config_path\s*=\s*["']([^"'\n]+)["']""", re.MULTILINE)
_AUTH_FILE = re.compile(r"""^\s*global_auth_file\s*=\s*["']([^"'\n]+)["']""", re.MULTILINE)
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s[^-]+-----END \1-----")


def folders_above(folder: str) -> list[str]:
    """Return the folders that a folder is in, the outermost first, without the root."""
    names = folder.strip("/").split("/")
    return ["/" + "/".join(names[:end]) for end in range(1, len(names))]


def mentioned_folders(configuration: str) -> list[str]:
    """Return the folders of hosts.toml files that a configuration of containerd names.

    Does not parse TOML, because nodes have no parser for it.
    """
    found = [one for names in _CONFIG_PATH.findall(configuration) for one in names.split(":")]
    return [one.rstrip("/") for one in found if one.startswith("/")]


def mentioned_logins(configuration: str) -> list[str]:
    """Return the files of logins that a configuration of CRI-O names, likewise."""
    return [one for one in _AUTH_FILE.findall(configuration) if one.startswith("/")]


def folder_names(host: str) -> list[str]:
    """Return the names of folders in which containerd looks for a registry, the first one first."""
    if host == "*":
        return ["_default"]
    name, colon, port = host.rpartition(":")
    return [f"{name}_{port}_", host] if colon else [host]


def own_files(folder: str) -> list[str]:
    return [join(folder, name) for name in OWN]


def pem_blocks(text: str) -> list[str]:
    """Return the blocks of a PEM text, each with a line end of its own."""
    return [match[0].strip() for match in _PEM.finditer(text.replace("\r\n", "\n") + "\n")]


def pem_kinds(text: str) -> list[str]:
    """Return what the blocks of a PEM text are, such as CERTIFICATE."""
    return [match[1] for match in _PEM.finditer(text.replace("\r\n", "\n") + "\n")]

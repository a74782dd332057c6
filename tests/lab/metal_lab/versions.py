# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The versions of everything that the laboratory builds, as their publishers name them."""

from __future__ import annotations

KUBERNETES = "1.37.1"
CONTAINERD = "2.4.2"
CONTAINERD_2_3 = "2.3.4"  # refuses drop-ins that 2.2 and 2.4 read
RUNC = "1.5.2"  # from containerd's script/setup/runc-version
DOCKER = "29.8.1"
DOCKER_COMPOSE = "5.1.4"
MOBY = "2.0.0-beta.24"  # the daemon's module of that release: see its releases/versions.yaml
CRI_DOCKERD = "0.4.3"
CRIO = "1.36.3"
CONTAINER_TOOLKIT = "1.20.1"
DEVICE_PLUGIN = "0.19.3"
REGISTRY = "3.1.1"
SUBNET_MANAGER = "2025.10.14"  # nvlsm, which has worked with this branch of the driver

# Of the part "run-files": an article of 2018 installs it.
LEGACY_DRIVER = "390.25"

# Of the part "updates". The newer containerd, the newer toolkit and the newer driver of the same
# branch do not exist.
NEWER_DRIVER = "610.57.04"
NEWER_OF_BRANCH = "580.999.99"  # in NVIDIA's repository for Ubuntu
NEWER_DOCKER = "29.9.0"
NEWER_CONTAINERD = "2.99.0"
NEWER_CONTAINER_TOOLKIT = "1.99.0"
OLDER_CONTAINER_TOOLKIT = "1.19.0"  # in the repositories of the driver

KUBERNETES_MINOR = KUBERNETES.rpartition(".")[0]
CRIO_MINOR = CRIO.rpartition(".")[0]

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Other tools that write the configuration of a node, by a file that only they create.

Source: tests/recorded/distributions.yml, which a test compares with these tables.
"""

from __future__ import annotations

AKS = "AKS"
EKS = "EKS"
KUBEADM = "kubeadm"
KUBESPRAY = "Kubespray"
GPU_OPERATOR = "the GPU Operator"

MARKS = {
    AKS: "/opt/azure/containers/provision.sh",
    EKS: "/etc/eks",
    # Flags of the kubelet. Tools that run kubeadm, such as Kubespray, leave it, too.
    KUBEADM: "/var/lib/kubelet/kubeadm-flags.env",
    # The specification that Kubespray's configuration of containerd names.
    KUBESPRAY: "/etc/containerd/cri-base.json",
    GPU_OPERATOR: "/usr/local/nvidia/toolkit",
}
# Images of clouds, which write the configuration of containerd at each boot.
CLOUD_IMAGES = (AKS, EKS)
# Programs of the GPU Operator's toolkit are below this directory.
OPERATOR_TOOLKIT = MARKS[GPU_OPERATOR]

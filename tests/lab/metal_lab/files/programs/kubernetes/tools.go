// SPDX-FileCopyrightText: metal.gpu contributors
// SPDX-License-Identifier: GPL-3.0-or-later

//go:build tools

// Package tools names the programs that the laboratory builds, so that `go mod tidy` keeps their requirements.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)

// SPDX-FileCopyrightText: metal.gpu contributors
// SPDX-License-Identifier: GPL-3.0-or-later

//go:build tools

// Package tools names the programs that the laboratory builds, so that `go mod tidy` keeps their requirements.
package tools

import (
	_ "github.com/NVIDIA/k8s-device-plugin/cmd/gpu-feature-discovery"
	_ "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin"
)

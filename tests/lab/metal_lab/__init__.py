# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The laboratory: real Kubernetes on Docker nodes whose GPUs alone are simulated.

`cli` is the command, `laboratory` the order of things, and each other file one thing that it needs.
"""

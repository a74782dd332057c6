# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a cluster alone can tell about its GPUs, for people who have only a kubeconfig."""

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`python -m metal_gpu.terminal.kubectl` is the kubectl plugin `kubectl metal_gpu`."""

from metal_gpu.terminal.cluster import main

if __name__ == "__main__":
    main()

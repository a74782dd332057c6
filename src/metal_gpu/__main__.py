# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`python -m metal_gpu` is the command `metal-gpu`."""

from metal_gpu.terminal.main import main

if __name__ == "__main__":
    main()

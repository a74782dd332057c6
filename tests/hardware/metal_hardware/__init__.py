# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this project believes about GPUs, asked of a real one. See CONTRIBUTING, "On a real GPU"."""

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Many machines, observed and judged together."""

from __future__ import annotations


class Fleet:
    """Machines that are observed together."""

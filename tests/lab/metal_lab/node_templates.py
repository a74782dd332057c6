# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The templates of files on the nodes, in files/node_templates."""

from __future__ import annotations

import jinja2

from metal_lab.cache import FILES

TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(FILES / "node_templates"),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)

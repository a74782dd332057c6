# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""SSH connections by paramiko."""

from __future__ import annotations

from metal_gpu.hosts import Host
from metal_gpu.ssh.settings import Session, Settings


def connect(host: Host, settings: Settings) -> Session:
    """Log in to a machine. Raises Unreachable."""
    raise NotImplementedError

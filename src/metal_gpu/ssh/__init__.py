# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run commands on machines over SSH, as `ssh` and Ansible would reach them.

with connect(Host.parse("admin@10.0.0.7"), Settings()) as session:
    print(session.run("uname -r", sudo=False).stdout)
"""

from __future__ import annotations

from metal_gpu.hosts import Host
from metal_gpu.ssh.settings import RUN_TIMEOUT_S, Answer, Session, Settings, Unreachable

__all__ = ["RUN_TIMEOUT_S", "Answer", "Session", "Settings", "Unreachable", "connect"]


def connect(host: Host, settings: Settings | None = None) -> Session:
    """Log in to a machine. Raises Unreachable."""
    chosen = settings or Settings()
    if host.local:
        from metal_gpu.ssh import local

        return local.LocalSession(host, chosen)
    from metal_gpu.ssh import connection  # paramiko takes a while to load

    return connection.connect(host, chosen)

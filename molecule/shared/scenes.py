# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tests know about the scenes of the nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SCENES = Path(__file__).resolve().parents[2] / "tests/labs/scenes"
ADMINS_SERVICE = "admin-service"  # the container of docker-admin.sh


def started(host: Any) -> list[str]:
    """Return when Docker and the admin's container started."""
    commands = (
        "systemctl show --value -p ActiveEnterTimestampMonotonic docker.service",
        "docker inspect --format '{{.Id}} {{.State.StartedAt}} {{.State.Status}}' "
        + ADMINS_SERVICE,
    )
    return [host.check_output(command) for command in commands]

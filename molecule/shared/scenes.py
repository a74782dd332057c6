# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tests know about the scenes of the nodes."""

from __future__ import annotations

from pathlib import Path

SCENES = Path(__file__).resolve().parents[2] / "tests/labs/scenes"
ADMINS_SERVICE = "admin-service"  # the container of docker-admin.sh

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from metal_lab import nodes


@pytest.mark.parametrize("option", ["--bundle", "-b"])
def test_runc_is_not_asked_for_what_this_machine_may_not_do(option: str, tmp_path: Path) -> None:
    """A negative score becomes 0, and a missing capability goes; everything else stays."""
    script = tmp_path / "runc"
    script.write_text(nodes.TEMPLATES.get_template("runc.j2").render(programs=["/bin/true"]))
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    config = bundle / "config.json"
    config.write_text('{"process":{"oomScoreAdj":-998,"uid":-1}}')
    command = ["sh", script, "--log", tmp_path / "log", "create", option, bundle, "--help"]
    subprocess.run(command, check=False, capture_output=True)
    assert config.read_text() == '{"process":{"oomScoreAdj":0,"uid":-1}}'
    bounding = Path("/proc/self/status").read_text().split("CapBnd:")[1].split()[0]
    has_it = bool(int(bounding, 16) >> 24 & 1)
    name = '"CAP_SYS_RESOURCE"'
    for given, expected in (
        (f'["CAP_CHOWN",{name},"CAP_KILL"]', '["CAP_CHOWN","CAP_KILL"]'),
        (f'["CAP_CHOWN",{name}]', '["CAP_CHOWN"]'),
        (f"[{name}]", "[]"),
        (f'[{name},"CAP_KILL"]', '["CAP_KILL"]'),
        (f'[\n  "CAP_CHOWN",\n  {name}\n]', '[\n  "CAP_CHOWN"\n]'),
    ):
        config.write_text(given)
        subprocess.run(command, check=False, capture_output=True)
        assert config.read_text() == (given if has_it else expected)
    config.write_text('{"oomScoreAdj": -998}')
    subprocess.run(command, check=False, capture_output=True)
    assert config.read_text() == '{"oomScoreAdj":0}'
    config.write_text('{"process":{"oomScoreAdj":998}}')
    subprocess.run(command, check=False, capture_output=True)
    assert config.read_text() == '{"process":{"oomScoreAdj":998}}'

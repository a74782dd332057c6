# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess

from metal_bench.first_run import Recipe, Round, describe, parse_profile, parse_sources, script

SOURCES = """\
==> metal-gpu-docker.sources <==
Types: deb
URIs: http://mirror.example/docker

==> metal-gpu-toolkit.sources <==
Types: deb
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEawFPxBYJKwYBBAHaRw8BAQdAB77LJyhMl7cglaJk
"""


def test_sources_are_taken_as_they_are():
    sources = parse_sources(SOURCES)
    assert list(sources) == ["metal-gpu-docker.sources", "metal-gpu-toolkit.sources"]
    assert sources["metal-gpu-docker.sources"].endswith("URIs: http://mirror.example/docker\n")
    assert " .\n mDMEawFP" in sources["metal-gpu-toolkit.sources"]


def test_script_is_one_update_one_transaction_and_one_restart():
    recipe = Recipe(["containerd.io=2.4.2-1~debian.12~bookworm", "nvidia-smi=580.1-1"], {})
    *_head, update, install, restart = script(recipe).splitlines()
    assert update == "apt-get update"
    assert install.startswith("apt-get install --yes --no-install-recommends ")
    assert install.endswith(" ".join(recipe.packages))
    assert restart == "systemctl restart containerd"


def test_script_writes_the_sources(tmp_path):
    text = parse_sources(SOURCES)["metal-gpu-toolkit.sources"]
    written = script(Recipe([], {"toolkit.sources": text})).partition("apt-get")[0]
    subprocess.run(
        ["sh", "-c", written.replace("/etc/apt/sources.list.d", str(tmp_path))], check=True
    )
    assert (tmp_path / "toolkit.sources").read_text() == text


PROFILE = """\
TASKS RECAP ********************************************************************
===============================================================================
metal.gpu.nvidia_driver : Install the driver ---------------------------- 1.96s
metal.gpu.preflight : Observe the node ---------------------------------- 1.25s
a name that leaves no room for more than the fewest dashes that there can be --- 0.50s
metal.gpu.preflight : Observe the node ---------------------------------- 0.75s
"""


def test_tasks_are_summed_up_and_the_longest_come_first():
    tasks = parse_profile(PROFILE)
    assert list(tasks.values()) == [1.96, 2.0, 0.5]
    remarks = describe([Round(1, 2, 10, tasks, 30, 5)]).remarks
    assert remarks.index("Observe the node | 20% |") < remarks.index("Install the driver | 20% |")

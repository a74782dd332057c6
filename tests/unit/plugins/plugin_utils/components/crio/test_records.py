# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the code believes about CRI-O, beside its records."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import of_words
from ansible_collections.metal.gpu.plugins.module_utils.read import crio
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio import settings
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording

ROOT = Path(__file__).parents[6]
RECORD: dict[str, Any] = yaml.safe_load((ROOT / "tests/recorded/crio.yml").read_text())
PACKAGED = RECORD["packaged"]
# The laboratory makes its package from it.
TEMPLATE = "tests/lab/metal_lab/files/packages/cri-o/root/etc/crio/crio.conf.d/10-crio.conf.j2"


def laboratory() -> str:
    return (ROOT / TEMPLATE).read_text().partition("-#}\n")[2]


@pytest.mark.parametrize("text", [recording("crio/10-crio.conf"), laboratory()])
def test_file_of_the_package(text: str) -> None:
    runtime = tomllib.loads(text)["crio"]["runtime"]
    assert runtime["default_runtime"] == PACKAGED["default_runtime"]
    assert runtime["runtimes"].keys() == PACKAGED["runtimes"].keys()
    for name, keys in PACKAGED["runtimes"].items():
        expected = {**keys, "monitor_path": PACKAGED["monitor_path"]}
        assert expected.items() <= runtime["runtimes"][name].items()


def test_drop_in_is_read_after_the_file_of_the_package() -> None:
    assert crio.reading_order([settings.DROP_IN, PACKAGED["path"]])[-1] == settings.DROP_IN


def test_words_of_a_pod_whose_runtime_is_missing() -> None:
    (row,) = (one for one in RECORD["words"] if "runtime handler nvidia" in one["text"])
    subject: Any = type("Subject", (), {"what": "the smoke pod", "node": "gpu-1"})()
    cause = of_words(f"{row['text']} map[crun:0xc00047e300]", subject)
    assert cause is not None
    assert (cause.code, cause.evidence["handler"]) == ("RUNTIME_HANDLER_MISSING", "nvidia")

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role holds on systems with dnf, and that a teardown leaves none of these holds."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.driver import (
    test_fabric,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DONE,
    VIRGIN,
    codes,
    merge,
    names,
    plan,
    record,
)

RUNFILE, SWITCHES = test_fabric.RUNFILE, test_fabric.SWITCHES
ROCKY = {
    "os": {"id": "rocky", "version_id": "9.6", "family": "redhat"},
    "repositories": {
        "epel": {
            "path": "/etc/yum.repos.d/epel.repo",
            "entries": [{"section": "epel"}],
            "key": None,
            "error": None,
        }
    },
}
VERSION = "3:580.178.04-1.el9"
ASKED = dict.fromkeys(
    ("nvidia-driver-cuda", "kmod-nvidia-latest-dkms", "nvidia-persistenced", "nvidia-modprobe"),
    VERSION,
)
# What dnf brings besides. The last one is a name that nobody recorded.
BROUGHT = dict.fromkeys(
    (
        *("nvidia-driver-cuda-libs", "nvidia-kmod-common"),
        *("libnvidia-ml", "libnvidia-cfg", "libnvidia-unheard-of"),
    ),
    VERSION,
)
OTHERS = {"nvidia-settings": "3:575.57.08-1.el9"}
HOLD = "Hold the driver"
FABRIC_MANAGER = {"nvidia-fabricmanager": "580.178.04-1.el9"}


def rocky(*, held: bool, **more: dict[str, str]) -> dict[str, Any]:
    """Return a node that the role has set up."""
    packages = {**ASKED, **BROUGHT, **OTHERS, **more.get("packages", {})}
    entries = {name: version.partition("-")[0] for name, version in ASKED.items()}
    entries |= more.get("entries", {})
    changes = {
        **ROCKY,
        "package_manager": {"automatic": [], "dependants": {}},
    }
    node = merge(DONE, changes)
    node["packages"] = {
        name: {"version": one, "held": held or name in ASKED} for name, one in packages.items()
    }
    node["ours"] |= record("nvidia_driver", entries)
    node["driver"]["packages"] = packages
    return node


def test_new_driver_is_held_with_what_dnf_brings() -> None:
    planned = plan("nvidia_driver", merge(VIRGIN, ROCKY))
    assert planned["data"]["hold"] == [
        "nvidia-driver-cuda-3:580.178.04",
        "kmod-nvidia-latest-dkms-3:580.178.04",
        "nvidia-persistenced-3:580.178.04",
        "nvidia-modprobe-3:580.178.04",
    ]
    assert planned["data"]["hold_alike"] == ["*nvidia*-3:580.178.04-*"]


def test_apt_needs_no_more_holds() -> None:
    assert plan("nvidia_driver", VIRGIN)["data"]["hold_alike"] == []


def test_every_package_of_the_version_is_held() -> None:
    planned = plan("nvidia_driver", rocky(held=False))
    assert names(planned) == [HOLD]
    assert {*planned["data"]["hold"]} == {f"{name}-{VERSION}" for name in BROUGHT} | {
        f"{name}-{VERSION}" for name in ASKED
    }
    assert planned["notices"] == []


def test_second_run_changes_nothing() -> None:
    planned = plan("nvidia_driver", rocky(held=True))
    assert (planned["steps"], planned["refusals"], planned["notices"]) == ([], [], [])


def test_teardown_ends_every_hold() -> None:
    """A remaining versionlock would exclude all other versions of a package."""
    planned = plan("nvidia_driver", rocky(held=True), state="absent")
    assert {*planned["data"]["former"]} == {*ASKED}
    assert {*planned["data"]["former_held"]} == {*BROUGHT}


def test_switch_to_a_runfile_ends_every_hold() -> None:
    planned = plan("nvidia_driver", rocky(held=True), **RUNFILE, switch_ok=True)
    assert planned["refusals"] == []
    assert {*planned["data"]["former_held"]} == {*BROUGHT}


def test_teardown_after_an_exchange_ends_every_hold() -> None:
    """The admin changed one package, so the driver is the admin's, and no hold of ours stays."""
    node = rocky(held=True)
    node["packages"]["nvidia-persistenced"] = {"version": "3:580.200.01-1.el9", "held": False}
    node["driver"]["packages"]["nvidia-persistenced"] = "3:580.200.01-1.el9"
    planned = plan("nvidia_driver", node, state="absent")
    assert "Remove the driver" not in names(planned)
    assert {*planned["data"]["release"]} == {*BROUGHT, *ASKED} - {"nvidia-persistenced"}


@pytest.mark.parametrize("is_ours", [True, False])
def test_fabric_manager_before_a_switch_to_a_runfile(is_ours: bool) -> None:
    """Ours goes with the packages of the driver, and no source has one for a .run file."""
    entries = {"entries": {"nvidia-fabricmanager": "580.178.04"}} if is_ours else {}
    node = merge(rocky(held=True, packages=FABRIC_MANAGER, **entries), SWITCHES)
    node["fabric"]["packages"] = FABRIC_MANAGER
    planned = plan("nvidia_driver", node, **RUNFILE, switch_ok=True)
    if not is_ours:
        assert planned["refusals"] == []
        assert "nvidia-fabricmanager" not in planned["data"]["former"]
        return
    assert codes(planned) == ["FABRIC_PACKAGES_UNKNOWN"]
    assert "installs none for the driver of a .run file" in planned["refusals"][0]["message"]


@pytest.mark.parametrize(
    ("source", "steps"),
    [
        ("nvidia", ["Enable the module stream of the driver branch"]),
        ("runfile", ["Install the headers of the kernel"]),
    ],
)
def test_own_sources_can_have_dkms_under_any_name(source: str, steps: list[str]) -> None:
    node = merge(VIRGIN, {"os": ROCKY["os"]})
    more = RUNFILE if source == "runfile" else {}
    assert codes(plan("nvidia_driver", node, **{**more, "source": source})) == ["EPEL_MISSING"]
    planned = plan("nvidia_driver", node, **{**more, "source": source, "repository": False})
    assert planned["refusals"] == []
    assert {*steps} <= {*names(planned)}

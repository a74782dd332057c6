# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.components.planning import (
    PLANNERS,
    SITE,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import plan as platform
from ansible_collections.metal.gpu.tests.unit.support import done
from ansible_collections.metal.gpu.tests.unit.support.healthy import DESIRED, REPOSITORY

ROOT = Path(__file__).parents[5]
FIXTURES = ROOT / "tests" / "unit" / "fixtures" / "plans"
# What these tests ask for, and nodes on which nothing is left to do do not have.
DIFFERENT: dict[str, dict[str, Any]] = {
    "containerd": {"version": "2.4.1"},
    "crio": {"version": "1.36.6", **REPOSITORY},
    "registries": {"engine": "auto", "hosts": [], "restart_ok": False, "check": True},
    "docker_ce": {"containerd_version": "2.4.1"},
    "nvidia_container_runtime": {"default": False, "replace_oci_hooks": False},
}
CHOICES: dict[str, dict[str, Any]] = {
    role: {
        **{"host": "gpu-1", "state": "present"},
        **copy.deepcopy(DESIRED.get(role, {})),
        **DIFFERENT.get(role, {}),
    }
    for role in SITE
}
STEPPERS = [name for name in PLANNERS if name != "preflight"]

GATE_IN_CONFIG = {
    "name": "DevicePlugins",
    "value": True,
    "file": "/var/lib/kubelet/config.yaml",
    "where": "config",
    "flag": None,
    "effective": True,
}
GATE_IN_FLAG = {
    "name": "DevicePlugins",
    "value": True,
    "file": "/etc/default/kubelet",
    "where": "flag",
    "flag": "KUBELET_EXTRA_ARGS",
    "effective": True,
}
KUBELET_DROP_IN = "/etc/systemd/system/kubelet.service.d/99-metal-gpu.conf"
CONFIG = "/etc/containerd/config.toml"
UNREAD = {"changed_since_start": [CONFIG], "edited_since_start": [CONFIG]}
CRI_EDIT = [{"path": CONFIG, "actor": "metal.gpu.containerd", "error": None}]
KUBELET_CONFIG = "/var/lib/kubelet/config.yaml"
KUBELET_EDIT = [
    {"path": KUBELET_CONFIG, "actor": "metal.gpu.kubelet_device_plugins", "error": None}
]
UNFINISHED = {
    "nvidia-kernel-dkms": {"version": "550.163.01-2", "state": "half-configured"},
    "nvidia-driver-cuda": {"version": "550.163.01-2", "state": "unpacked"},
}
BAD_RECORD = {"path": "/x.json", "packages": {}, "error": "/x.json, line 1, column 1: bad"}
UNSIGNED = {
    "path": "/etc/apt/sources.list",
    "url": "https://mirror.example/",
    "suite": "/",
    "section": "",
    "components": "",
    "signed_by": "",
    "unsigned": "[trusted=yes]",
    "credentials": False,
}
GATE_IN_CONFIG = {**GATE_IN_FLAG, "file": KUBELET_CONFIG, "where": "config", "flag": None}
DAMAGED = "/var/lib/metal-gpu/config_document/x.json: the history of the file is damaged"
TWICE = 'line 3, column 3: key "a" appears twice'
UNVERSIONED = {"version": None, "version_error": "Exec format error"}
MICROK8S = {"name": "MicroK8s", "unit": "snap.microk8s.daemon-kubelite.service"}
OF_MICROK8S = {"installed": False, "endpoint": None, "distribution": MICROK8S}
SILENT = {"code": "timeout", "exit_code": None, "message": "nvidia-smi did not end within 30 s"}
BROKEN = {"code": "library_mismatch", "exit_code": 18, "message": "version mismatch"}


def merge(base: Any, changes: Any) -> Any:
    """Merge tables, replace everything else."""
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return copy.deepcopy(changes)
    return {
        key: merge(base[key], changes[key])
        if key in changes and key in base
        else copy.deepcopy(changes.get(key, base.get(key)))
        for key in [*base, *(key for key in changes if key not in base)]
    }


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FIXTURES / f"{name}.yml").read_text())
    return loaded


def repository(name: str) -> dict[str, Any]:
    """The file of a repository of ours, as the roles write it."""
    path = f"/etc/apt/sources.list.d/metal-gpu-{name}.sources"
    entries = [{"x-repolib-name": f"metal-gpu-{name}"}]
    return {f"metal-gpu-{name}": {"path": path, "entries": entries, "key": None, "error": None}}


def with_other_entry(name: str) -> dict[str, Any]:
    """Return the same file with another repository that an admin added."""
    found = repository(name)
    found[f"metal-gpu-{name}"]["entries"].append({"types": "deb", "uris": "https://x/"})
    return found


def record(role: str, packages: dict[str, str], before: str | None = None) -> dict[str, Any]:
    """What a role has noted about packages that it installs."""
    return {
        "packages": {
            role: {
                "path": f"/var/lib/metal-gpu/packages/{role}.json",
                "packages": {
                    name: {"version": version, "before": before}
                    for name, version in packages.items()
                },
                "error": None,
            }
        }
    }


VIRGIN = load("virgin")
DONE = merge(VIRGIN, load("done"))
DOCKER = merge(VIRGIN, load("docker"))
CRIO = merge(VIRGIN, load("crio"))
GPU = VIRGIN["pci"][0]
NO_DRIVER: dict[str, Any] = {"packages": {"nvidia_driver": None}, "files": []}
EXCHANGED = {"version": "580.173.02-1", "held": False}
OF_DRIVER = ("nvidia-driver-cuda", "nvidia-kernel-dkms", "nvidia-persistenced")


def plan(planner: str, node: dict[str, Any], **desired: Any) -> dict[str, Any]:
    result: dict[str, Any] = PLANNERS[planner](node, {**CHOICES[planner], **desired})
    return result


def names(planned: dict[str, Any]) -> list[str]:
    return [step["name"] for step in planned["steps"]]


def codes(planned: dict[str, Any]) -> list[str]:
    return [refusal["code"] for refusal in planned["refusals"]]


@pytest.mark.parametrize("planner", CHOICES)
def test_second_run_finds_nothing_to_do(planner: str) -> None:
    planned = plan(planner, {"docker_ce": DOCKER, "crio": CRIO}.get(planner, DONE))
    assert (planned["steps"], planned["refusals"], planned["notices"]) == ([], [], [])


@pytest.mark.parametrize(
    ("planner", "steps"),
    [
        pytest.param("preflight", [], id="preflight"),
        pytest.param(
            "nvidia_driver",
            [
                "Install python3-debian for the driver repository",
                "Add the repository of the driver",
                "Pin the driver version",
                "Block the nouveau module",
                "Rebuild the initramfs",
                "Install the driver",
                "Hold the driver",
                "Load the NVIDIA modules at boot",
                "Create the device files for CUDA at boot",
                "Load the NVIDIA modules",
                "Create the device files for CUDA now",
                "Start the persistence daemon",
            ],
            id="nvidia_driver",
        ),
        pytest.param("containerd", [], id="containerd"),
        pytest.param(
            "nvidia_container_runtime",
            [
                "Install python3-debian for the toolkit repository",
                "Add the repository of the container toolkit",
                "Install the container toolkit",
                "Hold the container toolkit",
                "Create links in /dev/char at boot",
                "Ignore the environment of unprivileged containers",
                "Register the NVIDIA runtime",
                "Restart containerd",
            ],
            id="nvidia_container_runtime",
        ),
        pytest.param("kubelet_device_plugins", [], id="kubelet_device_plugins"),
    ],
)
def test_virgin_node(planner: str, steps: list[str]) -> None:
    planned = plan(planner, VIRGIN)
    assert names(planned) == steps
    assert planned["refusals"] == []
    assert all(step["reason"] for step in planned["steps"])


REFUSALS = [
    ("unknown system", "preflight", {"os": {"id": "plan9"}}, {}, ["OS_UNSUPPORTED"]),
    ("other release", "preflight", {"os": {"version_id": "11"}}, {}, ["OS_UNSUPPORTED"]),
    ("no os-release", "preflight", {"os": {"id": None, "name": None}}, {}, ["OS_UNSUPPORTED"]),
    ("other machine", "preflight", {"os": {"architecture": "ppc64"}}, {}, ["OS_UNSUPPORTED"]),
    ("no systemd", "preflight", {"init": "other"}, {}, ["INIT_UNSUPPORTED"]),
    ("a broken disk", "nvidia_driver", {"read_only": ["/etc"]}, {}, ["FILES_READ_ONLY"]),
    ("no GPU", "preflight", {"pci": []}, {"gpu_count": 4}, ["NO_GPU"]),
    ("fewer GPUs", "preflight", {}, {"gpu_count": 4}, ["GPU_COUNT_DIFFERS"]),
    ("declared none", "preflight", {}, {"gpu_count": 0}, ["GPU_COUNT_DIFFERS"]),
    ("vfio", "preflight", {"pci": [{**GPU, "driver": "vfio-pci"}]}, {}, ["GPU_PASSED_THROUGH"]),
    ("no kubelet", "preflight", {"kubelet": {"installed": False}}, {}, ["KUBELET_MISSING"]),
    ("Docker host", "preflight", {"kubelet": {"installed": False}}, {"kubelet": False}, []),
    ("renamed", "preflight", {"kubelet": {"own_name": "gpu-9"}}, {}, ["NODE_RENAMED"]),
    *(
        (
            f"MicroK8s, {planner}",
            planner,
            {"kubelet": {"installed": False, "endpoint": None, "distribution": MICROK8S}},
            {},
            ["DISTRIBUTION_UNSUPPORTED"],
        )
        for planner in (
            *("preflight", "containerd", "nvidia_container_runtime", "kubelet_device_plugins"),
        )
    ),
    (
        "several reasons",
        "preflight",
        {"os": {"id": "x"}, "init": "other", "pci": [], "kubelet": {"installed": False}},
        {},
        ["OS_UNSUPPORTED", "INIT_UNSUPPORTED", "NO_GPU", "KUBELET_MISSING"],
    ),
    ("no GPU to drive", "nvidia_driver", {"pci": []}, {}, ["NO_GPU"]),
    (
        "GPU too old",
        "nvidia_driver",
        {"pci": [{**GPU, "device": "102d"}]},
        {},
        ["GPU_UNSUPPORTED_BY_DRIVER"],
    ),
    (
        "driver too old",
        "nvidia_driver",
        {"pci": [{**GPU, "device": "2901"}]},
        {"version": "550.163.01"},
        ["GPU_UNSUPPORTED_BY_DRIVER"],
    ),
    (
        "driver too new",
        "nvidia_driver",
        {},
        {"version": "610.57.04"},
        ["GPU_UNSUPPORTED_BY_DRIVER"],
    ),
    ("open for Pascal", "nvidia_driver", {}, {"flavour": "open"}, ["FLAVOUR_UNSUPPORTED"]),
    (
        "Pascal beside Blackwell",
        "nvidia_driver",
        {"pci": [GPU, {**GPU, "address": "0000:04:00.0", "device": "2901"}]},
        {},
        ["FLAVOUR_UNSUPPORTED"],
    ),
    ("nouveau", "nvidia_driver", {"kernel": {"modules": ["nouveau"]}}, {}, ["NOUVEAU_LOADED"]),
    (
        "nouveau, no reboot",
        "nvidia_driver",
        {"kernel": {"modules": ["nouveau"]}},
        {"reboot_ok": False},
        ["NOUVEAU_LOADED"],
    ),
    (
        "nouveau, a reboot without a drain",
        "nvidia_driver",
        {"kernel": {"modules": ["nouveau"]}, "kubelet": OF_MICROK8S},
        {"reboot_ok": True},
        ["DISTRIBUTION_UNSUPPORTED"],
    ),
    (
        "silent, in packages of another name",
        "nvidia_driver",
        {
            "driver": {
                "packages": {"nvidia-utils-580": "580.178.04-1"},
                "module_version": "580.178.04",
            },
            "nvml": {"failure": SILENT},
        },
        {},
        ["DRIVER_BROKEN"],
    ),
    (
        "not loaded, in packages of another name",
        "nvidia_driver",
        {
            "driver": {"packages": {"nvidia-utils-580": "580.178.04-1"}},
            "nvml": {"failure": BROKEN},
        },
        {},
        ["DRIVER_BROKEN"],
    ),
    (
        "repository without branch 580",
        "nvidia_driver",
        {"os": {"version_id": "13", "codename": "trixie"}},
        {"repository_url": ""},
        ["DRIVER_BRANCH_MISSING"],
    ),
    (
        "pin of the branch",
        "nvidia_driver",
        {"driver": {"packages": {"nvidia-driver-pinning-580": "580-5"}}},
        {},
        ["DRIVER_PIN_TAKEN"],
    ),
    ("Secure Boot", "nvidia_driver", {"secure_boot": True}, {}, ["SECURE_BOOT_ON"]),
    (
        "runfile",
        "nvidia_driver",
        {"driver": {"module_version": "550.1"}, "nvml": {"failure": BROKEN}},
        {},
        ["DRIVER_FROM_ELSEWHERE"],
    ),
    (
        "runfile, on disk only, and a helper of Debian",
        "nvidia_driver",
        {
            "driver": {
                "disk_version": "550.1",
                "packages": {"nvidia-kernel-common": "20240109+1"},
            },
            "nvml": {"failure": BROKEN},
        },
        {},
        ["DRIVER_FROM_ELSEWHERE"],
    ),
    (
        "half-configured",
        "nvidia_driver",
        {"package_manager": {"unfinished": UNFINISHED}},
        {},
        ["PACKAGES_UNFINISHED"],
    ),
    (
        "half-configured, another role",
        "nvidia_container_runtime",
        {"package_manager": {"unfinished": UNFINISHED}},
        {},
        ["PACKAGES_UNFINISHED"],
    ),
    (
        "record that cannot be read",
        "nvidia_driver",
        {"ours": {"packages": {"nvidia_driver": BAD_RECORD}}},
        {},
        ["PACKAGE_RECORD_INVALID"],
    ),
    (
        "record that cannot be read, on the way back",
        "containerd",
        {"ours": {"packages": {"containerd": BAD_RECORD}}},
        {"state": "absent"},
        ["PACKAGE_RECORD_INVALID"],
    ),
    (
        "repository without signatures",
        "nvidia_driver",
        {"package_sources": [UNSIGNED]},
        {},
        ["REPOSITORY_UNSIGNED"],
    ),
    (
        "file with the name of ours",
        "nvidia_driver",
        {
            "repositories": {
                "metal-gpu-nvidia-driver": {
                    "path": "/etc/apt/sources.list.d/metal-gpu-nvidia-driver.sources",
                    "entries": [{"types": "deb", "uris": "https://x/"}],
                    "key": None,
                    "error": None,
                }
            }
        },
        {},
        ["REPOSITORY_FILE_FOREIGN"],
    ),
    *(
        (
            f"the admin added an entry to the repository file, {planner}",
            planner,
            {"kubelet": {"running": False}, "repositories": with_other_entry(name)},
            {"state": "absent"},
            ["REPOSITORY_FILE_FOREIGN"],
        )
        for planner, name in (
            ("nvidia_driver", "nvidia-driver"),
            ("containerd", "docker"),
            ("nvidia_container_runtime", "container-toolkit"),
        )
    ),
    (
        "other version, broken",
        "nvidia_driver",
        {"driver": {"packages": {"nvidia-driver-cuda": "570.1-1"}}, "nvml": {"failure": BROKEN}},
        {},
        ["DRIVER_BROKEN"],
    ),
    (
        "kubelet of an unknown engine",
        "containerd",
        {"kubelet": {"endpoint": "unix:///run/frakti.sock"}},
        {},
        ["ENGINE_UNSUPPORTED"],
    ),
    (
        "kubelet of CRI-O",
        "containerd",
        {"kubelet": {"endpoint": "unix:///var/run/crio/crio.sock"}},
        {},
        ["ENGINE_MISMATCH"],
    ),
    (
        "TOML",
        "containerd",
        {"engines": {"containerd": {"config": {"error": "x.toml, line 3, column 7: bad"}}}},
        {},
        ["CONTAINERD_CONFIG_INVALID"],
    ),
    (
        "CRI off by hand",
        "containerd",
        {"engines": {"containerd": {"cri_enabled": False}}},
        {},
        ["CRI_DISABLED"],
    ),
    (
        "old containerd",
        "nvidia_container_runtime",
        {"engines": {"containerd": {"version": "1.6.20"}}},
        {},
        ["CDI_UNSUPPORTED"],
    ),
    (
        "imported file that replaces settings",
        "nvidia_container_runtime",
        {
            "engines": {
                "containerd": {
                    "version": "1.7.24",
                    "config": {"imported_cri": ["/etc/containerd/conf.d/registries.toml"]},
                }
            }
        },
        {},
        ["CONTAINERD_IMPORT_REPLACES"],
    ),
    (
        "containerd that tells no version",
        "nvidia_container_runtime",
        {"engines": {"containerd": UNVERSIONED}},
        {},
        ["VERSION_UNKNOWN"],
    ),
    (
        "TOML again",
        "nvidia_container_runtime",
        {"engines": {"containerd": {"config": {"error": "bad"}}}},
        {},
        ["CONTAINERD_CONFIG_INVALID"],
    ),
    (
        "no kubelet to set up",
        "kubelet_device_plugins",
        {"kubelet": {"installed": False}},
        {},
        ["KUBELET_MISSING"],
    ),
    (
        "kubelet's file and drop-ins",
        "kubelet_device_plugins",
        {
            "kubelet": {
                "config": {"error": "config.yaml, line 2, column 1: bad"},
                "config_dir": {
                    "path": "/d",
                    "files": [
                        {"path": "/d/1.conf", "error": None},
                        {"path": "/d/2.conf", "error": "/d/2.conf, line 1, column 3: bad"},
                        {"path": "/d/3.conf", "error": "/d/3.conf: Permission denied"},
                    ],
                },
            }
        },
        {},
        ["KUBELET_CONFIG_INVALID"] * 3,
    ),
    (
        "kubelet that tells no version",
        "kubelet_device_plugins",
        {"kubelet": UNVERSIONED},
        {},
        ["VERSION_UNKNOWN"],
    ),
    (
        "kubelet that tells no version, and has the gate",
        "kubelet_device_plugins",
        {"kubelet": {**UNVERSIONED, "feature_gates": [GATE_IN_FLAG]}},
        {"state": "absent"},
        ["VERSION_UNKNOWN"],
    ),
    (
        "key that appears twice",
        "nvidia_container_runtime",
        {"engines": {"containerd": {"config": {"obstacle": TWICE}}}},
        {},
        ["CONFIG_NOT_EDITABLE"],
    ),
    (
        "key that appears twice, in what Docker's package ships",
        "containerd",
        {
            "engines": {
                "containerd": {
                    "cri_enabled": False,
                    "config": {"version": None, "obstacle": TWICE},
                }
            }
        },
        {},
        ["CONFIG_NOT_EDITABLE"],
    ),
    (
        "key that appears twice, beside a gate",
        "kubelet_device_plugins",
        {"kubelet": {"feature_gates": [GATE_IN_CONFIG], "config": {"obstacle": TWICE}}},
        {},
        ["CONFIG_NOT_EDITABLE"],
    ),
    (
        "key that appears twice, beside a gate in a drop-in",
        "kubelet_device_plugins",
        {
            "kubelet": {
                "feature_gates": [{**GATE_IN_CONFIG, "file": "/d/1.conf"}],
                "config_dir": {"files": [{"path": "/d/1.conf", "error": None, "obstacle": TWICE}]},
            }
        },
        {},
        ["CONFIG_NOT_EDITABLE"],
    ),
    *(
        (
            f"history that is damaged, {state}",
            role,
            {**changes, "ours": {"edits": [{**edit, "error": DAMAGED}]}},
            {"state": state},
            ["HISTORY_UNREADABLE"],
        )
        for role, edit, changes in (
            (
                *("containerd", CRI_EDIT[0]),
                {"engines": {"containerd": {"running": False}}, "kubelet": {"running": False}},
            ),
            ("kubelet_device_plugins", KUBELET_EDIT[0], {"kubelet": {"running": False}}),
            (
                "nvidia_container_runtime",
                {**CRI_EDIT[0], "actor": "metal.gpu.nvidia_container_runtime", "changes": []},
                {},
            ),
        )
        for state in ("present", "absent")
    ),
    (
        "kubelet's YAML",
        "kubelet_device_plugins",
        {"kubelet": {"config": {"error": "line 2"}}},
        {},
        ["KUBELET_CONFIG_INVALID"],
    ),
]


@pytest.mark.parametrize(
    ("planner", "changes", "desired", "expected"),
    [pytest.param(*row[1:], id=f"{row[1]}: {row[0]}") for row in REFUSALS],
)
def test_refusals(
    planner: str, changes: dict[str, Any], desired: dict[str, Any], expected: list[str]
) -> None:
    planned = plan(planner, merge(VIRGIN, changes), **desired)
    assert codes(planned) == expected
    assert planned["steps"] == []
    assert all(one["message"].startswith("gpu-1: ") for one in planned["refusals"])


@pytest.mark.parametrize(
    ("changes", "desired"),
    [
        pytest.param({"kubelet": OF_MICROK8S}, {}, id="MicroK8s, no reboot"),
        pytest.param({"os": {"version_id": "13"}}, {}, id="Debian 13, a mirror"),
        pytest.param(
            {"os": {"version_id": "13"}, "pci": [{**GPU, "device": "20b0"}]},
            {"repository_url": "", "version": "595.71.05"},
            id="Debian 13, an available branch",
        ),
        pytest.param(
            {
                "driver": {"packages": {"libcuda1": "580.178.04-1"}},
                "ours": record("nvidia_driver", {"libcuda1": "580.178.04-1"}),
            },
            {},
            id="interrupted installation",
        ),
    ],
)
def test_driver_is_installed(changes: dict[str, Any], desired: dict[str, Any]) -> None:
    planned = plan("nvidia_driver", merge(VIRGIN, changes), **desired)
    assert codes(planned) == []
    assert "Install the driver" in names(planned)


def test_refusal_of_a_branch_has_every_reason_and_every_way_out() -> None:
    node = merge(VIRGIN, {"os": {"version_id": "13"}})
    (refusal,) = plan("nvidia_driver", node, repository_url="")["refusals"]
    assert refusal["message"] == (
        "gpu-1: no source that is allowed has driver 580.178.04 on Debian 13: NVIDIA's repository "
        "for Debian 13 starts with branch 590; the archive of Debian 13 has 550.163.01"
    )
    assert refusal["remedy"] == (
        "set `nvidia_driver_source: distribution` and remove nvidia_driver_version, for driver of "
        "branch 550 (proprietary) from the archive of Debian 13; or set "
        "nvidia_driver_repository_url to a mirror that has branch 580 and nvidia_driver_version to "
        "the version there; or set `nvidia_driver_source: runfile`, and nvidia_driver_runfile_url "
        "to NVIDIA's .run file, for example of branch 580; or install a driver yourself: the role "
        "keeps a driver that works"
    )


def test_refusal_has_the_answer_without_a_version() -> None:
    node = merge(VIRGIN, {"kubelet": UNVERSIONED})
    (refusal,) = plan("kubelet_device_plugins", node)["refusals"]
    assert refusal["message"] == (
        "gpu-1: cannot determine the version of kubelet: `kubelet --version` printed: "
        "Exec format error"
    )


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize("planner", ["nvidia_driver", "containerd", "nvidia_container_runtime"])
@pytest.mark.parametrize(
    "node", [pytest.param(VIRGIN, id="virgin"), pytest.param(DONE, id="with all that works")]
)
def test_system_that_nobody_knows_is_refused(
    planner: str, state: str, node: dict[str, Any]
) -> None:
    planned = plan(planner, merge(node, {"os": {"version_id": "11"}}), state=state)
    assert codes(planned) == ["OS_UNSUPPORTED"]


def test_nothing_that_is_gone_is_in_the_way_back() -> None:
    node = merge(VIRGIN, {"pci": [], "kubelet": {"installed": False, "running": False}})
    planned = plan("preflight", node, state="absent", gpu_count=4)
    assert (planned["refusals"], planned["data"]) == ([], {"node_name": "gpu-1"})


def test_refusal_names_the_addresses() -> None:
    (refusal,) = plan("preflight", VIRGIN, gpu_count=4)["refusals"]
    assert refusal["message"] == (
        "gpu-1: gpu_count is 4, but the PCI bus has 2: 0000:03:00.0, 0000:04:00.0"
    )
    assert refusal["reference"] == "docs/troubleshooting.md#gpu_count_differs"


@pytest.mark.parametrize(
    ("planner", "changes", "desired", "steps"),
    [
        pytest.param(
            "nvidia_driver",
            {"kernel": {"modules": []}, "nvml": {"failure": BROKEN, "devices": []}},
            {},
            ["Load the NVIDIA modules", "Create the device files for CUDA now"],
            id="driver: not loaded after a boot",
        ),
        pytest.param(
            "nvidia_driver",
            {"driver": {"modules_load": [], "persistenced": {"active": False}}},
            {},
            ["Load the NVIDIA modules at boot", "Start the persistence daemon"],
            id="driver: not after the next boot",
        ),
        pytest.param(
            "nvidia_driver",
            {"packages": {"nvidia-driver-cuda": {"version": "580.178.04-1", "held": False}}},
            {},
            ["Hold the driver"],
            id="driver: released by hand",
        ),
        pytest.param(
            "nvidia_driver",
            {
                "packages": {"nvidia-driver-cuda": {"version": "580.178.04-1", "held": False}},
                "package_manager": {"interrupted": True},
            },
            {},
            ["Finish the interrupted package operation", "Hold the driver"],
            id="driver: dpkg was cut off",
        ),
        pytest.param(
            "nvidia_driver",
            {"kernel": {"modules": []}, "package_manager": {"interrupted": True}},
            {},
            ["Load the NVIDIA modules", "Create the device files for CUDA now"],
            id="driver: dpkg was cut off and is not needed",
        ),
        pytest.param(
            "nvidia_driver",
            {
                "driver": {"module_version": "580.173.02"},
                "nvml": {"failure": BROKEN, "devices": []},
            },
            {"reboot_ok": True},
            ["Reboot into the NVIDIA driver", "Create the device files for CUDA now"],
            id="driver: old module in the kernel",
        ),
        pytest.param(
            "nvidia_driver",
            {"nvml": {"failure": {"code": "gpu_lost", "exit_code": 15, "message": "lost"}}},
            {},
            [],
            id="driver: a lost GPU is not its fault",
        ),
        pytest.param(
            "nvidia_driver",
            {"repositories": repository("nvidia-driver")},
            {"state": "absent"},
            [
                "Stop the persistence daemon",
                "Unload the NVIDIA modules",
                "Remove the driver",
                "Remove the module configuration of the driver",
                "Rebuild the initramfs",
                "Remove the pin of the driver version",
                "Remove the repository of the driver",
                "Delete the record of the driver packages",
            ],
            id="driver: absent",
        ),
        pytest.param(
            "nvidia_driver",
            {
                "ours": {
                    "packages": {"nvidia_driver": None},
                    "files": ["/etc/modules-load.d/metal-gpu.conf"],
                }
            },
            {"state": "absent"},
            ["Remove the module configuration of the driver", "Rebuild the initramfs"],
            id="driver: absent, the admin's stays",
        ),
        pytest.param(
            "nvidia_driver",
            {
                "packages": {name: {"held": False} for name in OF_DRIVER},
                "ours": {"files": [], "packages": {"nvidia_driver": None}},
                "repositories": repository("nvidia-driver"),
            },
            {"state": "absent"},
            ["Remove the repository of the driver"],
            id="driver: absent, the admin's from our repository stays",
        ),
        pytest.param(
            "nvidia_driver",
            {
                "packages": dict.fromkeys(OF_DRIVER, EXCHANGED),
                "ours": {"files": []},
            },
            {"state": "absent"},
            ["Rebuild the initramfs", "Delete the record of the driver packages"],
            id="driver: absent, exchanged by the admin since",
        ),
        pytest.param(
            "nvidia_driver",
            {
                "packages": {"nvidia-driver-cuda": {"version": "580.178.04-1", "held": False}},
                "ours": {"files": [], "packages": {"nvidia_driver": None}},
            },
            {},
            [],
            id="driver: the admin's is not held",
        ),
        pytest.param(
            "nvidia_driver",
            {
                "driver": {"packages": {"nvidia-kernel-common": "20240109+1"}},
                "nvml": {"failure": None},
            },
            {},
            [],
            id="driver: works, and came from no package",
        ),
        pytest.param(
            "nvidia_driver",
            {
                "packages": {"nvidia-driver-cuda": {"version": "580.178.04-1", "held": False}},
                "package_manager": {"unfinished": {"x": {"version": "1", "state": "unpacked"}}},
            },
            {},
            ["Finish the interrupted package operation", "Hold the driver"],
            id="driver: dpkg has unpacked, and was cut off",
        ),
        pytest.param(
            "nvidia_driver",
            {"driver": {"initramfs_outdated": True}},
            {},
            ["Rebuild the initramfs"],
            id="driver: cut off before the ramdisk",
        ),
        pytest.param(
            "nvidia_driver",
            {"driver": {"unblocked": ["nouveau"], "initramfs_outdated": None}},
            {},
            ["Block the nouveau module"],
            id="driver: no ramdisk",
        ),
        pytest.param(
            "containerd",
            {"engines": {"containerd": {"running": False}}},
            {},
            ["Start containerd"],
            id="containerd: stopped",
        ),
        pytest.param(
            "containerd",
            {"engines": {"containerd": {"cri_enabled": False, "config": {"version": None}}}},
            {},
            ["Enable the CRI plugin of containerd", "Restart containerd"],
            id="containerd: as Docker packages it",
        ),
        pytest.param(
            "containerd",
            {"engines": {"containerd": {"installed": False}}, "packages": {"containerd.io": None}},
            {},
            [
                "Install python3-debian for the Docker repository",
                "Add the Docker repository",
                "Install containerd",
                "Hold containerd",
                "Enable the CRI plugin of containerd",
                "Restart containerd",
            ],
            id="containerd: missing",
        ),
        pytest.param(
            "containerd",
            {
                "packages": {"containerd.io": {"version": "2.4.1-2", "held": False}},
            },
            {},
            ["Hold containerd"],
            id="containerd: cut off before the hold",
        ),
        pytest.param(
            "containerd",
            {
                "packages": {"containerd.io": {"version": "2.4.1-2", "held": False}},
                "repositories": repository("docker"),
                "ours": {"packages": {"containerd": None}},
            },
            {},
            [],
            id="containerd: the admin's, from our repository",
        ),
        pytest.param(
            "containerd",
            {"engines": {"containerd": UNREAD}},
            {},
            ["Restart containerd"],
            id="containerd: cut off before the restart",
        ),
        pytest.param(
            "containerd",
            {"kubelet": {"running": False}},
            {"state": "absent"},
            ["Remove containerd", "Delete the record of the containerd package"],
            id="containerd: absent",
        ),
        pytest.param(
            "containerd",
            {"kubelet": {"running": False}, "ours": {"packages": {"containerd": None}}},
            {"state": "absent"},
            [],
            id="containerd: absent, the admin's",
        ),
        pytest.param(
            "containerd",
            {
                "kubelet": {"running": False},
                "packages": {"containerd.io": None},
                "ours": {"edits": CRI_EDIT, "packages": {"containerd": None}},
            },
            {"state": "absent"},
            [
                "Restore the configuration of containerd",
                "Restart containerd with its former configuration",
            ],
            id="containerd: absent, another package",
        ),
        pytest.param(
            "containerd",
            {
                "kubelet": {"running": False},
                "engines": {"containerd": {"running": False}},
                "packages": {"containerd.io": None},
                "ours": {"edits": CRI_EDIT, "packages": {"containerd": None}},
            },
            {"state": "absent"},
            ["Restore the configuration of containerd"],
            id="containerd: absent, another package, stopped by the admin",
        ),
        pytest.param(
            "nvidia_container_runtime",
            {
                "engines": {"containerd": UNREAD},
                "device_files": [
                    {"path": "/dev/nvidia0", "major": 195, "linked": False},
                    {"path": "/dev/nvidia-caps/nvidia-cap1", "major": 236, "linked": False},
                ],
            },
            {},
            ["Create links in /dev/char now", "Restart containerd"],
            id="runtime: cut off before the links and the restart",
        ),
        pytest.param(
            "nvidia_container_runtime",
            {},
            {"default": True},
            ["Register the NVIDIA runtime", "Restart containerd"],
            id="runtime: to be the default",
        ),
        pytest.param(
            "nvidia_container_runtime",
            {"cdi": {"devices": ["nvidia.com/gpu=0", "nvidia.com/gpu=all"]}},
            {},
            ["Generate the CDI specification"],
            id="runtime: CDI lacks a GPU",
        ),
        pytest.param(
            "nvidia_container_runtime",
            {
                "cdi": {
                    "devices": [
                        "nvidia.com/gpu=GPU-aaaa",
                        "nvidia.com/gpu=GPU-bbbb",
                        "nvidia.com/gpu=all",
                    ]
                }
            },
            {},
            [],
            id="runtime: CDI by UUID",
        ),
        pytest.param(
            "nvidia_container_runtime",
            {"engines": {"containerd": {"runtimes": {"nvidia": {"systemd_cgroup": False}}}}},
            {},
            ["Register the NVIDIA runtime", "Restart containerd"],
            id="runtime: cgroups differ",
        ),
        pytest.param(
            "nvidia_container_runtime",
            {"repositories": repository("container-toolkit")},
            {"state": "absent"},
            [
                "Remove the NVIDIA runtime from containerd",
                "Restart containerd",
                "Remove the rule for links in /dev/char",
                "Remove the container toolkit",
                "Remove the files of the container toolkit",
                "Remove the repository of the container toolkit",
                "Delete the record of the toolkit packages",
            ],
            id="runtime: absent",
        ),
        pytest.param(
            "kubelet_device_plugins",
            {"kubelet": {"feature_gates": [GATE_IN_CONFIG, GATE_IN_FLAG], "running": False}},
            {},
            [
                "Remove the DevicePlugins gate from the kubelet configuration",
                "Correct the DevicePlugins gate in the kubelet flags",
                "Restart the kubelet",
            ],
            id="kubelet 1.37: gates",
        ),
        pytest.param(
            "kubelet_device_plugins",
            {"kubelet": {"version": "1.27.16", "feature_gates": [GATE_IN_FLAG]}},
            {},
            ["Correct the DevicePlugins gate in the kubelet flags", "Restart the kubelet"],
            id="kubelet 1.27: gate",
        ),
        pytest.param(
            "kubelet_device_plugins",
            {"kubelet": {"running": False}},
            {},
            ["Restart the kubelet"],
            id="kubelet: down",
        ),
        pytest.param(
            "kubelet_device_plugins",
            {"kubelet": {"changed_since_start": ["/etc/default/kubelet"]}},
            {},
            [],
            id="kubelet 1.37: cut off before the restart",
        ),
        pytest.param(
            "kubelet_device_plugins",
            {
                "kubelet": {
                    "version": "1.9.2",
                    "feature_gates": [GATE_IN_FLAG],
                    "changed_since_start": ["/etc/default/kubelet"],
                }
            },
            {},
            ["Restart the kubelet"],
            id="kubelet 1.9: cut off before the restart",
        ),
        pytest.param(
            "kubelet_device_plugins",
            {"kubelet": {"version": "1.9.2"}},
            {},
            ["Set the DevicePlugins gate in a kubelet drop-in", "Restart the kubelet"],
            id="kubelet 1.9: no flags",
        ),
        pytest.param(
            "kubelet_device_plugins",
            {"kubelet": {"version": "1.9.2", "feature_gates": [GATE_IN_FLAG]}},
            {},
            [],
            id="kubelet 1.9: gate",
        ),
        pytest.param(
            "kubelet_device_plugins",
            {"kubelet": {"version": "1.9.2", "feature_gates": [GATE_IN_FLAG]}},
            {"state": "absent"},
            ["Correct the DevicePlugins gate in the kubelet flags", "Restart the kubelet"],
            id="kubelet 1.9: absent",
        ),
        pytest.param(
            "kubelet_device_plugins",
            {
                "kubelet": {
                    "version": "1.9.2",
                    "feature_gates": [{**GATE_IN_FLAG, "file": KUBELET_DROP_IN}],
                },
                "ours": {"files": [KUBELET_DROP_IN]},
            },
            {"state": "absent"},
            ["Remove the kubelet drop-in", "Restart the kubelet"],
            id="kubelet 1.9: absent, with a drop-in",
        ),
        pytest.param(
            "kubelet_device_plugins",
            {"kubelet": {"running": False}, "ours": {"edits": KUBELET_EDIT}},
            {"state": "absent"},
            ["Delete the history of the kubelet configuration"],
            id="kubelet 1.37: absent",
        ),
        pytest.param(
            "kubelet_device_plugins",
            {"kubelet": {"installed": False, "version": None, "running": False}},
            {"state": "absent"},
            [],
            id="kubelet: absent, and none there",
        ),
        pytest.param(
            "kubelet_device_plugins",
            {"kubelet": UNVERSIONED},
            {"state": "absent"},
            [],
            id="kubelet: absent, and nobody knows its version",
        ),
    ],
)
def test_steps(
    planner: str, changes: dict[str, Any], desired: dict[str, Any], steps: list[str]
) -> None:
    planned = plan(planner, without_nulls(merge(DONE, changes)), **desired)
    assert planned["refusals"] == []
    assert names(planned) == steps


def without_nulls(node: dict[str, Any]) -> dict[str, Any]:
    """Packages that a case sets to null are not installed, and records are not there."""
    packages = {name: found for name, found in node["packages"].items() if found}
    records = {role: noted for role, noted in node["ours"]["packages"].items() if noted}
    return {**node, "packages": packages, "ours": {**node["ours"], "packages": records}}


def test_working_driver_of_another_version_is_kept() -> None:
    planned = plan("nvidia_driver", DONE, version="570.211.01")
    assert (planned["steps"], planned["refusals"]) == ([], [])
    assert [notice["code"] for notice in planned["notices"]] == ["DRIVER_KEPT"]


@pytest.mark.parametrize(
    ("loaded", "wanted", "expected"),
    [
        pytest.param("proprietary", "auto", None, id="any"),
        pytest.param("proprietary", "proprietary", None, id="the same"),
        pytest.param(None, "open", None, id="not known"),
        pytest.param("proprietary", "open", "580.178.04 with the open module", id="the other"),
    ],
)
def test_working_driver_with_another_module_is_kept(
    loaded: str | None, wanted: str, expected: str | None
) -> None:
    node = merge(
        DONE,
        {"pci": done.bus(["0000:3b:00.0"], "1eb8"), "driver": {"flavour": loaded}},
    )
    planned = plan("nvidia_driver", node, flavour=wanted)
    assert (planned["steps"], planned["refusals"]) == ([], [])
    kept = [one for one in planned["notices"] if one["code"] == "DRIVER_KEPT"]
    assert [expected in one["message"] for one in kept if expected] == [True] * bool(expected)
    assert len(kept) == bool(expected)


def test_persistence_daemon_that_is_not_there_is_not_started() -> None:
    daemon = {"installed": False, "enabled": False, "active": False}
    planned = plan("nvidia_driver", merge(DONE, {"driver": {"persistenced": daemon}}))
    assert (planned["steps"], planned["refusals"]) == ([], [])
    assert [notice["code"] for notice in planned["notices"]] == ["PERSISTENCE_MISSING"]


@pytest.mark.parametrize(
    ("device", "flavour", "kernel"),
    [
        pytest.param("15f8", "proprietary", "nvidia-kernel-dkms", id="P100"),
        pytest.param("20b0", "open", "nvidia-kernel-open-dkms", id="A100"),
        pytest.param("2901", "open", "nvidia-kernel-open-dkms", id="B200"),
    ],
)
def test_flavour_follows_the_gpu(device: str, flavour: str, kernel: str) -> None:
    planned = plan("nvidia_driver", merge(VIRGIN, {"pci": [{**GPU, "device": device}]}))
    assert planned["data"]["flavour"] == flavour
    assert planned["data"]["packages"] == [
        "nvidia-driver-cuda=580.178.04-*",
        f"{kernel}=580.178.04-*",
        "nvidia-persistenced=580.178.04-*",
        "linux-headers-6.1.0-26-amd64",
    ]
    assert "Pin: version 580.178.04-*\n" in planned["data"]["pin"]["block"]
    noted = planned["data"]["packages_record"]["packages"]
    assert noted[kernel] == {"version": "580.178.04-*", "before": None}
    assert "linux-headers-6.1.0-26-amd64" not in noted


def test_nouveau_is_rebooted_away_where_permitted() -> None:
    node = merge(VIRGIN, {"kernel": {"modules": ["nouveau"]}})
    steps = names(plan("nvidia_driver", node, reboot_ok=True))
    assert "Reboot into the NVIDIA driver" in steps
    assert "Load the NVIDIA modules" not in steps


def test_gpu_without_a_uuid_is_named_by_its_address() -> None:
    known, nameless = DONE["nvml"]["devices"]
    devices = [known, {**nameless, "uuid": None}]
    cdi = {"devices": ["nvidia.com/gpu=0", "nvidia.com/gpu=all"]}
    planned = plan(
        "nvidia_container_runtime", merge(DONE, {"nvml": {"devices": devices}, "cdi": cdi})
    )
    assert planned["steps"] == [
        {
            "slug": "cdi",
            "name": "Generate the CDI specification",
            "reason": "the CDI specification lacks 0000:04:00.0",
        }
    ]


@pytest.mark.parametrize(
    ("second", "name"),
    [
        pytest.param({"error": "[GPU is lost]"}, "nvidia.com/gpu=0", id="lost"),
        pytest.param({}, "nvidia.com/gpu=1:0", id="with MIG"),
    ],
)
def test_specification_without_a_whole_gpu_is_complete(second: dict[str, str], name: str) -> None:
    """Written once more, it would be the same."""
    healthy, other = DONE["nvml"]["devices"]
    devices = [healthy, {**other, **second}]
    cdi = {"devices": ["nvidia.com/gpu=0", name, "nvidia.com/gpu=all"]}
    planned = plan(
        "nvidia_container_runtime", merge(DONE, {"nvml": {"devices": devices}, "cdi": cdi})
    )
    assert planned["steps"] == []


def test_newer_toolkit_is_kept() -> None:
    planned = plan("nvidia_container_runtime", merge(DONE, {"toolkit": {"version": "1.21.0"}}))
    assert planned["steps"] == []
    assert [notice["code"] for notice in planned["notices"]] == ["TOOLKIT_KEPT"]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="package"),
        pytest.param(
            {"packages": {}, "ours": {"edits": CRI_EDIT, "packages": {}}}, id="configuration"
        ),
    ],
)
def test_containerd_is_not_taken_away_from_a_kubelet(changes: dict[str, Any]) -> None:
    node = {**DONE, **changes}
    assert codes(plan("containerd", node, state="absent")) == ["CONTAINERD_IN_USE"]


OURS = {"path": CONFIG, "actor": CRI_EDIT[0]["actor"]}
RESTART = ["Restart containerd"]


@pytest.mark.parametrize("role", ["containerd", "nvidia_container_runtime"])
@pytest.mark.parametrize(
    ("unread", "by_us", "untouched", "steps", "change"),
    [
        pytest.param([CONFIG], [CONFIG], True, RESTART, OURS, id="ours"),
        pytest.param([CONFIG], [CONFIG], False, RESTART, None, id="somebody has changed it since"),
        pytest.param([CONFIG], [], False, [], None, id="changed long after our edit was read"),
        pytest.param(
            ["/etc/containerd/conf.d/99-metal-gpu.toml"], [], True, RESTART, None, id="our drop-in"
        ),
        pytest.param(["/etc/containerd/other.toml"], [], True, [], None, id="another file"),
    ],
)
def test_only_what_nobody_has_changed_since_is_taken_back(
    role: str,
    unread: list[str],
    by_us: list[str],
    untouched: bool,
    steps: list[str],
    change: dict[str, str] | None,
) -> None:
    """A restart that fails for what its owner has written must not turn the CRI plugin off."""
    edits = [{**CRI_EDIT[0], "changes": [], "untouched": untouched}]
    engine = {"changed_since_start": unread, "edited_since_start": by_us}
    made = plan(role, merge(DONE, {"engines": {"containerd": engine}, "ours": {"edits": edits}}))
    assert [step["name"] for step in made["steps"]] == steps
    if steps:
        assert made["data"]["change"] == change


RESTORED = {"changed_since_start": [CONFIG], "runtimes": {"nvidia": None}}
UNPARSED = {"runtimes": {"nvidia": None, "runc": None}, "config": {"error": f"{CONFIG}, line 3"}}
ADMINS = {"runtimes": {"nvidia": {"binary": "/usr/local/nvidia/toolkit/nvidia-container-runtime"}}}
THEIRS = {"runtimes": DONE["engines"]["containerd"]["runtimes"]}


def half_removed(changes: dict[str, Any], base: dict[str, Any] = DONE) -> dict[str, Any]:
    """Return a node whose files have no history any more, while the toolkit is still to go."""
    changed = merge({"engines": {"containerd": RESTORED}}, changes)
    node = without_nulls(merge(base, changed))
    node["ours"] = {**node["ours"], "edits": [], "packages": DONE["ours"]["packages"]}
    return node


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, True, id="the restored file has no history any more"),
        pytest.param({"engines": {"containerd": ADMINS}}, True, id="the admin's one is back"),
        pytest.param({"engines": {"containerd": THEIRS}}, False, id="a file still has the runtime"),
        pytest.param(
            {"engines": {"containerd": {"changed_since_start": []}}}, False, id="containerd read it"
        ),
    ],
)
def test_removal_that_stopped_before_the_restart(
    changes: dict[str, Any], *, expected: bool
) -> None:
    """The restored file has no history any more, and the default runtime must not go unread."""
    planned = names(plan("nvidia_container_runtime", half_removed(changes), state="absent"))
    assert ("Restart containerd" in planned) is expected


def test_change_of_the_admin_is_not_read_without_a_toolkit_of_ours() -> None:
    """The removal has ended, or never begun."""
    node = half_removed({})
    node["ours"] = {**node["ours"], "packages": {}}
    planned = names(plan("nvidia_container_runtime", node, state="absent"))
    assert "Restart containerd" not in planned


def test_no_engine_is_restarted_with_a_file_that_cannot_be_parsed() -> None:
    """The admin is halfway through an edit, and containerd would not come back."""
    node = half_removed({"engines": {"containerd": UNPARSED}})
    refused = plan("nvidia_container_runtime", node, state="absent")
    assert (codes(refused), refused["steps"]) == (["CONTAINERD_CONFIG_INVALID"], [])


@pytest.mark.parametrize("changes", [{}, UNPARSED], ids=["valid", "cannot be parsed"])
def test_containerd_below_docker_waits_for_its_next_start(changes: dict[str, Any]) -> None:
    """The role registers nothing with it there, so what has changed is the admin's."""
    node = half_removed({"engines": {"containerd": changes}}, merge(DONE, load("docker")))
    planned = plan("nvidia_container_runtime", node, state="absent")
    assert codes(planned) == []
    assert "Restart containerd" not in names(planned)
    assert "Remove the container toolkit" in names(planned)


def test_driver_that_was_removed_halfway_goes_on_going() -> None:
    noted = {**VIRGIN["ours"], "packages": DONE["ours"]["packages"]}
    node = {**VIRGIN, "repositories": repository("nvidia-driver"), "ours": noted}
    assert names(plan("nvidia_driver", node, state="absent")) == [
        "Rebuild the initramfs",
        "Remove the repository of the driver",
        "Delete the record of the driver packages",
    ]


def test_modules_are_unloaded_before_those_that_they_use() -> None:
    loaded = ["nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nvidia_uvm"]
    node = merge(DONE, {"kernel": {"modules": ["nouveau", *loaded]}})
    assert plan("nvidia_driver", node, state="absent")["data"]["modules"] == [
        "nvidia_peermem",
        "nvidia_drm",
        "nvidia_modeset",
        "nvidia_uvm",
        "nvidia",
    ]


def test_driver_of_somebody_else_is_not_taken_away() -> None:
    node = without_nulls(merge(DONE, {"ours": NO_DRIVER}))
    planned = plan("nvidia_driver", node, state="absent")
    assert [notice["code"] for notice in planned["notices"]] == ["DRIVER_OF_ADMIN"]
    assert planned["notices"][0]["message"].startswith("gpu-1: driver 580.178.04 stays: ")


@pytest.mark.parametrize(("role", "node"), [("containerd", DONE), ("docker_ce", DOCKER)])
def test_engine_of_the_admin_stays(role: str, node: dict[str, Any]) -> None:
    theirs = {"ours": {"packages": {role: None}}, "repositories": {"metal-gpu-docker": None}}
    planned = plan(role, without_nulls(merge(node, theirs)), state="absent")
    assert "ENGINE_OF_ADMIN" in [notice["code"] for notice in planned["notices"]]


OUR_CRIO = merge(CRIO, {"ours": record("crio", {"cri-o": "1.36.3-1.1"})})


@pytest.mark.parametrize("version", ["", "99.1.0"], ids=["the same", "another"])
@pytest.mark.parametrize(
    ("role", "node", "variable"),
    [
        ("containerd", DONE, "version"),
        ("docker_ce", DOCKER, "containerd_version"),
        ("crio", OUR_CRIO, "version"),
    ],
)
def test_version_of_an_engine_of_ours_that_rises(
    role: str, node: dict[str, Any], variable: str, version: str
) -> None:
    """Nothing changes it, and a run must say so."""
    same = {"crio": "1.36.3"}.get(role, "2.4.1")
    planned = plan(role, node, **{variable: version or same})
    kept = [one["message"] for one in planned["notices"] if one["code"] == "ENGINE_KEPT"]
    assert planned["steps"] == []
    assert [f"({role}_{variable} asks for 99.1.0)" in one for one in kept] == [True] * bool(version)


def test_only_what_is_ours_goes() -> None:
    exchanged = {"packages": dict.fromkeys(OF_DRIVER, EXCHANGED)}
    planned = plan("nvidia_driver", merge(DONE, exchanged), state="absent")
    assert planned["data"]["packages"] == []
    planned = plan("nvidia_driver", DONE, state="absent")
    assert planned["data"]["packages"] == sorted(DONE["driver"]["packages"])
    assert planned["notices"] == []


OF_THE_ADMIN = dict.fromkeys(
    ("nvidia-fabricmanager", "nvidia-imex", "nvidia-fs-dkms", "nvidia-settings"), "580.178.04-1"
)


def test_packages_of_the_admin_stay() -> None:
    node = merge(DONE, {"driver": {"packages": OF_THE_ADMIN}})
    planned = plan("nvidia_driver", node, state="absent")
    assert planned["data"]["packages"] == sorted(DONE["driver"]["packages"])
    (notice,) = planned["notices"]
    assert notice["code"] == "DRIVER_PACKAGES_KEPT"
    for name in OF_THE_ADMIN:
        assert name in notice["message"]


def dependants(needs: dict[str, list[list[str]]], *automatic: str) -> dict[str, Any]:
    return {"package_manager": {"dependants": needs, "automatic": ["libcuda1", *automatic]}}


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        pytest.param({"pycuda": [["libcuda1"]]}, ["libcuda1"], id="a library"),
        pytest.param({"pycuda": [["libcuda1", "nvidia-smi"]]}, [], id="a library, or another"),
        pytest.param(
            {"gpu-app": [["libdebugger"]], "libdebugger": [["libcuda1"]]},
            ["libcuda1", "libdebugger"],
            id="a library of a library",
        ),
    ],
)
def test_dependencies_of_the_admins_packages_stay(
    changes: dict[str, list[list[str]]], stays: list[str]
) -> None:
    node = merge(DONE, dependants(changes, "libdebugger"))
    planned = plan("nvidia_driver", node, state="absent")
    assert planned["refusals"] == []
    assert not set(stays) & set(planned["data"]["packages"])
    assert ("libcuda1" in planned["data"]["packages"]) is ("libcuda1" not in stays)


def test_only_dependencies_of_the_driver_are_removed() -> None:
    needs = {"libdebugger": [["libcuda1"]], "docker-ce-rootless-extras": [["docker-ce"]]}
    node = merge(DONE, dependants(needs, *needs))
    packages = plan("nvidia_driver", node, state="absent")["data"]["packages"]
    assert packages == sorted([*DONE["driver"]["packages"], "libdebugger"])


@pytest.mark.parametrize(
    ("planner", "node", "added"),
    [
        pytest.param("nvidia_driver", DONE, "nvidia-driver-cuda", id="driver"),
        pytest.param(
            "nvidia_container_runtime", DONE, "nvidia-container-toolkit-base", id="toolkit"
        ),
        pytest.param(
            "containerd",
            merge(DONE, {"kubelet": {"running": False}}),
            "containerd.io",
            id="containerd",
        ),
        pytest.param(
            "docker_ce",
            merge(
                DOCKER, {"kubelet": {"running": False}, "engines": {"docker": {"containers": []}}}
            ),
            "docker-ce",
            id="docker_ce",
        ),
    ],
)
def test_removal_of_a_package_that_the_admin_needs_is_refused(
    planner: str, node: dict[str, Any], added: str
) -> None:
    """apt would also remove that package, and no task would announce it."""
    needs = {"admins-one": [[added]], "admins-other": [["admins-one"]], "library": [[added]]}
    lost = merge(node, dependants(needs, "library"))
    (refusal,) = plan(planner, lost, state="absent")["refusals"]
    assert refusal["code"] == "PACKAGES_NEEDED"
    assert refusal["message"].endswith("did not install: admins-one, admins-other")
    assert plan(planner, node, state="absent")["refusals"] == []


def test_dnf_decides_about_dependencies() -> None:
    changes = {
        "os": {"id": "rocky", "version_id": "9.4", "family": "redhat"},
        "driver": {"packages": OF_THE_ADMIN},
        "package_manager": {"automatic": [], "dependants": {}},
    }
    planned = plan("nvidia_driver", {**merge(DONE, changes)}, state="absent")
    assert set(planned["data"]["packages"]) == {*OF_DRIVER}
    assert planned["notices"] == []


def test_driver_is_named_by_its_version_and_not_by_its_packages() -> None:
    """Debian's modules have names that tell no version."""
    packages = dict.fromkeys(("libcuda1", "libnvidia-ml1", "nvidia-smi"), "550.163.01-2")
    helpers = {"nvidia-kernel-common": "20240109+1", "nvidia-modprobe": "570.133.07-1"}
    node = merge(VIRGIN, {"driver": {"packages": {**packages, **helpers}}})
    (notice,) = plan("nvidia_driver", node, state="absent")["notices"]
    assert notice["message"].startswith("gpu-1: driver 550.163.01-2 stays: ")


def test_helpers_that_apt_leaves_behind_are_no_driver() -> None:
    """After `apt remove nvidia-driver`, on Debian 12 and 13."""
    node = merge(VIRGIN, {"driver": {"packages": {"nvidia-kernel-common": "20240109+1"}}})
    planned = plan("nvidia_driver", node)
    assert planned["refusals"] == []
    assert "Install the driver" in names(planned)
    assert plan("nvidia_driver", node, state="absent")["notices"] == []


@pytest.mark.parametrize(
    ("packages", "version", "notices"),
    [
        pytest.param({}, "580.178.04", ["DRIVER_WITHOUT_PACKAGE"], id="runfile"),
        pytest.param({}, "550.1", ["DRIVER_WITHOUT_PACKAGE", "DRIVER_KEPT"], id="runfile, other"),
        pytest.param(
            {"nvidia-kernel-common": "20240109+1"},
            "580.178.04",
            ["DRIVER_WITHOUT_PACKAGE"],
            id="runfile, and a helper",
        ),
        pytest.param(
            {"libcuda1": "550.1-1"}, "550.1", ["PACKAGES_UNHELD", "DRIVER_KEPT"], id="packages"
        ),
    ],
)
def test_working_driver_is_kept_wherever_it_came_from(
    packages: dict[str, str], version: str, notices: list[str]
) -> None:
    changes = {
        "driver": {"module_version": version},
        "nvml": {"driver_version": version},
        "ours": {"files": [], "packages": {"nvidia_driver": None}},
    }
    node = without_nulls(merge(DONE, changes))
    node["driver"]["packages"] = packages
    node["packages"] = {name: {"version": one, "held": False} for name, one in packages.items()}
    planned = plan("nvidia_driver", node)
    assert (planned["steps"], planned["refusals"]) == ([], [])
    assert [notice["code"] for notice in planned["notices"]] == notices


def test_package_that_could_not_be_configured_is_named_with_its_log() -> None:
    dkms = {"built": False, "log": "/var/lib/dkms/nvidia/550.163.01/build/make.log"}
    changes = {"package_manager": {"unfinished": UNFINISHED}, "driver": {"dkms": dkms}}
    (refusal,) = plan("nvidia_driver", merge(VIRGIN, changes))["refusals"]
    assert refusal["message"] == (
        "gpu-1: dpkg could not finish installing packages, so every further installation fails: "
        "nvidia-kernel-dkms 550.163.01-2 is half-configured; nvidia-driver-cuda 550.163.01-2 is "
        "unpacked; build log of the kernel module: "
        "/var/lib/dkms/nvidia/550.163.01/build/make.log"
    )
    assert "`apt-get purge nvidia-kernel-dkms nvidia-driver-cuda`" in refusal["remedy"]
    # Where dpkg was cut off, it may well come to an end.
    cut = {"package_manager": {"unfinished": UNFINISHED, "interrupted": True}}
    assert names(plan("nvidia_driver", merge(VIRGIN, cut)))[0].startswith("Finish the interrupted")


def test_working_driver_with_a_package_that_could_not_be_configured() -> None:
    changes = {"package_manager": {"unfinished": UNFINISHED}}
    planned = plan("nvidia_driver", merge(DONE, changes))
    assert (planned["steps"], planned["refusals"]) == ([], [])
    assert [notice["code"] for notice in planned["notices"]] == ["DRIVER_UNFINISHED"]


@pytest.mark.parametrize("name", ["nvidia-fs-dkms", "nvidia-peer-memory-dkms", "nvidia-gds-12-8"])
def test_a_package_beside_the_driver_does_not_threaten_it(name: str) -> None:
    """Source: NVIDIA/gds-nvidia-fs#64 and #48."""
    failed = {name: {"version": "2.26.6-1", "state": "half-configured"}}
    planned = plan("nvidia_driver", merge(DONE, {"package_manager": {"unfinished": failed}}))
    assert [notice["code"] for notice in planned["notices"]] == []


def test_module_that_dkms_has_not_built_is_said() -> None:
    changes = {
        "driver": {
            "packages": {"libcuda1": "550.163.01-2"},
            "dkms": {"built": False, "log": "/var/lib/dkms/x/make.log"},
        },
        "nvml": {"failure": BROKEN},
    }
    (refusal,) = plan("nvidia_driver", merge(VIRGIN, changes))["refusals"]
    assert refusal["message"] == (
        "gpu-1: driver 550.163.01 is installed but does not work: version mismatch; DKMS built no "
        "module for kernel 6.1.0-26-amd64 (build log: /var/lib/dkms/x/make.log)"
    )


def test_module_that_was_not_built_is_not_loaded() -> None:
    """After a new kernel, for which the build has failed: modprobe would find no module."""
    changes = {
        "driver": {"dkms": {"built": False, "log": "/make.log"}, "module_version": None},
        "kernel": {"modules": []},
        "nvml": {"failure": BROKEN, "devices": []},
    }
    planned = plan("nvidia_driver", merge(DONE, changes))
    assert (codes(planned), planned["steps"]) == (["DKMS_BUILD_FAILED"], [])
    assert "for kernel 6.1.0-26-amd64" in planned["refusals"][0]["message"]
    # What builds it may still be missing.
    planned = plan("nvidia_driver", merge(DONE, {**changes, "kernel": VIRGIN["kernel"]}))
    steps = ["Install the driver", "Build the kernel module", "Load the NVIDIA modules"]
    assert names(planned)[-4:] == [*steps, "Create the device files for CUDA now"]


def test_module_without_a_failed_build_is_built() -> None:
    changes = {
        "driver": {"dkms": {"built": False, "log": None}, "module_version": None},
        "kernel": {"modules": []},
        "nvml": {"failure": BROKEN, "devices": []},
    }
    planned = plan("nvidia_driver", merge(DONE, changes))
    assert names(planned) == [
        "Build the kernel module",
        "Load the NVIDIA modules",
        "Create the device files for CUDA now",
    ]
    assert planned["data"]["source"] == "nvidia/580.178.04"
    # DKMS cannot build from the source of another version.
    changes["driver"]["dkms"]["sources"] = ["nvidia/570.1"]
    assert codes(plan("nvidia_driver", merge(DONE, changes))) == ["DRIVER_BROKEN"]


def test_nothing_is_installed_over_a_loaded_driver_that_does_not_answer() -> None:
    loose = {name: {"version": "580.178.04-1", "held": False} for name in OF_DRIVER}
    changes = {
        "nvml": {"failure": SILENT, "devices": []},
        "packages": {**loose, "nvidia-persistenced": None},
        "ours": NO_DRIVER,
    }
    planned = plan("nvidia_driver", without_nulls(merge(DONE, changes)))
    assert (codes(planned), planned["steps"]) == (["DRIVER_BROKEN"], [])
    assert "did not end within 30 s" in planned["refusals"][0]["message"]


def test_driver_of_the_admin_that_is_not_loaded_is_loaded_and_not_held() -> None:
    loose = {name: {"version": "580.178.04-1", "held": False} for name in OF_DRIVER}
    changes = {
        "kernel": {"modules": []},
        "nvml": {"failure": BROKEN, "devices": []},
        "packages": loose,
        "ours": NO_DRIVER,
    }
    node = without_nulls(merge(DONE, changes))
    planned = plan("nvidia_driver", node)
    assert (names(planned), planned["data"]["hold"]) == (["Load the NVIDIA modules"], [])
    # One that is missing is installed, and that one is ours. It follows the admin's driver.
    del node["packages"]["nvidia-persistenced"]
    planned = plan("nvidia_driver", node)
    assert planned["data"]["hold"] == []
    assert list(planned["data"]["packages_record"]["packages"]) == ["nvidia-persistenced"]


def test_gpus_that_are_alike_are_one_finding() -> None:
    gpus = [{**GPU, "address": f"0000:0{slot}:00.0"} for slot in range(1, 9)]
    newer = {**GPU, "address": "0000:0a:00.0", "device": "1db6"}
    planned = plan("nvidia_driver", merge(VIRGIN, {"pci": [*gpus, newer]}), version="610.57.04")
    assert [one["message"] for one in planned["refusals"]] == [
        "gpu-1: driver 610.57.04 does not support the Pascal GPUs (device 15f8) at "
        f"{', '.join(gpu['address'] for gpu in gpus)}; branch 580 or older does",
        "gpu-1: driver 610.57.04 does not support the Volta GPUs (device 1db6) at 0000:0a:00.0; "
        "branch 580 or older does",
    ]


def test_reasons_and_findings_show_no_credentials() -> None:
    changes = {
        "repository_url": "https://me:CANARY@mirror.example/",
        "repository_key": "https://me:CANARY@mirror.example/key",
        "repository_fingerprint": "",
    }
    ours = repository("nvidia-driver")
    ours["metal-gpu-nvidia-driver"]["entries"][0]["types"] = "deb"
    for node in (VIRGIN, {**VIRGIN, "repositories": ours}):
        for fingerprint in ("", "0" * 40):
            desired = {**changes, "repository_fingerprint": fingerprint}
            planned = plan("nvidia_driver", node, **desired)
            assert "CANARY" not in str([planned[key] for key in ("steps", "refusals", "notices")])


@pytest.mark.parametrize(
    ("file", "reload"),
    [
        ("/etc/default/kubelet", False),
        ("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", True),
    ],
)
def test_daemon_reload_only_for_units(file: str, reload: bool) -> None:
    node = merge(DONE, {"kubelet": {"feature_gates": [{**GATE_IN_FLAG, "file": file}]}})
    assert plan("kubelet_device_plugins", node)["data"]["daemon_reload"] is reload


def test_a_reload_that_a_cut_has_prevented_is_made_up_for() -> None:
    node = merge(DONE, {"kubelet": {"running": False, "needs_reload": True}})
    assert plan("kubelet_device_plugins", node)["data"]["daemon_reload"] is True


@pytest.mark.parametrize("url", ["http://[::1]:10248/healthz", None])
def test_health_url(url: str | None) -> None:
    node = merge(DONE, {"kubelet": {"health_url": url}})
    assert plan("kubelet_device_plugins", node)["data"]["health_url"] == url


@pytest.mark.parametrize(
    "kubelet",
    [
        pytest.param({"joined_name": None}, id="not joined, or not by certificate"),
        pytest.param({"own_name": None}, id="a cloud provider names it"),
    ],
)
def test_a_node_without_two_names_is_not_renamed(kubelet: dict[str, Any]) -> None:
    assert plan("preflight", merge(DONE, {"kubelet": kubelet}))["refusals"] == []


def test_a_gate_that_no_file_has_satisfies_a_kubelet_and_is_in_no_edit() -> None:
    """A wrapper gives it, as `ps` shows."""
    gate = {**GATE_IN_FLAG, "file": None, "flag": "--feature-gates"}
    ancient = {"version": "1.9.2", "feature_gates": [gate]}
    assert names(plan("kubelet_device_plugins", merge(DONE, {"kubelet": ancient}))) == []
    modern = plan("kubelet_device_plugins", merge(DONE, {"kubelet": {"feature_gates": [gate]}}))
    assert (names(modern), modern["data"]["flags"]) == ([], [])


@pytest.mark.parametrize("planner", ["nvidia_driver", "kubelet_device_plugins"])
def test_teardown_takes_no_file_but_those_of_the_role(planner: str) -> None:
    """Whatever the observation calls ours."""
    theirs = [
        "/etc/modules-load.d/site-metal-gpu-infiniband.conf",
        "/etc/modprobe.d/metal-gpu-cluster.conf",
        "/etc/systemd/system/kubelet.service.d/20-site-metal-gpu.conf",
    ]
    planned = plan(planner, merge(VIRGIN, {"ours": {"files": theirs}}), state="absent")
    assert planned["steps"] == []


def test_a_containerd_anywhere_is_not_joined_by_a_second_one() -> None:
    """As Kubespray has it, on a system whose sudo does not look into /usr/local/bin."""
    engine = {"path": "/usr/local/bin/containerd", "installed": True}
    node = merge(VIRGIN, {"engines": {"containerd": engine}, "packages": {}})
    assert names(plan("containerd", node)) == []


def tasks(role: str) -> list[dict[str, Any]]:
    """Return all tasks of a role, those in blocks too."""

    def flat(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = []
        for entry in entries:
            found.append(entry)
            for block in ("block", "rescue", "always"):
                found += flat(entry.get(block, []))
        return found

    paths = sorted((ROOT / "roles" / role / "tasks").glob("*.yml"))
    return [task for path in paths for task in flat(yaml.safe_load(path.read_text()))]


def steps(role: str) -> tuple[Any, ...]:
    found: tuple[Any, ...] = sys.modules[PLANNERS[role].__module__].STEPS
    return found


@pytest.mark.parametrize("role", STEPPERS)
def test_each_step_is_a_task_of_the_role(role: str) -> None:
    assert {step.title for step in steps(role)} <= {task["name"] for task in tasks(role)}


@pytest.mark.parametrize("role", STEPPERS)
def test_conditions_of_tasks_have_slugs_of_steps(role: str) -> None:
    slugs = [step.slug for step in steps(role)]
    texts = [path.read_text() for path in (ROOT / "roles" / role).glob("*/*.yml")]
    found = (re.findall(r"'(\w+)'\s+in \w+_(?:steps|plan)", text) for text in texts)
    tested = {one for ones in found for one in ones}
    assert tested == set(slugs)
    assert len(slugs) == len(tested)


def test_one_kubernetes_node_is_two_hosts() -> None:
    clashes = platform.name_clashes({"a": "gpu-1", "b": "gpu-2", "c": "gpu-1"})
    assert [clash["message"] for clash in clashes] == [
        "a: this host and c are the same Kubernetes node, gpu-1",
        "c: this host and a are the same Kubernetes node, gpu-1",
    ]


@pytest.mark.parametrize(
    ("hosts", "words"),
    [("abc", "this host, b and c"), ("abcdefg", "this host, b, c, d, e and 2 more")],
)
def test_one_kubernetes_node_is_many_hosts(hosts: str, words: str) -> None:
    first, *_others = platform.name_clashes(dict.fromkeys(hosts, "gpu-1"))
    assert first["message"] == f"a: {words} are the same Kubernetes node, gpu-1"


# What Ansible and the programs say is after their sources, which plan_preflight names. The words of
# su are recorded: util-linux 2.38.1 of Debian 12, by a user who is not root, without a terminal.
@pytest.mark.parametrize(
    ("result", "method", "code", "said"),
    [
        pytest.param(
            {"msg": "Task failed: Failed to connect to the host via ssh: x", "unreachable": True},
            "", "NODE_UNREACHABLE", "Failed to connect to the host via ssh: x", id="unreachable",
        ),
        pytest.param(
            {"msg": "Task failed: Missing sudo password"}, "", "SUDO_REFUSED",
            "Missing sudo password", id="sudo wants a password",
        ),
        pytest.param(
            {"msg": "Incorrect sudo password"}, "", "SUDO_REFUSED", "Incorrect sudo password",
            id="wrong password",
        ),
        pytest.param(
            {"msg": "Timeout (12s) waiting for privilege escalation prompt: "}, "", "SUDO_REFUSED",
            "Timeout (12s) waiting for privilege escalation prompt:", id="no prompt",
        ),
        pytest.param(
            {"msg": "Module failed", "module_stderr": "x\nsudo: a password is required\n"},
            "", "SUDO_REFUSED", "sudo: a password is required", id="sudo in the output",
        ),
        pytest.param(
            {"msg": "Module failed", "module_stdout": "bob is not in the sudoers file.\r\n"},
            "", "SUDO_REFUSED", "bob is not in the sudoers file.", id="unknown to sudo",
        ),
        pytest.param(
            {"msg": "Timeout (12s) waiting for privilege escalation prompt: \nPassword: ",
             "unreachable": True},
            "su", "BECOME_REFUSED", "Timeout (12s) waiting for privilege escalation prompt:",
            id="su waits for a password, and Ansible calls it unreachable",
        ),
        pytest.param(
            {"msg": "Module failed", "module_stderr": "Password: su: Authentication failure\n"},
            "", "BECOME_REFUSED", "su: Authentication failure", id="su without a password",
        ),
        pytest.param(
            {"msg": "Task failed: Incorrect su password"}, "", "BECOME_REFUSED",
            "Incorrect su password", id="su with a wrong password",
        ),
        pytest.param(
            {"msg": "Authentication failure.", "unreachable": True}, "ansible.builtin.su",
            "BECOME_REFUSED", "Authentication failure.", id="exit code 5",
        ),
        pytest.param(
            {"msg": "Premature end of stream waiting for become success.\n"
             ">>> Standard Error\nPassword: su: Authentication failure"},
            "su", "BECOME_REFUSED", "Premature end of stream waiting for become success.",
            id="su by the connection local",
        ),
        pytest.param(
            {"msg": "Missing community.general.doas password"}, "", "BECOME_REFUSED",
            "Missing community.general.doas password", id="doas wants a password",
        ),
        pytest.param(
            {"msg": "Module failed", "module_stderr": "doas: a tty is required\n"}, "",
            "BECOME_REFUSED", "doas: a tty is required", id="doas without a terminal",
        ),
        pytest.param(
            {"msg": "Module failed", "module_stdout": "==== AUTHENTICATION FAILED ====\r\n"},
            "community.general.machinectl", "BECOME_REFUSED", "==== AUTHENTICATION FAILED ====",
            id="machinectl without a password",
        ),
        pytest.param(
            {"msg": "Module failed", "module_stderr": "/bin/sh: 1: python3: not found"}, "",
            "NODE_NOT_OBSERVED", "Module failed: /bin/sh: 1: python3: not found", id="no Python",
        ),
        pytest.param(
            {"msg": "Module failed", "module_stderr": "sudo: unable to resolve host gpu-1: "
             "Name or service not known\n/bin/sh: 1: python3: not found"},
            "", "NODE_NOT_OBSERVED", "Module failed: /bin/sh: 1: python3: not found",
            id="sudo does not know the name of the host, and goes on",
        ),
        pytest.param(
            {"msg": "Module failed", "module_stderr":
             "sudo: setrlimit(RLIMIT_CORE): Operation not permitted\nSegmentation fault"},
            "", "NODE_NOT_OBSERVED", "Module failed: Segmentation fault",
            id="sudo may not set a limit, and goes on",
        ),
        pytest.param(
            {"msg": "Module failed", "module_stderr": "sudo: unable to resolve host gpu-1\n"
             "sudo: a password is required\n"},
            "", "SUDO_REFUSED", "sudo: a password is required", id="a warning before a refusal",
        ),
        pytest.param(
            {"msg": "Failed to create temporary directory. In some cases, you may have been able "
             "to authenticate", "unreachable": True},
            "", "NODE_NOT_OBSERVED", "you may have been able to authenticate",
            id="nothing can be written, and Ansible calls it unreachable",
        ),
        pytest.param(
            {"msg": "MODULE FAILURE\nSee stdout/stderr for the exact error",
             "module_stdout": "This account is currently not available.\r\n"},
            "", "LOGIN_SHELL_MISSING", "This account is currently not available.", id="nologin",
        ),
        pytest.param(
            {"msg": "Module failed",
             "module_stderr": "sudo: sorry, you must have a tty to run sudo\n"},
            "", "SUDO_NEEDS_TERMINAL", "sudo: sorry, you must have a tty to run sudo",
            id="requiretty",
        ),
        pytest.param(
            {"msg": "Module failed", "module_stderr": "proxy http://u:hunter2@proxy.example"},
            "", "NODE_NOT_OBSERVED", "proxy http://***@proxy.example", id="a secret",
        ),
    ],
)  # fmt: skip
def test_why_there_is_no_observation(
    result: dict[str, Any], method: str, code: str, said: str
) -> None:
    found = platform.why_unobserved("gpu-1", result, method)
    assert found["code"] == code
    assert found["message"].endswith(said)
    if code == "BECOME_REFUSED":
        assert re.match(
            r"gpu-1: .* cannot become root with (su|doas|machinectl): ", found["message"]
        )


def test_su_wants_the_password_of_root() -> None:
    found = platform.why_unobserved("gpu-1", {"msg": "Incorrect su password"})
    assert found["remedy"].startswith("pass root's password with `--ask-become-pass` ")

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the module hands over of planted nodes, interpreted as in a play."""

from __future__ import annotations

import os
from types import SimpleNamespace
from unittest.mock import ANY

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe import collect
from ansible_collections.metal.gpu.tests.unit.support.observing import (
    CONTAINERD_VERSION,
    PACKAGES,
    UNITS,
)
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    parse_scene,
    plant,
    plant_services,
    recording,
)


def no_file(name):
    """Return what is said of a program that the planted node does not have."""
    return {"path": f"/usr/bin/{name}", "exists": False, "executable": False}


def test_a_gpu_node(observe, tmp_path):
    texts = parse_scene(recording("nodes/p100.txt"))
    plant(tmp_path, texts)
    plant(
        tmp_path,
        {
            "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c": (
                "\x06\x00\x00\x00\x01"
            ),
            "/etc/machine-id": "0c5d3e0c9a115a1f4e0e8b1b4b439d0c\n",
            "/lib/modules/6.1.0-26-amd64/modules.dep": (
                "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko.xz:\n"
                "updates/dkms/nvidia-current-open.ko.xz:\n"
            ),
        },
    )
    for directory in ("run/systemd/system", "lib/modules/6.1.0-26-amd64/build", "dev"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "dev/nvidia0").symlink_to("/dev/null")
    programs = Programs(
        {
            "systemctl show": (0, UNITS.format(kubelet="inactive"), ""),
            "dpkg-query": (1, PACKAGES, "dpkg-query: no packages found matching libcuda1\n"),
            "modinfo": (0, "580.178.04\n", ""),
            "nvidia-smi": (0, recording("nvidia_smi/query-p100x2.txt"), ""),
            "dmesg": (0, recording("kernel_log/application.txt"), ""),
            "nvidia-ctk": (0, "NVIDIA Container Toolkit CLI version unknown\n", ""),
            "containerd --version": (0, CONTAINERD_VERSION, ""),
            "containerd --config /etc/containerd/config.toml config dump": (
                0,
                recording("containerd/dump-2.4.2-nvidia.toml"),
                "",
            ),
        }
    )
    node = observe(programs, ["python3-*"], ["nvidia-cuda", "absent"])
    assert node == {
        "os": {
            "id": "debian",
            "version_id": "12",
            "codename": "bookworm",
            "family": "debian",
            "name": "Debian GNU/Linux 12 (bookworm)",
            "architecture": os.uname().machine,
        },
        "hostname": "GPU-1",
        "boot_id": "5c4fc37b-d6cf-4b6c-8a60-e2760aa38afa",
        "machine_id": "0c5d3e0c9a115a1f4e0e8b1b4b439d0c",
        "read_only": [],
        "init": "systemd",
        "systemd": {
            "unknown": [unit for unit in collect.units() if f"Id={unit}\n" not in UNITS],
            "error": "the output is incomplete",
        },
        "kernel": {
            "release": "6.1.0-26-amd64",
            "compiler": "gcc-12",
            "headers": True,
            "modules": ["nvidia", "nvidia_uvm", "vfio_pci"],
        },
        "secure_boot": True,
        "tools": [],
        "pci": [
            {
                "address": "0000:03:00.0",
                "vendor": "10de",
                "device": "15f8",
                "class": "0302",
                "driver": None,
                "numa_node": 1,
            },
            {
                "address": "0000:82:00.0",
                "vendor": "10de",
                "device": "15f8",
                "class": "0302",
                "driver": None,
                "numa_node": None,
            },
        ],
        "driver": {
            "packages": {"nvidia-driver-cuda": "580.178.04-1"},
            "module_version": "580.178.04",
            "disk_version": "580.178.04",
            "module_files": ["updates/dkms/nvidia-current-open.ko.xz"],
            "uvm_readable": True,
            "flavour": "proprietary",
            "unblocked": [],
            "initramfs_outdated": None,
            "initramfs_program": None,
            "ramdisk_space": None,
            "modules_load": ["nvidia_uvm"],
            "own_modules": [],
            "parameters": {},
            "own_parameters": [],
            "own_pin": [],
            "own_device_rule": [],
            "parameters_are_new": False,
            "peermem": False,
            "next_kernel": None,
            "next_kernel_skipped": False,
            "headers_available": None,
            "signing": {
                "certificate": None,
                "state": "missing",
                "error": None,
                "private_key": "/var/lib/dkms/mok.key",
                "missing_key": "/var/lib/dkms/mok.key",
                "missing_certificate": "/var/lib/dkms/mok.pub",
            },
            "programs": {
                "nvidia-smi": no_file("nvidia-smi"),
                "nvidia-persistenced": no_file("nvidia-persistenced"),
            },
            "libraries": {"libnvidia-ml.so.1": None, "libcuda.so.1": None},
            "persistenced": {"installed": True, "enabled": True, "active": True},
            "installer": {
                "version": None,
                "uninstaller": False,
                "free_mib": ANY,
                "runs_programs": ANY,
                "displays": [],
                "stops": False,
            },
            "persistence_off": None,
            "dkms": {
                "built": None,
                "kernels": [],
                "unfinished": [],
                "sources": [],
                "addable": [],
                "log": None,
                "failed": None,
                "error": None,
                "builds": {},
            },
        },
        "nvml": {
            "driver_version": "580.178.04",
            "complete": True,
            "devices": [
                {
                    "index": 0,
                    "uuid": "GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c01",
                    "name": "Tesla P100-PCIE-16GB",
                    "memory_mib": 16384,
                    "pci_address": "0000:03:00.0",
                    "minor": 3,
                    "persistence_mode": True,
                    "error": None,
                },
                {
                    "index": 1,
                    "uuid": "GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c02",
                    "name": "Tesla P100-PCIE-16GB",
                    "memory_mib": 16384,
                    "pci_address": "0000:82:00.0",
                    "minor": None,
                    "persistence_mode": True,
                    "error": None,
                },
            ],
            "bound": {
                "0000:03:00.0": {"uuid": "GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c01", "minor": 3},
            },
            "failure": None,
        },
        "kernel_log": {
            "sources": ["dmesg"],
            "error": None,
            "loaded": 12,
            "events": [
                {
                    "source": "xid",
                    "address": "0000:03:00.0",
                    "number": 31,
                    "count": 1,
                    "first": 14,
                    "last": 14,
                    "last_date": ANY,
                    "line": "pid=7, name=python3, Ch 00000008",
                }
            ],
            "unlisted": 0,
            "recovery": {},
            "uuids": {},
            "words": {},
        },
        # Its NVSwitch is on the bus. What systemd says of Fabric Manager is not recorded there.
        "fabric": {
            "switches": [
                {
                    "address": "0000:c1:00.0",
                    "vendor": "10de",
                    "device": "22a3",
                    "class": "0680",
                    "driver": None,
                    "numa_node": None,
                }
            ],
            "ports": [],
            "packages": {},
            "manager": None,
            "imex": None,
            "process": False,
            "subnet_manager": False,
            "modules": [],
            "missing_modules": [],
            "mode": None,
            "states": [],
            "log": [],
        },
        # The shell is not there.
        "health": {"cuda_version": None, "error": "`nvidia-smi -q -x` was not run", "gpus": []},
        "device_files": [
            {"path": "/dev/nvidia0", "major": 1, "minor": 3, "mode": "0666", "linked": False}
        ],
        "device_obstacles": [],
        "device_majors": {},
        "device_users": None,
        "nfs": {
            **{"units": {}, "others": [], "fstab": [], "mounted": [], "users": {}, "enabled": []},
            **{"mixed": [], "unread": [], "kernel": False, "automount": False},
        },
        "toolkit": {
            "packages": {"nvidia-container-toolkit": "1.20.1-1"},
            "version": "1.20.1",
            "programs": {
                name: no_file(name)
                for name in (
                    *("nvidia-container-runtime", "nvidia-container-runtime-hook"),
                    *("nvidia-cdi-hook", "nvidia-ctk"),
                )
            },
            "cdi_skipped": True,
            "cdi_devices": None,
            "cdi_has_all": True,
            "config": None,
            "config_sha256": None,
            "runtimes": None,
            "mode": None,
            "config_error": None,
            "settings": {},
            "annotation_prefixes": None,
            "swarm_resource": [],
            "char_dev_rules": ["/usr/lib/udev/rules.d/71-nvidia-dev-char.rules"],
        },
        "cdi": {
            "spec_files": ["/etc/cdi/nvidia.json", "/var/run/cdi/nvidia.yaml"],
            "kinds": {
                "/etc/cdi/nvidia.json": "nvidia.com/gpu",
                "/var/run/cdi/nvidia.yaml": "nvidia.com/gpu",
            },
            "errors": {},
            "devices": ["nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=all"],
            "names": {
                "/etc/cdi/nvidia.json": ["nvidia.com/gpu=0", "nvidia.com/gpu=1"],
                "/var/run/cdi/nvidia.yaml": ["nvidia.com/gpu=0", "nvidia.com/gpu=all"],
            },
            "drivers": {},
            "parts": {},
            "majors": {},
        },
        "engines": {
            "containerd": {
                "installed": True,
                "path": "/usr/bin/containerd",
                "version": "2.4.2",
                "version_error": None,
                "running": True,
                "socket": "/run/containerd/containerd.sock",
                "runc": no_file("runc"),
                "config": {
                    "path": "/etc/containerd/config.toml",
                    "exists": True,
                    "version": 3,
                    "imports": ["/etc/containerd/conf.d/*.toml"],
                    "cri_tables": [],
                    "imported_cri": [],
                    "imported_nvidia": [],
                    "imported_folders": {},
                    "missing_imports": [],
                    "outline": {"version": "", "imports": []},
                    "error": None,
                    "obstacle": None,
                    "source": "containerd config dump",
                },
                "needs_reload": False,
                "changed_since_start": [],
                "edited_since_start": [],
                "home": None,
                "cri_enabled": True,
                "cdi_enabled": True,
                "default_runtime": "nvidia",
                "runtimes": {
                    "nvidia": {
                        "type": "io.containerd.runc.v2",
                        "binary": "/usr/bin/nvidia-container-runtime",
                        "systemd_cgroup": True,
                        "base_runtime_spec": "",
                    },
                    "runc": {
                        "type": "io.containerd.runc.v2",
                        "binary": "",
                        "systemd_cgroup": False,
                        "base_runtime_spec": "",
                    },
                },
                "registry": {"folders": [], "mirrors": [], "tls": [], "reads_lists": False},
                "conflicts": [],
                "missing_specs": [],
            },
            "docker": {
                "installed": False,
                "path": None,
                "version": None,
                "version_error": None,
                "server_version": None,
                "client_path": None,
                "running": False,
                "answers": False,
                "enabled": False,
                "socket_active": False,
                "needs_reload": False,
                "changed_since_start": [],
                "unread": {"set": [], "removed": [], "proxy": False},
                "program": None,
                "flags_source": None,
                "flags": [],
                "proxy": {},
                "config": {
                    "path": "/etc/docker/daemon.json",
                    "exists": False,
                    "error": None,
                    "obstacle": None,
                    "source": None,
                    "settings": [],
                    "outline": {},
                    "fingerprints": {},
                    "default_runtime": None,
                    "runtimes": {},
                    "cdi_enabled": None,
                },
                "default_runtime": None,
                "runtimes": {},
                "live_restore": None,
                "data_root": None,
                "storage_driver": None,
                "mirrors": None,
                "containers": [],
                "made_with": {},
                "interrupted": [],
                "record_error": None,
                "purge_script": None,
                "group": [],
                "snap": [],
                "rootless": [],
                "cri_dockerd": {
                    "installed": False,
                    "version": None,
                    "running": False,
                    "enabled": False,
                    "socket": None,
                },
                "v1": {"unit": False, "volumes": [], "containers": []},
                "cgroup_driver": None,
                "cdi_enabled": None,
            },
            "crio": {
                "installed": False,
                "path": None,
                "version": None,
                "version_error": None,
                "running": False,
                "config": {
                    "path": "/etc/crio/crio.conf",
                    "exists": False,
                    "files": [],
                    "runtime_files": {},
                    "without_monitor": {},
                    "monitor": None,
                    "defaults": {},
                    "error": None,
                    "obstacles": {},
                    "source": None,
                },
                "changed_since_start": [],
                "edited_since_start": [],
                "monitor_in_path": False,
                "monitor": None,
                "default_runtime": None,
                "runtimes": {},
                "cdi_dirs": ["/etc/cdi", "/var/run/cdi"],
                "hooks_dirs": ["/usr/share/containers/oci/hooks.d"],
                "hooks": [],
                "auth_file": None,
                "openshift": None,
            },
        },
        "kubelet": {
            "installed": False,
            "path": None,
            "version": None,
            "version_error": None,
            "running": False,
            "unit_state": {"active": "inactive", "sub": "auto-restart", "result": "exit-code"},
            "distribution": None,
            "rootless": None,
            "node_name": "gpu-1",
            "own_name": "gpu-1",
            "joined_name": None,
            "devices": None,
            "flags_source": None,
            "flags": [],
            "config": {"path": None, "exists": False, "error": None, "obstacle": None},
            "config_dir": {"path": None, "files": []},
            "feature_gates": [],
            "health_url": "http://127.0.0.1:10248/healthz",
            "endpoint": None,
            "last_error": None,
            "needs_reload": False,
            "changed_since_start": [],
        },
        "cgroup": {"version": 2, "driver": None},
        "packages": {"python3-debian": {"version": "0.1.49", "held": False}},
        "repositories": {
            "nvidia-cuda": {
                "path": "/etc/apt/sources.list.d/nvidia-cuda.sources",
                "entries": [
                    {"types": "deb", "uris": "https://mirror.example/nvidia", "suites": "/"}
                ],
                "key": None,
                "error": None,
            }
        },
        "package_sources": [
            {
                "path": "/etc/apt/sources.list.d/nvidia-cuda.sources",
                "url": "https://mirror.example/nvidia",
                "suite": "/",
                "section": "",
                "components": "",
                "signed_by": "",
                "unsigned": "",
                "credentials": False,
            }
        ],
        "ours": {"files": [], "edits": [], "packages": {}},
        "module_streams": {},
        "registries": {
            "files": {},
            "certificates": {},
            "exposed": [],
            "created": [],
            "folders": {"/etc": [], "/etc/containerd": []},
            "unread": [],
            "prefixes": {},
        },
        "signed_modules": None,
        "package_manager": {
            "error": None,
            "lock": None,
            "interrupted": False,
            "unfinished": {
                "nvidia-kernel-dkms": {"version": "580.178.04-1", "state": "half-configured"}
            },
            "automatic": [],
            "dependants": {},
        },
    }


def shape(value):
    """Replace everything that is data by its kind, to compare what consumers can rely on."""
    return {key: shape(item) for key, item in value.items()} if isinstance(value, dict) else None


def test_a_bare_machine_has_the_same_shape(observe):
    bare = observe(Programs({}))
    assert bare["nvml"]["failure"]["code"] == "not_installed"
    assert bare["init"] == "other"
    assert bare["cgroup"] == {"version": None, "driver": None}
    assert shape(bare) == shape(observe(Programs({"kubelet": (0, "Kubernetes v1.37.1", "")})))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param((0, "Kubernetes v1.37.1\n", ""), None, id="version"),
        pytest.param((126, "", "Exec format\nerror\n"), "Exec format error", id="other machine"),
        pytest.param((139, "", ""), "nothing (exit code 139)", id="crash"),
        pytest.param((124, "", ""), "nothing (timeout)", id="hangs"),
    ],
)
def test_what_is_said_instead_of_a_version(observe, answer, error):
    found = observe(Programs({"kubelet": answer}))["kubelet"]
    assert found["version_error"] == error


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param((0, "Inst linux-modules-nvidia-580-server-6.1.0-27-amd64 (1)\n", ""), None),
        pytest.param((100, "", "E: Unable to correct problems.\n"), "Unable to correct problems"),
    ],
)
def test_signed_modules_that_the_next_kernel_lacks(observe, tmp_path, answer, error) -> None:
    loaded = (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\n"
    )
    plant(tmp_path, {"/proc/sys/kernel/osrelease": "6.8.0-60-generic\n"})
    plant(tmp_path, {"/proc/driver/nvidia/version": loaded})
    installed = (
        "linux-modules-nvidia-535-server-6.8.0-60-generic",
        *("linux-modules-nvidia-580-server-6.8.0-60-generic", "linux-image-6.8.0-61-generic"),
        "linux-image-6.8.0-60-generic",
    )
    rows = "".join(f"{name}\t1\tinstalled\tinstall\tamd64\n" for name in installed)
    programs = Programs({"dpkg-query": (0, rows, ""), "apt-get": answer})
    found = observe(programs, ["linux-*"], [])["signed_modules"]
    package = "linux-modules-nvidia-580-server-6.8.0-61-generic"
    assert found == {"package": package, "error": error}
    (asked,) = (line for line in programs.asked if line.startswith("apt-get"))
    assert "--simulate" in asked
    assert asked.endswith(f"install {package}")


SERVICES = {
    "kubelet --version": (0, "Kubernetes v1.37.1\n", ""),
    "containerd --version": (0, CONTAINERD_VERSION, ""),
    "containerd config default": (0, "version = 3\n", ""),
    "dockerd --version": (0, "Docker version 29.8.1, build 1\n", ""),
}


def services(state):
    show = recording(f"systemd/show-services-{state}.txt")
    return Programs(
        {"systemctl show": (0, show, ""), **SERVICES},
        off_path=("kubelet", "containerd", "dockerd"),  # sudo's path, of Red Hat's systems
    )


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_what_runs_is_asked_of_processes_and_systemd(observe, tmp_path, state):
    plant_services(tmp_path, parse_scene(recording("nodes/services.txt")))
    programs = services(state)
    node = observe(programs)
    kubelet, docker = node["kubelet"], node["engines"]["docker"]
    assert kubelet["node_name"] == "gpu-1.example"
    assert kubelet["health_url"] == "http://[::1]:10248/healthz"
    assert kubelet["endpoint"] == "unix:///run/containerd/containerd.sock"
    assert kubelet["config"]["path"] == "/var/lib/kubelet/config.yaml"
    assert docker["config"]["path"] == "/etc/docker/site.json"
    assert "--default-runtime" in [flag["name"] for flag in docker["flags"]]
    assert docker["program"]["path"] == "/usr/local/bin/dockerd"
    for found in (kubelet, docker, node["engines"]["containerd"]):
        assert found["installed"] is True
        assert found["path"].startswith("/usr/local/bin/")
        assert found["path"] in programs.started


def test_an_engine_that_runs_is_installed_wherever_its_program_is(observe, tmp_path):
    """Else a second one would be installed beside it."""
    node = observe(services("running"))  # no file of the scene is there
    engine = node["engines"]["containerd"]
    assert (engine["installed"], engine["running"], engine["version"]) == (True, True, None)
    assert (
        engine["version_error"]
        == "nothing, because the program that containerd.service runs cannot be found"
    )


def test_what_cannot_be_read_is_unknown_and_said(observe, tmp_path):
    plant(
        tmp_path,
        {
            "/etc/systemd/system/kubelet.service": (
                "[Service]\nExecStart=/usr/bin/kubelet --config /var/lib/kubelet/config.yaml\n"
            )
        },
    )
    (tmp_path / "var/lib/kubelet").mkdir(parents=True)
    (tmp_path / "var/lib/kubelet/config.yaml").symlink_to("config.yaml")
    config = observe(Programs({}))["kubelet"]["config"]
    assert config["exists"] is None
    assert config["error"] == "/var/lib/kubelet/config.yaml: Too many levels of symbolic links"


def test_file_system_that_is_mounted_read_only(observe, tmp_path, monkeypatch):
    """As after an error of the disk. A folder that is not there is no finding."""
    (tmp_path / "etc").mkdir()
    flags = os.statvfs(tmp_path).f_flag | os.ST_RDONLY
    found = SimpleNamespace(f_flag=flags, f_bavail=1, f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda _path: found)
    assert observe(Programs({}))["read_only"] == ["/etc"]

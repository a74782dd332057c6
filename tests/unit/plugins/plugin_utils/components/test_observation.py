# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the module hands over of planted nodes, interpreted as in a play."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from hashlib import sha256

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.probe import collect
from ansible_collections.metal.gpu.plugins.module_utils.read import document_history_files
from ansible_collections.metal.gpu.plugins.modules import config_document, node_info
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import interpret
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.history import History, remember
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    parse_scene,
    plant,
    plant_services,
    recording,
)

CONTAINERD_VERSION = "containerd github.com/containerd/containerd/v2 2.4.2 \n"
UNITS = """
Id=kubelet.service
LoadState=loaded
ActiveState={kubelet}
SubState=auto-restart
Result=exit-code
UnitFileState=enabled

Id=containerd.service
LoadState=loaded
ActiveState=active

Id=nvidia-persistenced.service
LoadState=loaded
ActiveState=active
UnitFileState=static

Id=nvidia-cdi-refresh.path
LoadState=loaded
ActiveState=inactive
UnitFileState=disabled

Id=nvidia-cdi-refresh.service
LoadState=loaded
ActiveState=inactive
Result=exec-condition
"""
PACKAGES = """\
nvidia-driver-cuda\t580.178.04-1\tinstalled\thold\tamd64
nvidia-container-toolkit\t1.20.1-1\tinstalled\tinstall\tamd64
python3-debian\t0.1.49\tinstalled\tinstall\tall
python3-apt\t2.6.0\tnot-installed\tunknown\tamd64
nvidia-kernel-dkms\t580.178.04-1\thalf-configured\tinstall\tamd64
"""
# Of CN=system:node:gpu-old.example, made with OpenSSL 3.0.16; its key was not kept.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIB0DCCAXWgAwIBAgIULA4HDRmAUKNqnLTNrDSwrR+F8cUwCgYIKoZIzj0EAwIw
PTEVMBMGA1UECgwMc3lzdGVtOm5vZGVzMSQwIgYDVQQDDBtzeXN0ZW06bm9kZTpn
cHUtb2xkLmV4YW1wbGUwHhcNMjYxMTIyMDg1MzIyWhcNMzYxMTE5MDg1MzIyWjA9
MRUwEwYDVQQKDAxzeXN0ZW06bm9kZXMxJDAiBgNVBAMMG3N5c3RlbTpub2RlOmdw
dS1vbGQuZXhhbXBsZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABMEtsjoMXGTG
cMWFs+GAdeh38UOF+9Od3QOvREo4VK1/jdZvW2C3fvf16+ogFrXwc43LSxKlI9aT
cJqzWNx6mMCjUzBRMB0GA1UdDgQWBBQqjToVW88oMDw9W53z8vlQe0106TAfBgNV
HSMEGDAWgBQqjToVW88oMDw9W53z8vlQe0106TAPBgNVHRMBAf8EBTADAQH/MAoG
CCqGSM49BAMCA0kAMEYCIQCFXWHXSbSF3mhcFI7ep3gS5NfKesulQLkS6IkqkiAm
uQIhAIUeWbykFdmG7+QhaqG1b0ViMZFj5+xzez0+feFG9eBT
-----END CERTIFICATE-----
"""
IN_THE_FUTURE = 1e9  # seconds after the boot of the machine


def active_since(unit, boot_s):
    """Return what systemd says of a unit that was started so many seconds after the boot."""
    since = int(boot_s * 1e6)
    return f"Id={unit}.service\nActiveState=active\nActiveEnterTimestampMonotonic={since}\n"


@pytest.fixture
def observe(tmp_path):
    """Return gpu_node of the planted node, on which the given programs exist."""

    def run(programs, packages=(), repositories=()):
        node = node_info.Node(tmp_path, programs.run, programs.find)
        result = node_info.run(node, list(packages), list(repositories))
        assert result["changed"] is False
        return interpret(json.loads(json.dumps(result["raw"])))  # as it travels

    return run


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
        "init": "systemd",
        "systemd": {
            "unknown": [unit for unit in collect.units() if f"Id={unit}\n" not in UNITS],
            "error": "the output is incomplete",
        },
        "kernel": {
            "release": "6.1.0-26-amd64",
            "headers": True,
            "modules": ["nvidia", "nvidia_uvm", "vfio_pci"],
        },
        "secure_boot": True,
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
            "flavour": "proprietary",
            "nouveau_blacklisted": True,
            "initramfs_outdated": None,
            "modules_load": ["nvidia_uvm"],
            "programs": {
                "nvidia-smi": no_file("nvidia-smi"),
                "nvidia-persistenced": no_file("nvidia-persistenced"),
            },
            "libraries": {"libnvidia-ml.so.1": None, "libcuda.so.1": None},
            "persistenced": {"installed": True, "enabled": True, "active": True},
            "dkms": {"built": None, "log": None, "sources": []},
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
            "failure": None,
        },
        "device_files": [
            {"path": "/dev/nvidia0", "major": 1, "minor": 3, "mode": "0666", "linked": False}
        ],
        "device_users": None,
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
            "cdi_refresh": {"installed": True, "enabled": False, "active": False},
            "cdi_skipped": True,
            "config": None,
            "config_sha256": None,
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
                    "imported_cri": [],
                    "text_sha256": sha256(
                        texts["/etc/containerd/config.toml"].encode()
                    ).hexdigest(),
                    "error": None,
                    "obstacle": None,
                    "source": "containerd config dump",
                },
                "needs_reload": False,
                "changed_since_start": [],
                "cri_enabled": True,
                "cdi_enabled": True,
                "default_runtime": "nvidia",
                "runtimes": {
                    "nvidia": {
                        "type": "io.containerd.runc.v2",
                        "binary": "/usr/bin/nvidia-container-runtime",
                        "systemd_cgroup": True,
                    },
                    "runc": {
                        "type": "io.containerd.runc.v2",
                        "binary": "",
                        "systemd_cgroup": False,
                    },
                },
            },
            "docker": {
                "installed": False,
                "path": None,
                "version": None,
                "version_error": None,
                "server_version": None,
                "client_path": None,
                "client_version": None,
                "running": False,
                "answers": False,
                "enabled": False,
                "needs_reload": False,
                "changed_since_start": [],
                "program": None,
                "flags_source": None,
                "flags": [],
                "config": {
                    "path": "/etc/docker/daemon.json",
                    "exists": False,
                    "error": None,
                    "obstacle": None,
                    "source": None,
                    "keys": [],
                    "default_runtime": None,
                    "runtimes": {},
                    "cdi_enabled": None,
                },
                "default_runtime": None,
                "runtimes": {},
                "live_restore": None,
                "data_root": None,
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
                "version": None,
                "running": False,
                "config": {
                    "path": "/etc/crio/crio.conf",
                    "exists": False,
                    "error": None,
                    "source": None,
                },
                "default_runtime": None,
                "runtimes": {},
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
            "node_name": "gpu-1",
            "own_name": "gpu-1",
            "joined_name": None,
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
                "unsigned": "",
                "credentials": False,
            }
        ],
        "ours": {"files": [], "edits": [], "packages": {}},
        "module_streams": {},
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
        "reboot_required": False,
    }


def test_what_this_collection_has_left_is_found(observe, tmp_path):
    path, actor = "/etc/containerd/config.toml", "metal.gpu.containerd"
    place = config_document.Place(path, actor, str(tmp_path / "var/lib/metal-gpu/config_document"))
    rule = "/etc/modprobe.d/metal-gpu-nouveau.conf"
    mark = "# BEGIN managed by Ansible, role metal.gpu.nvidia_driver\n"
    theirs = "/etc/modprobe.d/metal-gpu-cluster.conf"
    plant(tmp_path, {rule: f"{mark}blacklist nouveau\n", theirs: "blacklist nouveau\n"})
    written = "[plugins.cri]\na = 1\n"
    history = remember(History(original="", written=written, before=""))
    plant(tmp_path, {place.history.removeprefix(str(tmp_path)): history, path: written})
    noted = "/var/lib/metal-gpu/packages/containerd.json"
    plant(tmp_path, {noted: '{"containerd.io": {"version": "2.4.1-*", "before": null}}'})
    bad = "/var/lib/metal-gpu/packages/docker_ce.json"
    plant(tmp_path, {bad: "{"})
    ours = observe(Programs({}))["ours"]
    assert bad in ours["packages"].pop("docker_ce")["error"]
    assert ours == {
        "files": [rule],
        "edits": [
            {
                "path": path,
                "actor": actor,
                "changes": [{"key": ["plugins", "cri", "a"], "before": None}],
                "untouched": True,
                "error": None,
            }
        ],
        "packages": {
            "containerd": {
                "path": noted,
                "packages": {"containerd.io": {"version": "2.4.1-*", "before": None}},
                "error": None,
            }
        },
    }


@pytest.mark.parametrize(
    ("paths", "built", "log"),
    [
        pytest.param([], None, None, id="no DKMS"),
        pytest.param(["source/dkms.conf"], False, None, id="not built"),
        pytest.param(
            ["source/dkms.conf", "6.1.0-25-amd64/x86_64/module/nvidia.ko", "build/make.log"],
            False,
            "/var/lib/dkms/nvidia/580.178.04/build/make.log",
            id="failed, for this kernel",
        ),
        pytest.param(
            ["source/dkms.conf", "6.1.0-26-amd64/x86_64/module/nvidia-current.ko.xz"],
            True,
            None,
            id="built",
        ),
    ],
)
@pytest.mark.parametrize("storage", [False, True], ids=["alone", "with GPUDirect Storage"])
def test_what_dkms_has_built(observe, tmp_path, paths, built, log, storage):
    """Planted after dkms(8). nvidia-fs is another module, in any state."""
    texts = {f"/var/lib/dkms/nvidia/580.178.04/{path}": "" for path in paths}
    if storage:
        other = "/var/lib/dkms/nvidia-fs/2.25.7"
        module = "6.1.0-26-amd64/x86_64/module/nvidia-fs.ko"
        for path in ("source/dkms.conf", "build/make.log", module):
            texts[f"{other}/{path}"] = ""
    plant(tmp_path, {**texts, "/proc/sys/kernel/osrelease": "6.1.0-26-amd64\n"})
    sources = ["nvidia/580.178.04"] if paths else []
    expected = {"built": built, "log": log, "sources": sources}
    assert observe(Programs({}))["driver"]["dkms"] == expected


STATUS = """\
Package: nvidia-driver-cuda
Status: install ok installed
Depends: libcuda1 (>= 580), nvidia-persistenced

Package: libcuda1
Status: install ok installed
Provides: libcuda.so.1 (= 580), libcuda-13.0-1
Depends: libc6
Pre-Depends: libc6 (>= 2.36)
Description: library
 Depends: this is no field

Package: nvidia-persistenced
Status: install ok installed
Depends: libc6:any

Package: pycuda
Status: hold ok installed
Depends: libcuda-13.0-1 | libcuda.so.1

Package: gpu-app
Status: install ok installed
Pre-Depends: pycuda
Depends: libc6

Package: removed-app
Status: deinstall ok config-files
Depends: libcuda1

Package: libc6
Status: install ok installed
"""
STATES = """\
Package: libcuda1
Architecture: amd64
Auto-Installed: 1

Package: nvidia-persistenced
Architecture: amd64
Auto-Installed: 0

Package: pycuda
Architecture: i386
Auto-Installed: 1

Package: libc6
Architecture: amd64
Auto-Installed: 1
"""


def test_packages_that_apt_would_also_remove(observe, tmp_path):
    """Only if a role installed packages. The texts themselves stay on the node."""
    programs = Programs({"dpkg-query": (0, PACKAGES, "")})
    plant(tmp_path, {"/var/lib/apt/extended_states": STATES, "/var/lib/dpkg/status": STATUS})
    found = observe(programs)["package_manager"]
    assert (found["automatic"], found["dependants"]) == ([], {})
    record = '{"nvidia-driver-cuda": {"version": "580.178.04-1", "before": null}}'
    plant(tmp_path, {"/var/lib/metal-gpu/packages/nvidia_driver.json": record})
    found = observe(programs)["package_manager"]
    assert found["automatic"] == ["libcuda1"]
    assert found["dependants"] == {
        "gpu-app": [["pycuda"]],
        "nvidia-driver-cuda": [["libcuda1"], ["nvidia-persistenced"]],
        "pycuda": [["libcuda1"]],
    }
    assert found["error"] is None
    plant(tmp_path, {"/var/lib/metal-gpu/packages/nvidia_driver.json": "damaged"})
    assert observe(programs)["package_manager"]["dependants"] == {}


EMOJI = r'{"log-opts": {"tag": "\ud83d\ude00"}, "default-runtime": "runc"}'


@pytest.mark.parametrize(
    ("path", "state", "changes", "error"),
    [
        pytest.param(
            "/etc/docker/daemon.json",
            remember(History(EMOJI, EMOJI.replace("runc", "nvidia"), EMOJI, language="json")),
            [{"key": ["default-runtime"], "before": "runc"}],
            None,
            id="emoji-escape",
        ),
        pytest.param(
            "/etc/docker/daemon.json",
            '{"version": 1, "pasts": [{"original": "{}", "written": "{\\"a\\": 1}", '
            '"before": "{}", "directories": []}]}',
            [{"key": ["a"], "before": None}],
            None,
            id="without-language-by-suffix",
        ),
        pytest.param(
            "/etc/cni/conf",
            remember(History("a: 1\n", "a: 2\n", "a: 1\n", language="yaml")),
            [{"key": ["a"], "before": 1}],
            None,
            id="without-suffix-by-language",
        ),
        pytest.param(
            "/etc/cni/conf",
            remember(History("a: 1\n", "a: 2\n", "a: 1\n")),
            [],
            "the history of the file is damaged: it does not name the language",
            id="neither",
        ),
        pytest.param(
            "/etc/docker/daemon.json",
            remember(History("{", "{}", "{", language="json")),
            [],
            "line 1, column 2: Expecting property name enclosed in double quotes",
            id="original-that-cannot-be-read",
        ),
        pytest.param(
            *("/etc/docker/daemon.json", "{", []),
            "the history of the file is damaged: JSONDecodeError: ",
            id="damaged",
        ),
    ],
)
def test_the_way_back_is_read_in_the_language_of_the_edit(
    observe, tmp_path, path, state, changes, error
):
    name = document_history_files.file_name(path, "metal.gpu.x")
    file = f"{document_history_files.DIRECTORY}/{name}"
    plant(tmp_path, {file: state})
    [edit] = observe(Programs({}))["ours"]["edits"]
    assert (edit["path"], edit["changes"]) == (path, changes)
    assert edit["error"] is None if error is None else edit["error"].startswith(f"{file}: {error}")


@pytest.mark.parametrize("now", ["{\r\n}\r\n", "{}"], ids=["untouched", "touched"])
def test_carriage_returns_are_no_change(observe, tmp_path, now):
    """The node hands lines over without them."""
    written = "{\r\n}\r\n"
    name = document_history_files.file_name("/etc/d.json", "metal.gpu.x")
    history = remember(History(None, written, None, language="json"))
    plant(tmp_path, {f"{document_history_files.DIRECTORY}/{name}": history})
    (tmp_path / "etc/d.json").parent.mkdir()
    (tmp_path / "etc/d.json").write_bytes(now.encode())
    [edit] = observe(Programs({}))["ours"]["edits"]
    assert edit["untouched"] is (now == written)


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


def test_the_documentation_shows_every_key(observe):
    bare = observe(Programs({}))
    contains = yaml.safe_load(node_info.RETURN)["gpu_node"]["contains"]
    by_name = (
        *("packages", "runtimes", "repositories", "module_streams"),
        *("failure", "made_with", "program", "distribution", "kinds", "errors", "unfinished"),
        "dependants",
    )

    def compare(found, sample, path):
        if isinstance(found, dict) and path[-1] not in by_name:
            assert isinstance(sample, dict), path
            assert set(found) == set(sample), path
            for key, value in found.items():
                compare(value, sample[key], [*path, key])

    assert set(bare) == set(contains)
    for key, value in bare.items():
        compare(value, contains[key]["sample"], ["gpu_node", key])


def test_every_place_of_a_gate_is_found(observe, tmp_path):
    plant(tmp_path, parse_scene(recording("nodes/kubelet-gates.txt")))
    programs = Programs(
        {
            "systemctl show": (0, UNITS.format(kubelet="activating"), ""),
            "kubelet": (0, "Kubernetes v1.37.1\n", ""),
            "journalctl": (0, recording("kubelet/journal-1.37.1-gate-in-config.txt"), ""),
        }
    )
    node = observe(programs)
    found = node["kubelet"]
    unit_d = "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf"
    columns = ("name", "value", "file", "where", "flag", "effective")
    assert [tuple(gate[column] for column in columns) for gate in found["feature_gates"]] == [
        (
            *("DevicePlugins", True, "/var/lib/kubelet/kubeadm-flags.env"),
            *("flag", "KUBELET_KUBEADM_ARGS", True),
        ),
        (
            *("DevicePlugins", True, "/etc/default/kubelet"),
            *("flag", "KUBELET_EXTRA_ARGS", True),
        ),
        ("CPUManager", None, "/etc/default/kubelet", "flag", "KUBELET_EXTRA_ARGS", True),
        (
            *("DevicePlugins", True, "/etc/systemd/system/kubelet.service.d/20-gpu.conf"),
            *("flag", "KUBELET_EXTRA_ARGS", False),
        ),
        ("DevicePlugins", True, "/etc/sysconfig/kubelet", "flag", "KUBELET_EXTRA_ARGS", False),
        ("DevicePlugins", True, "/var/lib/kubelet/config.yaml", "config", None, True),
        (
            "DevicePlugins",
            True,
            "/etc/kubernetes/kubelet.conf.d/10-gates.conf",
            "config",
            None,
            True,
        ),
    ]
    assert {
        "name": "--kubeconfig",
        "value": "/etc/kubernetes/kubelet.conf",
        "file": unit_d,
        "variable": "KUBELET_KUBECONFIG_ARGS",
        "effective": True,
    } in found["flags"]
    assert "--v" not in [flag["name"] for flag in found["flags"]]
    assert found["config_dir"]["path"] == "/etc/kubernetes/kubelet.conf.d"
    assert found["running"] is False
    assert found["unit_state"]["active"] == "activating"
    assert found["last_error"].endswith("unrecognized feature gate: DevicePlugins")
    assert found["endpoint"] == "unix:///run/containerd/containerd.sock"
    assert node["cgroup"]["driver"] == "systemd"


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


def test_a_host_that_was_renamed_keeps_its_name_in_the_cluster(observe, tmp_path):
    plant(tmp_path, {"/proc/sys/kernel/hostname": "GPU-9\n"})
    plant(tmp_path, {"/var/lib/kubelet/pki/kubelet-client-current.pem": CERTIFICATE})
    kubelet = observe(Programs({}))["kubelet"]
    names = (kubelet["node_name"], kubelet["own_name"], kubelet["joined_name"])
    assert names == ("gpu-old.example", "gpu-9", "gpu-old.example")


@pytest.mark.parametrize(
    "line", ["client-certificate: pki/node.pem", "client-certificate-data: {}"]
)
def test_a_kubeconfig_elsewhere_has_the_certificate(observe, tmp_path, line):
    path = "/srv/kubelet/kubeconfig"
    unit = f"[Service]\nExecStart=/usr/bin/kubelet --kubeconfig {path}\n"
    data = base64.b64encode(CERTIFICATE.encode()).decode()
    plant(tmp_path, {"/etc/systemd/system/kubelet.service": unit})
    plant(tmp_path, {path: f"users:\n- user:\n    {line.format(data)}\n"})
    plant(tmp_path, {"/srv/kubelet/pki/node.pem": CERTIFICATE})
    assert observe(Programs({}))["kubelet"]["joined_name"] == "gpu-old.example"


def test_a_node_of_k3s_has_a_kubelet_that_is_not_its_own(observe):
    show = "Id=k3s.service\nLoadState=loaded\nActiveState=active\n"
    kubelet = observe(Programs({"systemctl show": (0, show, "")}))["kubelet"]
    assert kubelet["distribution"] == {"name": "k3s", "unit": "k3s.service"}


def test_containerd_is_asked_about_the_file_that_its_unit_names(observe, tmp_path):
    unit = "[Service]\nExecStart=/usr/bin/containerd -c /opt/c.toml\n"
    plant(
        tmp_path,
        {"/etc/systemd/system/containerd.service": unit, "/opt/c.toml": "version = 2\n"},
    )
    programs = Programs(
        {
            "containerd --version": (0, CONTAINERD_VERSION, ""),
            "containerd --config /opt/c.toml config dump": (0, "version = 4\n", ""),
        }
    )
    config = observe(programs)["engines"]["containerd"]["config"]
    assert (config["path"], config["version"]) == ("/opt/c.toml", 2)


@pytest.mark.parametrize(
    ("text", "stderr", "error"),
    [
        pytest.param(
            "version = 2\nfoo = \n",
            recording("containerd/refusal-2.4.2-syntax.txt"),
            "/etc/containerd/config.toml, line 2, column 7: Invalid value",
            id="syntax",
        ),
        pytest.param(
            'version = 2\ndisabled_plugins = ["cri"]\n',
            recording("containerd/refusal-2.4.2-cri.txt"),
            "failed to load TOML from /etc/containerd/config.toml:"
            ' invalid disabled plugin URI "cri" expect io.containerd.x.vx',
            id="refused",
        ),
        pytest.param(
            "\ufeffversion = 2\n",
            recording("containerd/refusal-2.1.4-byte-order-mark.txt"),
            "/etc/containerd/config.toml, line 1, column 1: the file starts with a byte order mark,"
            r" which this containerd rejects. Remove it: sed -i '1s/^\xEF\xBB\xBF//'"
            " /etc/containerd/config.toml",
            id="byte-order-mark",
        ),
    ],
)
def test_containerd_with_a_configuration_it_refuses(observe, tmp_path, text, stderr, error):
    plant(tmp_path, {"/etc/containerd/config.toml": text})
    programs = Programs(
        {
            "containerd --version": (0, CONTAINERD_VERSION, ""),
            "containerd --config": (1, "", stderr),
        }
    )
    found = observe(programs)["engines"]["containerd"]
    assert found["config"]["error"] == error
    assert (found["cri_enabled"], found["runtimes"]) == (None, {})
    assert found["config"]["source"] is None
    assert found["running"] is None  # no systemd answers here


def test_containerd_without_a_file(observe):
    programs = Programs(
        {
            "containerd --version": (0, "containerd 1.6.20\n", ""),
            "containerd config default": (0, recording("containerd/default-1.6.20.toml"), ""),
        }
    )
    found = observe(programs)["engines"]["containerd"]
    assert (found["config"]["exists"], found["cri_enabled"]) == (False, True)
    assert found["config"]["source"] == "containerd config default"


@pytest.mark.parametrize(
    ("info", "text", "expected"),
    [
        pytest.param("info-20.10.24", "{}", (True, "runc", "docker info"), id="running"),
        pytest.param(
            "info-no-engine",
            '{"default-runtime": "nvidia"}',
            (None, "nvidia", "/etc/docker/daemon.json"),
            id="stopped",
        ),
        pytest.param("info-no-engine", None, (None, "runc", None), id="no-file"),
        pytest.param("info-no-engine", "{", (None, "runc", None), id="invalid-file"),
    ],
)
def test_docker_is_asked_or_its_file_is_read(observe, tmp_path, info, text, expected):
    plant(tmp_path, {} if text is None else {"/etc/docker/daemon.json": text})
    programs = Programs(
        {
            "dockerd": (0, "Docker version 20.10.24+dfsg1, build 5d6db84\n", ""),
            "docker info": (0, recording(f"docker/{info}.txt"), ""),
            "docker": (0, "", ""),
        }
    )
    found = observe(programs)["engines"]["docker"]
    assert found["version"] == "20.10.24"
    assert (found["running"], found["default_runtime"], found["config"]["source"]) == expected


def test_a_docker_node(observe, tmp_path):
    plant(tmp_path, parse_scene(recording("nodes/docker.txt")))
    script = "/var/lib/docker/nuke-graph-directory.sh"
    plant(tmp_path, dict.fromkeys(("/run/user/1000/docker.sock", "/snap/bin/docker", script), ""))
    programs = Programs(
        {
            "systemctl show": (0, recording("systemd/show-docker.txt"), ""),
            "dpkg-query": (0, "nvidia-docker\t1.0.1-1\tinstalled\tinstall\tamd64\n", ""),
            "dockerd": (0, "Docker version 20.10.24+dfsg1, build 5d6db84\n", ""),
            "docker --version": (0, "Docker version 28.2.2, build e6534b4\n", ""),
            "docker info": (0, recording("docker/info-20.10.24.txt"), ""),
            "docker ps": (0, recording("docker/ps-20.10.24.txt"), ""),
            "docker inspect": (0, recording("docker/host-config-20.10.24.txt"), ""),
            "docker volume": (0, "nvidia_driver_390.25\n", ""),
            "getent group docker": (0, "docker:x:103:alice,bob\n", ""),
            "cri-dockerd": (0, "cri-dockerd 0.4.3 (HEAD)\n", ""),
        }
    )
    found = observe(programs)["engines"]["docker"]
    unit, defaults = "/usr/lib/systemd/system/docker.service", "/etc/default/docker"
    assert (found["version"], found["server_version"]) == ("20.10.24", "20.10.24")
    assert found["client_version"] == "28.2.2"
    assert (found["enabled"], found["needs_reload"]) == (True, True)
    assert found["program"] == {"path": "/usr/sbin/dockerd", "file": unit}
    assert [(flag["name"], flag["value"], flag["file"]) for flag in found["flags"]] == [
        ("-H", "fd://", unit),
        ("--containerd", "/run/containerd/containerd.sock", unit),
        ("--log-level", "***", defaults),
    ]
    assert found["config"]["keys"] == ["log-opts", "data-root", "live-restore", "runtimes"]
    assert found["config"]["runtimes"] == {"quiet": {"type": None, "binary": "/usr/bin/runc"}}
    assert (found["live_restore"], found["data_root"]) == (True, "/srv/docker")
    assert [(one["name"], one["of_pod"], one["ephemeral"]) for one in found["containers"]] == [
        ("admin-service", False, False),
        ("trainer", False, True),
        ("k8s_POD_busy_default_5c4fc37b-d6cf-4b6c-8a60-e2760aa38afa_0", True, False),
    ]
    assert found["made_with"] == {"runc": ["admin-service"], "nvidia": ["trainer"]}
    assert [one["name"] for one in found["containers"] if one["noted"]] == ["admin-service"]
    assert (found["group"], found["snap"]) == (["alice", "bob"], ["/snap/bin/docker"])
    assert found["rootless"] == ["/run/user/1000/docker.sock"]
    assert [one["name"] for one in found["interrupted"]] == ["digits"]
    assert found["purge_script"] == script
    assert found["cri_dockerd"] == {
        "installed": True,
        "version": "0.4.3",
        "running": True,
        "enabled": True,
        "socket": "/run/cri-dockerd.sock",
    }
    assert found["v1"]["volumes"] == ["nvidia_driver_390.25"]
    assert [one["name"] for one in found["v1"]["containers"]] == ["digits"]
    (asked,) = [line for line in programs.asked if "inspect" in line]
    assert len(re.findall(r"[0-9a-f]{64}", asked)) == 3  # not the pod's


@pytest.mark.parametrize(
    ("text", "obstacle"),
    [
        pytest.param("\ufeffversion = 2\n", None, id="byte-order-mark"),
        pytest.param(
            "version = 2\na.b = 1\n[a]\n",
            "/etc/containerd/config.toml, line 3, column 3: Cannot declare ('a',) twice",
            id="more-than-TOML",
        ),
    ],
)
def test_what_containerd_reads_is_no_error(observe, tmp_path, text, obstacle):
    """`containerd config dump` of 1.6.20 reads both."""
    plant(tmp_path, {"/etc/containerd/config.toml": text})
    programs = Programs(
        {
            "containerd --version": (0, CONTAINERD_VERSION, ""),
            "containerd --config": (0, recording("containerd/dump-2.4.2-nvidia.toml"), ""),
        }
    )
    config = observe(programs)["engines"]["containerd"]["config"]
    assert (config["error"], config["obstacle"]) == (None, obstacle)


@pytest.mark.parametrize(
    ("text", "keys", "obstacle"),
    [
        pytest.param('\ufeff{"debug": true}', ["debug"], None, id="byte-order-mark"),
        pytest.param(
            '{"debug": true,\n "debug": false}',
            ["debug"],
            '/etc/docker/daemon.json, line 2, column 2: key "debug" appears twice',
            id="twice",
        ),
    ],
)
def test_what_docker_reads_is_no_error(observe, tmp_path, text, keys, obstacle):
    plant(tmp_path, {"/etc/docker/daemon.json": text})
    config = observe(Programs({}))["engines"]["docker"]["config"]
    assert (config["keys"], config["error"], config["obstacle"]) == (keys, None, obstacle)


def test_imported_files_with_settings_of_the_cri_plugin(observe, tmp_path):
    """Before containerd 2.1, they take the place of the importing file's."""
    cri = (
        '[plugins."io.containerd.grpc.v1.cri".registry]\nconfig_path = "/etc/containerd/certs.d"\n'
    )
    config = 'version = 2\nimports = ["conf.d/*.toml"]\n' + cri
    plant(tmp_path, {"/etc/containerd/config.toml": config})
    plant(tmp_path, {"/etc/containerd/conf.d/cri.toml": cri})
    plant(tmp_path, {"/etc/containerd/conf.d/debug.toml": '[debug]\nlevel = "debug"\n'})
    found = observe(Programs({}))["engines"]["containerd"]["config"]
    assert found["imported_cri"] == ["/etc/containerd/conf.d/cri.toml"]


@pytest.mark.parametrize(
    ("started_s", "changed"),
    [
        pytest.param(1, ["/etc/containerd/conf.d/99-metal-gpu.toml"], id="before"),
        pytest.param(IN_THE_FUTURE, [], id="after"),
    ],
)
def test_containerd_started_before_its_files_were_written(observe, tmp_path, started_s, changed):
    imports = 'version = 3\nimports = ["conf.d/*.toml"]\n'
    plant(tmp_path, {"/etc/containerd/config.toml": imports})
    plant(tmp_path, {"/etc/containerd/conf.d/99-metal-gpu.toml": "version = 3\n"})
    before_boot = time.time() - time.monotonic() - 60
    os.utime(tmp_path / "etc/containerd/config.toml", (before_boot, before_boot))
    node = observe(Programs({"systemctl show": (0, active_since("containerd", started_s), "")}))
    assert node["engines"]["containerd"]["changed_since_start"] == changed


@pytest.mark.parametrize(
    ("changed_s", "known"),
    [
        pytest.param(30, False, id="after the start"),
        pytest.param(90, True, id="before it"),
        pytest.param(-3600, True, id="in the future, which tells nothing"),
    ],
)
def test_a_kubelet_that_does_not_know_its_settings(observe, tmp_path, changed_s, known):
    texts = parse_scene(recording("nodes/kubelet-gates.txt"))
    plant(tmp_path, texts)
    for path in texts:
        os.utime(tmp_path / path[1:], times=(time.time() - 90,) * 2)
    path = "/etc/default/kubelet"
    os.utime(tmp_path / path[1:], times=(time.time() - changed_s,) * 2)
    state = active_since("kubelet", time.monotonic() - 60)
    node = observe(Programs({"systemctl show": (0, state, "")}))
    assert node["kubelet"]["changed_since_start"] == ([] if known else [path])


@pytest.mark.parametrize(
    ("written_s", "outdated"), [(30, True), (90, False), (-3600, False), (None, None)]
)
def test_an_initial_ramdisk_older_than_the_blacklist_is_outdated(
    observe, tmp_path, written_s, outdated
):
    blacklist, ramdisk = "/etc/modprobe.d/nouveau.conf", "/boot/initrd.img-6.1"
    plant(tmp_path, {blacklist: "blacklist nouveau\n", "/proc/sys/kernel/osrelease": "6.1\n"})
    if written_s:
        plant(tmp_path, {ramdisk: ""})
        os.utime(tmp_path / blacklist[1:], times=(time.time() - written_s,) * 2)
        os.utime(tmp_path / ramdisk[1:], times=(time.time() - 60,) * 2)
    assert observe(Programs({}))["driver"]["initramfs_outdated"] is outdated


@pytest.mark.parametrize(("started_s", "knows"), [(1, False), (IN_THE_FUTURE, True)])
def test_a_docker_that_started_before_the_toolkit_came(observe, tmp_path, started_s, knows):
    hook = "/usr/bin/nvidia-container-runtime-hook"
    plant(tmp_path, {hook: ""})
    os.utime(tmp_path / hook[1:], times=(0, 0))  # of its making, which is no matter
    node = observe(Programs({"systemctl show": (0, active_since("docker", started_s), "")}))
    assert node["engines"]["docker"]["changed_since_start"] == ([] if knows else [hook])


def test_docker_with_an_invalid_file(observe, tmp_path):
    plant(tmp_path, {"/etc/docker/daemon.json": '{"a": 1'})
    error = observe(Programs({}))["engines"]["docker"]["config"]["error"]
    assert error.startswith("/etc/docker/daemon.json, line 1, column 8: ")


@pytest.mark.parametrize(
    ("status", "default", "source"),
    [
        pytest.param(
            (0, '[crio.runtime]\ndefault_runtime = "runc"\n', ""),
            "runc",
            "crio status config",
            id="running",
        ),
        pytest.param(
            (1, "", "dial unix: no such file\n"),
            "nvidia",
            "/etc/crio/crio.conf, /etc/crio/crio.conf.d/99-nvidia.conf",
            id="stopped",
        ),
    ],
)
def test_crio_is_asked_or_its_files_are_read(observe, tmp_path, status, default, source):
    drop_in = '[crio.runtime]\ndefault_runtime = "nvidia"\n'
    plant(
        tmp_path,
        {
            "/etc/crio/crio.conf": "[crio]\n",
            "/etc/crio/crio.conf.d/50-broken.conf": "a = \n",
            "/etc/crio/crio.conf.d/99-nvidia.conf": drop_in,
        },
    )
    programs = Programs({"crio --version": (0, "crio version 1.36.3\n", ""), "crio status": status})
    found = observe(programs)["engines"]["crio"]
    assert (found["version"], found["default_runtime"]) == ("1.36.3", default)
    assert found["config"] == {
        "path": "/etc/crio/crio.conf",
        "exists": True,
        "error": "/etc/crio/crio.conf.d/50-broken.conf, line 1, column 5: Invalid value",
        "source": source,
    }


def test_crio_with_a_file_that_cannot_be_read(observe, tmp_path):
    (tmp_path / "etc/crio").mkdir(parents=True)
    (tmp_path / "etc/crio/crio.conf").symlink_to("crio.conf")
    config = observe(Programs({}))["engines"]["crio"]["config"]
    assert (config["exists"], config["source"]) == (None, None)
    assert config["error"] == "/etc/crio/crio.conf: Too many levels of symbolic links"


def test_debians_module_has_another_name(observe, tmp_path):
    """Behind alternatives; `modinfo nvidia` fails there (kmod 30 to 34)."""
    line = "install nvidia modprobe -i nvidia-current-open $CMDLINE_OPTS\n"
    plant(tmp_path, {"/etc/nvidia/current-open/nvidia-modprobe.conf": line})
    (tmp_path / "etc/modprobe.d").mkdir()
    (tmp_path / "etc/modprobe.d/nvidia.conf").symlink_to(
        "../nvidia/current-open/nvidia-modprobe.conf"
    )
    programs = Programs(
        {
            "modinfo -F version nvidia-current-open": (0, "550.163.01\n", ""),
            "modinfo": (1, "", "modinfo: ERROR: Module nvidia not found.\n"),
        }
    )
    assert observe(programs)["driver"]["disk_version"] == "550.163.01"
    assert len([line for line in programs.asked if line.startswith("modinfo")]) == 1


def test_programs_and_libraries_that_were_removed_or_locked(observe, tmp_path):
    ml = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    runtime = "/usr/bin/nvidia-container-runtime"
    plant(tmp_path, {ml: "a library", runtime: "a program", "/usr/bin/nvidia-smi": "a program"})
    (tmp_path / "usr/bin/nvidia-smi").chmod(0o755)
    node = observe(Programs({}))
    assert node["driver"]["libraries"] == {"libnvidia-ml.so.1": ml, "libcuda.so.1": None}
    assert node["driver"]["programs"]["nvidia-smi"]["executable"] is True
    assert node["toolkit"]["programs"]["nvidia-container-runtime"] == {
        "path": runtime,
        "exists": True,
        "executable": False,
    }
    assert node["toolkit"]["programs"]["nvidia-ctk"]["exists"] is False


@pytest.mark.parametrize("content", [b"", b'[nvidia-container-runtime]\nmode = "auto"\n'])
def test_configuration_of_the_toolkit_is_recognised_by_its_checksum(observe, tmp_path, content):
    path = "/etc/nvidia-container-runtime/config.toml"
    plant(tmp_path, {path: content.decode()})
    toolkit = observe(Programs({}))["toolkit"]
    assert (toolkit["config"], toolkit["config_sha256"]) == (
        path,
        sha256(content).hexdigest(),
    )


def test_configuration_of_the_toolkit_that_is_no_file_has_no_checksum(observe, tmp_path):
    path = "/etc/nvidia-container-runtime/config.toml"
    (tmp_path / path[1:]).mkdir(parents=True)
    toolkit = observe(Programs({}))["toolkit"]
    assert (toolkit["config"], toolkit["config_sha256"]) == (path, None)


def test_a_hanging_driver_is_named(observe):
    failure = observe(Programs({"nvidia-smi": (124, "", "")}))["nvml"]["failure"]
    assert failure["code"] == "timeout"


def test_the_list_is_asked_where_a_gpu_cannot_be_reached(observe, tmp_path):
    """And not else: on a machine without persistence mode it takes seconds."""
    plant(tmp_path, parse_scene(recording("nodes/p100.txt")))
    gone = "Unable to determine the device handle for GPU1: 0000:82:00.0: Unknown Error\n"
    uuid = "GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c01"
    listing = f"GPU 0: Tesla P100-PCIE-16GB (UUID: {uuid})\n"
    for answer, asked in (
        ((255, gone, ""), 2),
        ((0, recording("nvidia_smi/query-p100x2.txt"), ""), 1),
    ):
        answers = {"nvidia-smi --query": answer, "nvidia-smi -L": (255, listing, gone)}
        programs = Programs(answers)
        nvml = observe(programs)["nvml"]
        assert len(programs.asked) == asked
        assert [gpu["index"] for gpu in nvml["devices"]] == [0, 1]
        assert [gpu["pci_address"] for gpu in nvml["devices"]] == ["0000:03:00.0", "0000:82:00.0"]
        assert nvml["devices"][0]["uuid"] == uuid
        assert nvml["complete"] is (asked == 1)


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


KUBELET_DROP_INS = "/etc/kubernetes/kubelet.conf.d"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("featureGates:\n  DevicePlugins: true\n", None, id="right"),
        pytest.param("a: b: c\n", "line 1, column 5: mapping values are not allowed", id="syntax"),
        pytest.param("- a\n", "line 1, column 1: the document is not a mapping", id="list"),
        pytest.param("a: 2026-13-01\n", None, id="what looks like a date is text to the kubelet"),
    ],
)
def test_a_file_of_the_kubelet_that_does_not_parse(observe, tmp_path, text, error):
    """Each of them ends the kubelet at its next start, drop-ins too."""
    config, drop_in = "/var/lib/kubelet/config.yaml", f"{KUBELET_DROP_INS}/10-site.conf"
    flags = f"--config={config} --config-dir={KUBELET_DROP_INS}"
    unit = f"[Service]\nExecStart=/usr/bin/kubelet {flags}\n"
    plant(tmp_path, {"/etc/systemd/system/kubelet.service": unit, config: text, drop_in: text})
    kubelet = observe(Programs({}))["kubelet"]
    assert [one["path"] for one in kubelet["config_dir"]["files"]] == [drop_in]
    for found in (kubelet["config"], *kubelet["config_dir"]["files"]):
        assert (found["error"] is None) if error is None else (error in found["error"])
        assert error is None or found["error"].startswith(found["path"])


def test_a_drop_in_of_the_kubelet_that_cannot_be_read(observe, tmp_path):
    unit = f"[Service]\nExecStart=/usr/bin/kubelet --config-dir={KUBELET_DROP_INS}\n"
    plant(tmp_path, {"/etc/systemd/system/kubelet.service": unit})
    (tmp_path / KUBELET_DROP_INS[1:]).mkdir(parents=True)
    (tmp_path / KUBELET_DROP_INS[1:] / "10.conf").symlink_to("10.conf")
    path = f"{KUBELET_DROP_INS}/10.conf"
    error = f"{path}: Too many levels of symbolic links"
    files = observe(Programs({}))["kubelet"]["config_dir"]["files"]
    assert files == [{"path": path, "error": error, "obstacle": None}]


def test_a_specification_of_cdi_that_does_not_parse(observe, tmp_path):
    broken, right = "/etc/cdi/nic.yaml", "/var/run/cdi/nvidia.yaml"
    plant(tmp_path, {broken: "kind: [\n", right: "kind: nvidia.com/gpu\ndevices: [{name: all}]\n"})
    (tmp_path / "etc/cdi/loop.json").symlink_to("loop.json")
    found = observe(Programs({}))["cdi"]
    assert found["devices"] == ["nvidia.com/gpu=all"]
    assert found["kinds"] == {broken: None, right: "nvidia.com/gpu"}
    assert list(found["errors"]) == [broken, "/etc/cdi/loop.json"]
    assert found["errors"][broken].startswith(f"{broken}, line 2, column 1: ")


def test_a_list_of_interrupted_containers_that_does_not_parse(observe, tmp_path):
    path = "/var/lib/metal-gpu/docker-containers.json"
    plant(tmp_path, {path: '{"a": '})
    error = observe(Programs({}))["engines"]["docker"]["record_error"]
    assert error.startswith(f"{path}, line 1, column 7: ")


def test_rpm_is_asked_where_there_is_no_dpkg(observe, tmp_path):
    plant(tmp_path, parse_scene(recording("nodes/rocky-9.txt")))
    programs = Programs({"rpm -qa": (0, recording("packages/rpm.txt"), "")})
    found = observe(programs, ["kmod", "nvidia-*"], ["metal-gpu-*", "docker*"])
    assert (found["os"]["id"], found["os"]["family"]) == ("rocky", "redhat")
    assert found["packages"] == {
        "kmod": {"version": "28-10.el9", "held": False},
        "nvidia-driver-cuda": {"version": "3:580.178.04-1.el9", "held": True},
    }
    assert found["driver"]["packages"] == {
        "nvidia-driver-cuda": "3:580.178.04-1.el9",
        "libnvidia-ml": "3:580.178.04-1.el9",
    }
    assert {name: source["key"] for name, source in found["repositories"].items()} == {
        "metal-gpu-nvidia-driver": "-----BEGIN PGP PUBLIC KEY BLOCK-----\n",
        "docker-ce": None,
    }
    assert {source["path"]: source["url"] for source in found["package_sources"]} == {
        "/etc/yum.repos.d/metal-gpu-nvidia-driver.repo": "https://mirror.example/rhel9/x86_64/",
        "/etc/yum.repos.d/docker-ce.repo": (
            "https://download.docker.com/linux/centos/$releasever/$basearch/stable"
        ),
    }
    assert found["module_streams"] == {"nvidia-driver": "580-open"}

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role nvidia_driver says if a module cannot be built or loaded.

The programs are stand-ins with words of real nodes: modprobe and the kernel with Secure Boot, and
DKMS 3 with a compiler that is too old.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.metal.gpu.tests.unit.support.playbooks import LOCAL, Run, run

MODPROBE = """\
#!/bin/sh
echo "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service" >&2
exit 1
"""
DMESG = """\
#!/bin/sh
echo "[   10.1] usb 1-1: new device"
echo "[   12.3] Loading of module with unavailable key is rejected"
"""
DKMS = """\
#!/bin/sh
[ "$*" = "install nvidia/580.178.04 -k 6.1.0-28-amd64" ] || exit 99
echo "Error! Bad return status for module build on kernel: 6.1.0-28-amd64 (x86_64)" >&2
exit 10
"""
DATA = {
    "version": "580.178.04",
    "source": "nvidia/580.178.04",
    "kernels": ["6.1.0-28-amd64"],
    "rebuild": [],
    "others": "set `nvidia_driver_version: 595.71.05`",
    "load": ["nvidia", "nvidia_uvm"],
}


def carry_out(folder: Path, slug: str, data: Mapping[str, object] = DATA, **programs: str) -> Run:
    """Carry out one step of a plan, with these programs."""
    path = folder / "bin"
    path.mkdir()
    for name, text in programs.items():
        (path / name).write_text(text)
        (path / name).chmod(0o755)
    planned = {"steps": [{"slug": slug}], "data": data}
    hosts = {"gpu-1": {**LOCAL, "metal_gpu": {"plans": {"nvidia_driver": planned}}}}
    include = {"name": "metal.gpu.nvidia_driver", "tasks_from": "present.yml"}
    play = {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.include_role": include}],
    }
    variables = json.dumps({"__nvidia_driver_path": f"{path}:/usr/bin:/bin"})
    return run(folder, [play], {"all": {"hosts": hosts}}, "--extra-vars", variables)


def test_a_module_that_the_kernel_refuses(tmp_path: Path) -> None:
    found = carry_out(tmp_path, "load", modprobe=MODPROBE, dmesg=DMESG)
    assert found.code != 0
    assert (
        "MODULE_REJECTED gpu-1: the kernel does not load nvidia, nvidia_uvm: modprobe: ERROR: "
        "could not insert 'nvidia': Key was rejected by service; [   12.3] Loading of module with "
        "unavailable key is rejected"
    ) in found.output.replace("\\n", " ")
    assert "usb 1-1" not in found.output


def test_a_refused_peermem_is_not_loaded_at_boot(tmp_path: Path) -> None:
    words = "could not insert 'nvidia_peermem': Invalid argument"
    data = {"peermem": {"path": str(tmp_path / "load.conf"), "block": "nvidia\nnvidia_peermem\n"}}
    refuses = f'#!/bin/sh\n[ "$*" = "-a nvidia_peermem" ] || exit 99\necho "{words}" >&2\nexit 1\n'
    found = carry_out(tmp_path, "peermem", data, modprobe=refuses, dmesg=DMESG)
    assert found.code != 0
    assert f"MODULE_REJECTED gpu-1: the kernel does not load nvidia_peermem: {words}" in found.words
    assert not (tmp_path / "load.conf").exists()


def test_a_module_that_dkms_cannot_build(tmp_path: Path) -> None:
    found = carry_out(tmp_path, "build", dkms=DKMS)
    assert found.code != 0
    assert (
        "DKMS_BUILD_FAILED gpu-1: DKMS could not build the module of driver 580.178.04 for kernel "
        "6.1.0-28-amd64: Error! Bad return status for module build on kernel: 6.1.0-28-amd64 "
        "(x86_64); the log is missing"
    ) in found.words
    assert "dkms install nvidia/580.178.04 -k 6.1.0-28-amd64" in found.words
    assert "set `nvidia_driver_version: 595.71.05`" in found.words


def test_a_driver_that_dkms_does_not_have(tmp_path: Path) -> None:
    data = {**DATA, "source": None, "source_pattern": "[^/]+/580.178.04$"}
    found = carry_out(tmp_path, "build", data, dkms=DKMS)
    assert found.code != 0
    assert (
        "for kernel 6.1.0-28-amd64: DKMS does not have the source of the module; the log is missing"
    ) in found.words


def test_a_full_disk_that_dkms_does_not_notice(tmp_path: Path) -> None:
    words = "cp: error writing '/var/lib/dkms/nvidia/x/module/nvidia.ko': No space left on device"
    found = carry_out(tmp_path, "build", dkms=f'#!/bin/sh\necho "{words}" >&2\n')
    assert found.code != 0
    assert "DKMS_BUILD_FAILED gpu-1: " in found.words
    assert words in found.words


def test_an_unusable_build_goes_before_the_next_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    dkms = f'#!/bin/sh\necho "$*" >> {log}\n'
    found = carry_out(tmp_path, "build", {**DATA, "rebuild": DATA["kernels"]}, dkms=dkms)
    assert found.code == 0
    assert log.read_text().splitlines() == [
        "remove nvidia/580.178.04 -k 6.1.0-28-amd64",
        "install nvidia/580.178.04 -k 6.1.0-28-amd64",
    ]


def test_modules_for_fabric_manager_that_a_file_of_the_admin_names(tmp_path: Path) -> None:
    """The plan has no file then. ansible-core 2.16 makes an empty text of null."""
    data = {"fabric_modules": ["ib_umad"], "fabric_modules_load": None}
    loads = '#!/bin/sh\n[ "$*" = "-a ib_umad" ]\n'
    found = carry_out(tmp_path, "fabric_modules", data, modprobe=loads)
    assert found.code == 0

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated kernel of a node: what loads, what breaks, and what everyone sees of it."""

import io
import re
from pathlib import Path

import pytest
import yaml
from rig import LAB, LIBRARY, RELEASE, Rig
from simulation import (
    boot,
    device_files,
    fabric,
    kernel_log,
    keys,
    kmod,
    trees,
)
from simulation.faults import FaultError
from simulation.state import UVM_MAJOR, Kernel, Machine

P100 = ["0000:03:00.0", "0000:04:00.0", "0000:83:00.0", "0000:84:00.0"]
OTHER_DRIVERS = {"0000:02:00.0": "ast", "0000:81:00.0": "mlx5_core"}


@pytest.fixture
def p100(tmp_path):
    return Rig(tmp_path, "p100x4")


def test_virgin_node_has_gpus_on_the_bus_and_nothing_else(p100):
    p100.reboot()
    assert p100.drivers() == {**dict.fromkeys(P100, "nvidia"), **OTHER_DRIVERS}
    p100.node.path(f"/lib/modules/{RELEASE}/updates/dkms/nvidia.ko").unlink()
    p100.reboot()
    assert p100.drivers() == OTHER_DRIVERS
    assert p100.devices() == []
    assert p100.read("/sys/bus/pci/devices/0000:03:00.0/device") == "0x15f8\n"
    assert p100.read(LIBRARY) == "head of a library\n"


def test_load_and_unload(p100):
    assert p100.modprobe("-a", "nvidia", "nvidia-uvm") == 0
    gpus = ["nvidia0", "nvidia1", "nvidia2", "nvidia3"]
    assert p100.devices() == []
    assert p100.nvidia_modprobe("-c", "0", "-u") == 0
    assert p100.nvidia_modprobe("-c", "255", *(word for n in "0123" for word in ("-c", n))) == 0
    assert p100.devices() == ["nvidia-uvm", "nvidia-uvm-tools", *gpus, "nvidiactl"]
    assert p100.drivers() == {**dict.fromkeys(P100, "nvidia"), **OTHER_DRIVERS}
    assert "x86_64 Kernel Module  580.178.04  " in p100.read("/proc/driver/nvidia/version")
    assert "Device Minor:    3\n" in p100.read(f"/proc/driver/nvidia/gpus/{P100[3]}/information")
    assert p100.read("/sys/module/nvidia/version") == "580.178.04\n"
    assert [line.split()[0] for line in p100.read("/run/metal-lab/proc-modules").splitlines()] == [
        "nvidia_uvm",
        "nvidia",
    ]
    assert p100.states() == dict.fromkeys(P100, "ok")

    inode = p100.node.path(LIBRARY).stat().st_ino
    assert p100.modprobe("-r", "nvidia_uvm") == 0  # and nvidia, which only it needed
    assert p100.kernel.modules == []
    # As with real ones: nobody removes files that mknod has created.
    assert p100.devices() == ["nvidia-uvm", "nvidia-uvm-tools", *gpus, "nvidiactl"]
    assert p100.drivers() == OTHER_DRIVERS
    assert not p100.node.path("/proc/driver/nvidia").exists()
    assert p100.read(LIBRARY) == "head of a library\n"
    assert p100.node.path(LIBRARY).stat().st_ino == inode


def test_dependencies_come_first(p100, capsys):
    assert p100.modprobe("-n", "-v", "nvidia_drm") == 0
    assert p100.kernel.modules == []
    dry = capsys.readouterr().out
    assert p100.modprobe("-v", "nvidia_drm") == 0
    assert capsys.readouterr().out == dry
    assert p100.kernel.modules == ["nvidia", "nvidia_modeset", "nvidia_drm"]


SOFTDEP = "softdep nvidia post: nvidia-uvm nvidia-drm\n"
FOLLOWED = ["nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"]


@pytest.mark.parametrize("module", FOLLOWED)
def test_softdep_loads_what_follows(p100, module):
    p100.write("/usr/lib/modprobe.d/nvidia.conf", SOFTDEP)
    assert p100.modprobe(module) == 0
    assert sorted(p100.kernel.modules) == FOLLOWED
    assert p100.modprobe("-r", "nvidia_drm", "nvidia_uvm") == 0
    assert p100.kernel.modules == []


def test_what_follows_is_in_the_way_of_what_it_uses(p100, capsys):
    p100.write("/usr/lib/modprobe.d/nvidia.conf", SOFTDEP)
    p100.modprobe("nvidia")
    assert kmod.rmmod(p100.node, p100.machine, p100.kernel, ["nvidia_modeset", "nvidia_drm"]) == 1
    assert capsys.readouterr().err == "rmmod: ERROR: Module nvidia_modeset is in use\n"
    rest = ["nvidia_modeset", "nvidia_uvm", "nvidia"]
    assert kmod.rmmod(p100.node, p100.machine, p100.kernel, rest) == 0


@pytest.mark.parametrize(
    ("machine", "flavour", "version", "works"),
    [
        pytest.param("p100x4", "proprietary", "580.178.04", True, id="pascal-proprietary"),
        pytest.param("p100x4", "open", "580.178.04", False, id="pascal-open"),
        pytest.param("p100x4", "proprietary", "595.91.07", False, id="pascal-after-its-last"),
        pytest.param("t4x1", "open", "595.91.07", True, id="turing-open"),
        pytest.param("t4x1", "proprietary", "580.178.04", True, id="turing-proprietary"),
    ],
)
def test_module_drives_only_gpus_that_it_supports(tmp_path, machine, flavour, version, works):
    rig = Rig(tmp_path, machine, flavour, version)
    assert rig.modprobe("nvidia") == (0 if works else 1)
    assert bool(rig.states()) is works


@pytest.mark.parametrize(
    ("prepare", "arguments", "message"),
    [
        pytest.param(
            lambda rig: rig.node.path(f"/lib/modules/{RELEASE}/updates/dkms/nvidia.ko").unlink(),
            ["nvidia"],
            f"modprobe: FATAL: Module nvidia not found in directory /lib/modules/{RELEASE}\n",
            id="not-built",
        ),
        pytest.param(
            lambda rig: rig.fault("remove-all-gpus"),
            ["nvidia"],
            "modprobe: ERROR: could not insert 'nvidia': No such device\n",
            id="no-gpu",
        ),
        pytest.param(
            lambda rig: rig.fault("nouveau"),
            ["nvidia_uvm"],
            "modprobe: ERROR: could not insert 'nvidia': No such device\n",
            id="nouveau-has-them",
        ),
        pytest.param(
            lambda rig: rig.fault("secure-boot"),
            ["nvidia"],
            "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service\n",
            id="secure-boot",
        ),
        pytest.param(
            lambda rig: rig.modprobe("nvidia_uvm"),
            ["-r", "nvidia"],
            "modprobe: FATAL: Module nvidia is in use.\n",
            id="needed-by-another",
        ),
        pytest.param(
            lambda rig: (rig.modprobe("nvidia"), rig.kernel.persistent.append(P100[0])),
            ["-r", "nvidia"],
            "modprobe: FATAL: Module nvidia is in use.\n",
            id="persistence-mode",
        ),
        pytest.param(
            lambda rig: (
                rig.modprobe("nvidia"),
                rig.write("/proc/17/maps", "7f0 r-xp /usr/lib/libnvidia-ml.so.580.178.04\n"),
            ),
            ["--remove", "nvidia"],
            "modprobe: FATAL: Module nvidia is in use.\n",
            id="a-process-uses-nvml",
        ),
        pytest.param(
            lambda rig: rig.fault("nouveau"),
            ["-r", "nouveau"],
            "modprobe: FATAL: Module nouveau is in use.\n",
            id="nouveau-has-the-screen",
        ),
    ],
)
def test_modprobe_refuses_in_the_words_of_kmod(p100, capsys, prepare, arguments, message):
    prepare(p100)
    before = list(p100.kernel.modules)
    assert p100.modprobe(*arguments) == 1
    assert capsys.readouterr().err == message
    assert p100.kernel.modules == before


@pytest.mark.parametrize(
    ("arguments", "is_real"),
    [
        pytest.param(["overlay"], True, id="another module"),
        pytest.param(["-abq", "fuse"], True, id="as systemd asks"),
        pytest.param(["overlay", "nvidia"], True, id="a parameter that looks like one of ours"),
        pytest.param(["-a", "overlay", "nvidia"], False, id="one of ours"),
        pytest.param(["nvidia-current-open-uvm"], False, id="by Debian's name"),
        pytest.param(["--resolve-alias", "nvidia"], True, id="an option that is not simulated"),
    ],
)
def test_what_goes_to_the_real_modprobe(arguments, is_real):
    assert kmod.is_for_the_real_one(arguments) is is_real


def test_quiet_hides_only_that_there_is_no_such_module(p100, capsys):
    p100.fault("secure-boot")
    assert p100.modprobe("-q", "nvidia") == 1
    assert "rejected" in capsys.readouterr().err
    p100.node.path(f"/lib/modules/{RELEASE}/updates/dkms/nvidia.ko").unlink()
    assert p100.modprobe("-q", "nvidia") == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        pytest.param(["-F", "version", "nvidia"], "580.178.04\n", id="version"),
        pytest.param(["-F", "license", "nvidia-uvm"], "NVIDIA\n", id="flavour"),
        pytest.param(
            ["-n", "nvidia_uvm"],
            f"/lib/modules/{RELEASE}/updates/dkms/nvidia-uvm.ko\n",
            id="filename",
        ),
    ],
)
def test_modinfo(p100, capsys, arguments, output):
    assert kmod.modinfo(p100.node, p100.machine, arguments) == 0
    printed = capsys.readouterr().out
    assert printed.removeprefix(str(p100.node.root)) == output


DEBIANS_RULES = """\
install nvidia modprobe -i nvidia-current-open $CMDLINE_OPTS
install nvidia-uvm modprobe nvidia ; modprobe -i nvidia-current-open-uvm $CMDLINE_OPTS
"""


@pytest.fixture
def debian(tmp_path):
    """Debian's own open driver."""
    rig = Rig(tmp_path, "t4x1", flavour=None)
    rig.write("/etc/modprobe.d/nvidia.conf", DEBIANS_RULES)
    rig.write(
        f"/lib/modules/{RELEASE}/updates/dkms/nvidia-current-open.ko",
        "version=550.163.01\nflavour=open\n",
    )
    return rig


def test_module_of_debian_is_found_by_the_rules_of_modprobe_d(debian, capsys):
    debian.node.path("/etc/modprobe.d/gone.conf").symlink_to("/nowhere")
    assert debian.modprobe("-n", "-v", "nvidia-uvm") == 0
    files = capsys.readouterr().out.split()[1::2]
    assert [Path(file).name for file in files] == [
        "nvidia-current-open.ko",
        "nvidia-current-open-uvm.ko",
    ]
    assert debian.modprobe("nvidia-uvm") == 0
    assert debian.kernel.modules == ["nvidia", "nvidia_uvm"]
    assert debian.kernel.driver.version == "550.163.01"

    debian.node.path("/etc/modprobe.d/nvidia.conf").unlink()
    assert debian.modprobe("-n", "nvidia") == 1
    assert "Module nvidia not found" in capsys.readouterr().err


PARAMETERS = yaml.safe_load((LAB / "recorded/parameters.yml").read_text())


def parameters_of(rig):
    lines = rig.read("/proc/driver/nvidia/params").splitlines()
    return dict(line.split(": ") for line in lines)


def test_parameters_are_those_of_the_record(p100):
    """ModifyDeviceFiles differs: see parameters.py."""
    p100.reboot()
    (row,) = PARAMETERS["defaults"]
    recorded = {name: str(value) for name, value in row["names"].items()}
    assert list(parameters_of(p100).items()) == list(
        (recorded | {"ModifyDeviceFiles": "0"}).items()
    )


def test_parameters_are_those_of_the_last_load(p100):
    lines = {"EnableStreamMemOPs": "1", "DeviceFileMode": "0660", "TemporaryFilePath": "/var/tmp-a"}
    lines |= {row["parameter"].removeprefix("NVreg_"): "0" for row in PARAMETERS["shown_as"]}
    lines |= {row["parameter"].removeprefix("NVreg_"): "7" for row in PARAMETERS["never_shown"]}
    lines |= {"EnableMSI": "-1", "Typo": "1"}
    text = "".join(f"options nvidia NVreg_{name}={value}\n" for name, value in lines.items())
    p100.reboot()
    before = parameters_of(p100)
    p100.write("/etc/modprobe.d/b.conf", text)
    p100.write(
        "/etc/modprobe.d/a.conf", "options nvidia NVreg_EnableStreamMemOPs=5\noptions other a=1\n"
    )
    p100.render()
    assert parameters_of(p100) == before
    p100.reboot()
    assert parameters_of(p100) == before | {
        "EnableStreamMemOPs": "1",
        "DeviceFileMode": "432",
        "EnableMSI": "4294967295",
        "TemporaryFilePath": '"/var/tmp-a"',
        **{row["name"]: "0" for row in PARAMETERS["shown_as"]},
    }
    assert p100.modprobe("-r", "nvidia") == 0
    p100.node.path("/etc/modprobe.d/b.conf").unlink()
    p100.node.path("/etc/modprobe.d/a.conf").unlink()
    assert p100.modprobe("nvidia") == 0
    assert parameters_of(p100) == before


@pytest.mark.parametrize("name", ["nvidia", "nvidia-current-open"])
def test_parameters_of_debians_module_have_either_name(debian, name):
    debian.write("/etc/modprobe.d/a.conf", f"options {name} NVreg_EnableStreamMemOPs=1\n")
    debian.reboot()
    assert parameters_of(debian)["EnableStreamMemOPs"] == "1"


def test_peermem_needs_the_api_when_it_is_built(p100, capsys):
    assert p100.modprobe("nvidia_peermem") == 1
    assert "Module nvidia_peermem not found" in capsys.readouterr().err
    place = f"/lib/modules/{RELEASE}/updates/dkms/nvidia-peermem.ko"
    p100.write(place, "version=580.178.04\nflavour=proprietary\n")
    assert p100.modprobe("nvidia-peermem") == 1
    (words,) = (row["value"] for row in PARAMETERS["peermem"] if row["what"].startswith("loads"))
    assert f"could not insert 'nvidia_peermem': {words}" in capsys.readouterr().err
    assert p100.kernel.modules == ["nvidia"]
    p100.write(place, "version=580.178.04\nflavour=proprietary\npeer_memory=yes\n")
    assert p100.modprobe("nvidia_peermem") == 0
    assert p100.kernel.modules == ["nvidia", "nvidia_peermem"]
    assert kmod.rmmod(p100.node, p100.machine, p100.kernel, ["nvidia"]) == 1
    assert kmod.rmmod(p100.node, p100.machine, p100.kernel, ["nvidia_peermem", "nvidia"]) == 0


def test_modinfo_takes_the_names_of_debians_files_alone(debian, capsys):
    """As kmod 34 does; see recorded/debian_driver.yml."""
    assert kmod.modinfo(debian.node, debian.machine, ["-F", "version", "nvidia"]) == 1
    assert capsys.readouterr().err == "modinfo: ERROR: Module nvidia not found.\n"
    for name in ("nvidia-current-open", "nvidia_current_open_uvm"):
        assert kmod.modinfo(debian.node, debian.machine, ["-F", "version", name]) == 0
        assert capsys.readouterr().out == "550.163.01\n"


def test_modinfo_of_what_is_not_there(p100, capsys):
    assert kmod.modinfo(p100.node, p100.machine, ["-F", "version", "nouveau"]) == 1
    assert capsys.readouterr().err == "modinfo: ERROR: Module nouveau not found.\n"


HEALTH = [
    ("ecc", ["1", "3"], "ecc=3"),
    ("ecc", [], "ecc=1"),
    ("pages-pending", ["2"], "pages=1"),
    ("recovery-action", ["1"], "recovery=1"),
    ("recovery-action", ["1", "drain-and-reset"], "recovery=4"),
    ("throttle", ["0"], "clocks=72"),
    ("throttle", ["0", "hw-power-brake"], "clocks=136"),
    ("pcie-width", ["3", "4"], "width=4"),
    ("pcie-gen", ["3"], "generation=2"),
    ("compute-mode", ["0", "exclusive-process"], "compute=3"),
    ("mig-pending", ["0"], "mig_pending=1"),
]


@pytest.mark.parametrize(("fault", "arguments", "expected"), HEALTH)
def test_what_a_gpu_reports_of_itself(p100, fault, arguments, expected):
    p100.modprobe("nvidia")
    p100.fault(fault, *arguments)
    address = P100[int(arguments[0]) if arguments else 0]
    lines = [line for line in p100.read(LIBRARY).splitlines() if f"state=ok {expected}" in line]
    assert [f"address={address} " in line for line in lines] == [True]


@pytest.mark.parametrize("fault", ["ecc-sram-threshold", "remap-pending", "remap-failed"])
def test_p100_do_not_remap_rows(p100, fault):
    with pytest.raises(FaultError, match="Tesla P100-PCIE-16GB retires pages"):
        p100.fault(fault)


@pytest.mark.parametrize(
    ("fault", "arguments"), [("recovery-action", ["0", "prayer"]), ("throttle", ["0", "hot"])]
)
def test_words_that_nobody_knows(p100, fault, arguments):
    with pytest.raises(FaultError, match="is not one of"):
        p100.fault(fault, *arguments)


@pytest.mark.parametrize(
    ("fault", "arguments", "states", "drivers"),
    [
        pytest.param("lose-gpu", ["1"], {P100[1]: None}, {P100[1]: None}, id="lose-gpu"),
        pytest.param("gpu-lost", [], {P100[0]: "lost"}, {}, id="gpu-lost"),
        pytest.param("gpu-lost-in-use", ["1"], {P100[1]: "lost-in-use"}, {}, id="gpu-lost-in-use"),
        pytest.param(
            "gpu-unknown-error", ["3"], {P100[3]: "unknown-error"}, {}, id="unknown-error"
        ),
        pytest.param("gpu-needs-reset", ["3"], {P100[3]: "needs-reset"}, {}, id="needs-reset"),
        pytest.param("gpu-hidden", ["3"], {P100[3]: "hidden"}, {}, id="hidden"),
        pytest.param("inforom", ["3"], {P100[3]: "inforom"}, {}, id="inforom"),
        pytest.param("smi-hang", [], {}, {}, id="smi-hang"),
        pytest.param("xml-hang", [], {}, {}, id="xml-hang"),
        pytest.param("ecc", ["3"], {}, {}, id="ecc"),
        pytest.param("no-uvm", [], {}, {}, id="no-uvm"),
        pytest.param("xid", ["2"], {P100[2]: "xid79"}, {}, id="xid"),
        pytest.param("xid", ["2", "48"], {P100[2]: "xid48"}, {}, id="xid-48"),
        pytest.param("vfio", ["3"], {P100[3]: None}, {P100[3]: "vfio-pci"}, id="vfio"),
        pytest.param(
            "nouveau", [], dict.fromkeys(P100), dict.fromkeys(P100, "nouveau"), id="nouveau"
        ),
        pytest.param(
            "remove-all-gpus", [], dict.fromkeys(P100), dict.fromkeys(P100), id="remove-all-gpus"
        ),
        pytest.param("secure-boot", [], dict.fromkeys(P100), dict.fromkeys(P100), id="secure-boot"),
        pytest.param("library-mismatch", [], {}, {}, id="library-mismatch"),
    ],
)
def test_fault_shows_at_once_and_restore_takes_it_back(p100, fault, arguments, states, drivers):
    def expected(healthy, changes):
        everything = {**dict.fromkeys(P100, healthy), **changes}
        return {address: value for address, value in everything.items() if value}

    p100.modprobe("nvidia_uvm")
    p100.kernel.persistent = list(P100)
    healthy = p100.read(LIBRARY)

    p100.fault(fault, *arguments)
    assert p100.states() == expected("ok", states)
    assert p100.drivers() == {**expected("nvidia", drivers), **OTHER_DRIVERS}

    p100.fault("restore")
    p100.render()
    assert p100.read(LIBRARY).replace("persistence=1", "persistence=0") == healthy
    assert trees.read_persistence(p100.node) == P100
    assert p100.kernel.modules == ["nvidia", "nvidia_uvm"]


def test_faults_of_nvidia_smi_are_in_what_it_reads(p100):
    p100.modprobe("nvidia")
    p100.fault("smi-rows")
    p100.fault("smi-exit", "8")
    assert "\nnvidia_smi rows exit=8\ngpu " in p100.read(LIBRARY)


def described(rig, key):
    """A key of the driver's view, by GPU in bus order, without the GPUs that have none."""
    lines = sorted(re.findall(r"^gpu .*", rig.read(LIBRARY), re.MULTILINE))
    found = {n: re.search(rf" {key}=(\S+)", line) for n, line in enumerate(lines)}
    return {n: match[1] for n, match in found.items() if match}


@pytest.mark.parametrize(
    ("faults", "key", "values"),
    [
        pytest.param([["cuda-broken"]], "cuda", {0: "719"}, id="broken"),
        pytest.param(
            [["cuda-broken", "1", "46"], ["cuda-broken", "1", "214"], ["cuda-broken", "2"]],
            "cuda",
            {1: "214", 2: "719"},
            id="broken-with-a-number",
        ),
        pytest.param([["cuda-hang", "2"]], "hang", {2: "1"}, id="hang"),
        pytest.param([["cuda-wrong", "3"]], "wrong", {3: "1"}, id="wrong"),
        pytest.param([["p2p-broken", "1"]], "peer", {1: "broken"}, id="p2p-broken"),
        pytest.param(
            [["no-peer-access"]], "peer", dict.fromkeys(range(4), "none"), id="no-peer-access"
        ),
        pytest.param(
            [["no-peer-access", "1"], ["p2p-broken", "1"]], "peer", {1: "broken"}, id="the-last"
        ),
    ],
)
def test_faults_of_cuda_are_in_what_it_reads(p100, faults, key, values):
    p100.modprobe("nvidia")
    healthy = p100.read(LIBRARY)
    for fault in faults:
        p100.fault(*fault)
    assert described(p100, key) == values
    assert p100.states() == dict.fromkeys(P100, "ok")
    p100.fault("restore")
    assert p100.read(LIBRARY) == healthy


def test_cuda_learns_of_uvm(p100):
    p100.modprobe("nvidia_uvm")
    assert f"\nuvm {UVM_MAJOR}\n" in p100.read(LIBRARY)
    p100.fault("uvm-number")
    assert f"\nuvm {UVM_MAJOR - 1}\n" in p100.read(LIBRARY)
    p100.fault("no-uvm")
    assert "\nuvm " not in p100.read(LIBRARY)


@pytest.mark.parametrize("machine", ["a100x8", "h100x8", "b200x8"])
def test_cuda_learns_whether_the_fabric_is_trained(tmp_path, machine):
    rig = Rig(tmp_path, machine, "open")
    rig.reboot()
    assert described(rig, "trained") == dict.fromkeys(range(8), "0")
    rig.kernel.fabric = True
    rig.render()
    assert described(rig, "trained") == dict.fromkeys(range(8), "1")


def test_gpus_without_nvswitches_need_no_training(p100):
    p100.modprobe("nvidia")
    assert described(p100, "trained") == {}


@pytest.mark.parametrize(
    ("fault", "file"),
    [
        pytest.param("no-nvidiactl", "nvidiactl", id="nvidiactl"),
        pytest.param("no-uvm-file", "nvidia-uvm", id="uvm"),
    ],
)
@pytest.mark.parametrize(
    "heal",
    [
        pytest.param(lambda rig: rig.fault("restore"), id="restore"),
        pytest.param(lambda rig: (rig.reboot(), rig.create_all()), id="boot"),
        pytest.param(
            lambda rig: (rig.nvidia_modprobe("-c255"), rig.nvidia_modprobe("-uc0")),
            id="nvidia-modprobe",
        ),
    ],
)
def test_device_file_that_is_gone_stays_so(p100, fault, file, heal):
    p100.write("/etc/modules-load.d/nvidia.conf", "nvidia-uvm\n")
    p100.reboot()
    p100.create_all()
    there = p100.devices()
    p100.fault(fault)
    p100.create_all()
    assert set(there) - set(p100.devices()) == {file}
    assert p100.node.path(f"/run/metal-lab/kept-away/{file}").exists()
    heal(p100)
    assert p100.devices() == there
    assert not p100.node.path("/run/metal-lab/kept-away").exists()


def test_module_that_is_gone_leaves_its_device_files(p100):
    """As a real one does: its files were made by somebody else."""
    p100.modprobe("nvidia_uvm")
    p100.create_all()
    there = p100.devices()
    p100.fault("no-uvm")
    assert (p100.kernel.modules, p100.devices()) == (["nvidia"], there)


UVM, GPUS = ["nvidia-uvm", "nvidia-uvm-tools"], ["nvidia0", "nvidia1", "nvidia2", "nvidia3"]


@pytest.mark.parametrize(
    ("arguments", "status", "modules", "files"),
    [
        pytest.param([], 0, ["nvidia"], [], id="without-options"),
        pytest.param(["-c", "1"], 0, ["nvidia"], ["nvidia1"], id="gpu"),
        pytest.param(["-c0", "-c255"], 0, ["nvidia"], ["nvidia0", "nvidiactl"], id="several"),
        pytest.param(["-c", "0", "-u"], 0, ["nvidia", "nvidia_uvm"], UVM, id="uvm"),
        pytest.param(["--unified-memory"], 0, ["nvidia", "nvidia_uvm"], [], id="uvm-without-c"),
        pytest.param(["-m"], 0, ["nvidia", "nvidia_modeset"], ["nvidia-modeset"], id="modeset"),
        pytest.param(["--create-device-files"], 1, [], [], id="unknown"),
        pytest.param(["nvidia"], 1, [], [], id="argument"),
    ],
)
def test_nvidia_modprobe(p100, arguments, status, modules, files):
    assert p100.nvidia_modprobe(*arguments) == status
    assert (p100.kernel.modules, p100.devices()) == (modules, files)


def test_nvidia_modprobe_takes_the_place_of_what_is_no_device(p100):
    (p100.node.path("/dev") / UVM[0]).mkdir(parents=True)
    p100.write(f"/dev/{UVM[1]}", "of a container")
    assert p100.nvidia_modprobe("-c", "0", "-u") == 0
    assert [p100.read(f"/dev/{name}") for name in UVM] == ["", ""]


def test_nvidia_modprobe_leaves_a_directory_with_files(p100, capsys):
    p100.write(f"/dev/{UVM[0]}/data", "of a container")
    assert p100.nvidia_modprobe("-c", "0", "-u") == 1
    assert capsys.readouterr() == ("", "")
    assert p100.devices() == [UVM[0]]
    p100.reboot()
    assert p100.devices() == []


def test_number_of_uvm_can_change(p100):
    p100.modprobe("nvidia_uvm")
    assert "\n510 nvidia-uvm\n" in p100.read("/run/metal-lab/proc-devices")
    p100.create_all()
    there = p100.devices()
    p100.fault("uvm-number")
    assert "\n509 nvidia-uvm\n" in p100.read("/run/metal-lab/proc-devices")
    assert p100.devices() == there
    p100.fault("restore")
    assert "\n510 nvidia-uvm\n" in p100.read("/run/metal-lab/proc-devices")
    assert device_files.possible(p100.kernel)["nvidia-uvm-tools"] == (510, 1)


def test_nvidia_modprobe_without_a_module(tmp_path, capsys):
    rig = Rig(tmp_path, "p100x4", flavour=None)
    assert rig.nvidia_modprobe("-c", "0", "-u") == 1
    assert capsys.readouterr() == ("", "")


def test_libraries_create_nothing_for_cuda(p100):
    p100.modprobe("-a", "nvidia", "nvidia-uvm")
    device_files.create_for_driver(p100.kernel)
    p100.render()
    assert p100.devices() == [*GPUS, "nvidiactl"]


def test_boot_starts_without_device_files(p100):
    p100.write("/etc/modules-load.d/nvidia.conf", "nvidia-uvm\n")
    p100.reboot()
    assert p100.devices() == []
    p100.create_all()
    p100.write("/dev/nvidia-fs0", "of another driver")
    p100.reboot()
    assert (p100.kernel.modules, p100.devices()) == (["nvidia", "nvidia_uvm"], ["nvidia-fs0"])


def test_library_that_is_gone_comes_back(p100):
    link = p100.node.path(LIBRARY).with_name("libnvidia-ml.so.1")
    link.symlink_to("libnvidia-ml.so.580.178.04")
    p100.fault("no-nvml")
    assert not link.is_symlink()
    p100.machine.save()
    p100.machine = Machine.load(p100.node)
    p100.fault("restore")
    assert str(link.readlink()) == "libnvidia-ml.so.580.178.04"


def test_library_mismatch_ends_with_a_reboot(p100):
    p100.modprobe("nvidia")
    p100.fault("library-mismatch")
    assert "driver_version 580.178.03\n" in p100.read(LIBRARY)
    p100.reboot()
    assert "driver_version 580.178.04\n" in p100.read(LIBRARY)


def test_other_faults_outlive_a_reboot(p100):
    p100.fault("gpu-lost", "2")
    p100.fault("lose-gpu", "3")
    p100.reboot()
    assert p100.states() == {P100[0]: "ok", P100[1]: "ok", P100[2]: "lost"}
    assert p100.node.path(f"/sys/bus/pci/devices/{P100[2]}/config").read_bytes() == b"\xff" * 256


RECORDED_LINES = yaml.safe_load((LAB / "recorded/xids.yml").read_text())["lines"]


def form(line):
    """A line of the kernel log without addresses, UUIDs and versions."""
    for pattern, mark in (
        (r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}", "ADDRESS"),
        (r"GPU-[0-9a-f-]{36}", "UUID"),
        (r"\b[0-9]{3}\.[0-9.]+", "VERSION"),
        (r"  Release Build$", ""),
    ):
        line = re.sub(pattern, mark, line)
    return line


@pytest.mark.parametrize("flavour", ["open", "proprietary"])
def test_kernel_log_has_the_recorded_lines(tmp_path, capsys, flavour):
    h100 = Rig(tmp_path, "h100x8", flavour)
    h100.modprobe("nvidia")
    h100.fault("xid", "1")
    h100.fault("gpu-lost", "2")
    h100.kernel.save()
    assert kernel_log.dmesg(h100.node, Kernel.load(h100.node)) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"[    0.000000] Linux version {RELEASE} (metal-lab)"
    times, texts = zip(*(line[1:].split("] ", 1) for line in lines), strict=True)
    assert sorted(map(float, times)) == list(map(float, times))
    assert {form(text) for text in texts} <= {form(row["line"]) for row in RECORDED_LINES}
    assert sum("Xid" in text for text in texts) == 2


def test_kernel_log_is_that_of_the_boot(p100):
    p100.modprobe("nvidia")
    p100.fault("xid", "0", "48")
    p100.fault("restore")
    assert [kernel_log.NVLINK in line for line in p100.kernel.log].count(True) == 2
    assert kernel_log.NVLINK in p100.kernel.log[-2]  # after the error
    p100.fault("xid", "0", "48")
    p100.reboot()
    assert not any("Xid" in line for line in p100.kernel.log)


def test_only_a_driver_logs_errors(p100):
    p100.fault("xid")
    assert p100.kernel.log == []


def test_faults_that_cannot_be(p100):
    with pytest.raises(FaultError, match="not loaded"):
        p100.fault("library-mismatch")
    with pytest.raises(FaultError, match="only 0 to 3"):
        p100.fault("xid", "4")
    for absent in ("no-uvm", "no-uvm-file", "no-nvidiactl"):
        with pytest.raises(FaultError, match=r"(does not exist|is not loaded)"):
            p100.fault(absent)
    with pytest.raises(FaultError, match="256 is not an exit code"):
        p100.fault("smi-exit", "256")


def test_boot_obeys_modprobe_d_and_modules_load_d(p100):
    p100.fault("nouveau")
    p100.reboot()
    assert p100.kernel.modules == ["nouveau"]

    p100.write("/usr/lib/modprobe.d/nvidia.conf", "blacklist nouveau\noptions nouveau modeset=0\n")
    p100.write("/usr/lib/modules-load.d/nvidia.conf", "# for CUDA\nnvidia-uvm\nbr_netfilter\n")
    p100.reboot()
    assert p100.kernel.modules == ["nvidia", "nvidia_uvm"]


def test_secure_boot_variable(p100, tmp_path):
    variable = f"/sys/firmware/efi/efivars/{trees.SECURE_BOOT_VARIABLE}"
    p100.render()
    assert p100.node.path(variable).read_bytes()[-1] == 0
    p100.fault("secure-boot")
    assert p100.node.path(variable).read_bytes()[-1] == 1
    without_efi = Rig(tmp_path / "bios", "t4x1")
    without_efi.render()
    assert not without_efi.node.path("/sys/firmware/efi").exists()


def test_an_enrolled_key_lets_modules_load(p100, capsys):
    """The words and exit codes are those of the record."""
    record = LAB / "recorded/dkms.yml"
    (enrolled, *_, missing, _blocked) = yaml.safe_load(record.read_text())["test_key"]
    p100.fault("secure-boot")
    p100.fault("key-enrolled")
    assert p100.modprobe("nvidia") == 1  # not signed
    key = keys.of_dkms(p100.node)
    with p100.node.path(f"/lib/modules/{RELEASE}/updates/dkms/nvidia.ko").open("a") as module:
        module.write(f"signer={key}\n")
    assert p100.modprobe("nvidia") == 0
    other = p100.node.path("/other.der")
    other.touch()
    capsys.readouterr()
    for path, row in ((keys.KEY, enrolled), ("/other.der", missing)):
        status = keys.mokutil(p100.node, p100.machine, ["--test-key", path])
        assert (status, capsys.readouterr().out) == (row["exit_code"], f"{path} {row['printed']}\n")
    assert keys.mokutil(p100.node, p100.machine, ["--sb-state"]) == 0
    assert capsys.readouterr().out == "SecureBoot enabled\n"


def test_a_key_is_enrolled_in_two_steps(p100, capsys, monkeypatch):
    """The person at the console does the second one."""
    record = LAB / "recorded/dkms.yml"
    (requested,) = (
        row for row in yaml.safe_load(record.read_text())["test_key"] if row["state"] == "requested"
    )
    p100.fault("secure-boot")
    with pytest.raises(FaultError, match="no key was imported"):
        p100.fault("keys-confirmed")
    keys.of_dkms(p100.node)
    monkeypatch.setattr("sys.stdin", io.StringIO("once\nonce\n"))
    assert keys.mokutil(p100.node, p100.machine, ["--import", keys.KEY]) == 0
    assert keys.mokutil(p100.node, p100.machine, ["--test-key", keys.KEY]) == requested["exit_code"]
    assert capsys.readouterr().out == f"{keys.KEY} {requested['printed']}\n"
    p100.fault("keys-confirmed")
    keys.mokutil(p100.node, p100.machine, ["--test-key", keys.KEY])
    assert "is already enrolled" in capsys.readouterr().out


def test_texts_of_a_simulated_kernel(p100):
    assert boot.kernel_texts(p100.node) == {}
    p100.write("/run/metal-lab/kernel-release", f"{RELEASE}\n")
    texts = boot.kernel_texts(p100.node)
    assert texts["/proc/sys/kernel/osrelease"] == f"{RELEASE}\n"
    assert texts["/proc/version"].startswith(f"Linux version {RELEASE} ")


EVENT, *_further = boot.events_of("nvidia")


def test_events_of_a_module():
    places = [(event["SUBSYSTEM"], event["DEVPATH"]) for event in boot.events_of("nvidia")]
    assert places == [("module", "/module/nvidia"), ("drivers", "/bus/pci/drivers/nvidia")]
    (uvm,) = boot.events_of("nvidia_uvm")
    assert (uvm["KERNEL"], uvm["DEVPATH"]) == ("nvidia_uvm", "/module/nvidia_uvm")


@pytest.mark.parametrize(
    ("rule", "commands"),
    [
        pytest.param('ACTION=="add", KERNEL=="nvidia", RUN+="/bin/a b"', ["/bin/a b"], id="run"),
        pytest.param(
            'ACTION=="add|bind", SUBSYSTEM=="module", KERNEL!="nouveau", RUN="x"', ["x"], id="or"
        ),
        pytest.param('KERNEL=="nvidia", RUN+="a", RUN+="b"', ["a", "b"], id="several"),
        pytest.param('KERNEL=="nvidia", RUN+="echo $$(x) 5%%"', ["echo $(x) 5%"], id="escapes"),
        pytest.param('KERNEL=="nvidia", TEST=="/usr", RUN+="x"', ["x"], id="file"),
        pytest.param('KERNEL=="nvidia", TEST=="/nowhere", RUN+="x"', [], id="no-file"),
        pytest.param('KERNEL=="nvidia", TEST!="/nowhere", RUN+="x"', ["x"], id="not-file"),
        pytest.param('ACTION=="remove", KERNEL=="nvidia", RUN+="x"', [], id="other-action"),
        pytest.param('DEVPATH=="/module/nvidia", ATTR{x}=="1", RUN+="x"', [], id="unknown-key"),
        pytest.param('# KERNEL=="nvidia", RUN+="x"', [], id="comment"),
        pytest.param('ACTION!="remove", RUN+="iocost"', [], id="about-anything"),
        pytest.param(
            'KERNEL=="nvidia*", TAG+="systemd", ENV{SYSTEMD_WANTS}+="a.service"',
            ["systemctl start --no-block a.service"],
            id="unit",
        ),
    ],
)
def test_udev_rules_are_followed(p100, rule, commands):
    p100.write("/usr/lib/udev/rules.d/60-nvidia.rules", rule + "\n")
    assert boot.commands_for(p100.node, EVENT) == commands


def test_kernel_remembers(p100):
    p100.modprobe("nvidia")
    p100.kernel.save()
    assert Kernel.load(p100.node) == p100.kernel


# ---- NVSwitches ---------------------------------------------------------------------------------


def fabric_states(rig):
    lines = [line for line in rig.read(LIBRARY).splitlines() if line.startswith("gpu ")]
    return {word for line in lines for word in line.split() if word.startswith("fabric=")}


def train(rig, version="580.178.04"):
    fabric.train(rig.node, rig.machine, rig.kernel, version)
    rig.render()


def test_fabric_stays_until_the_module_goes(tmp_path):
    rig = Rig(tmp_path, "h100x8")
    rig.reboot()
    assert fabric_states(rig) == {"fabric=1"}
    train(rig)
    assert fabric_states(rig) == {"fabric=3"}
    rig.kernel.save()
    assert Kernel.load(rig.node).fabric is True
    rig.modprobe("-r", "nvidia")
    rig.modprobe("nvidia")
    assert fabric_states(rig) == {"fabric=1"}
    train(rig)
    rig.fault("fabric-reset")
    assert fabric_states(rig) == {"fabric=1"}


@pytest.mark.parametrize(
    ("machine", "version", "fault", "words"),
    [
        ("h100x8", "590.48.01", [], "don't match with driver version 580.178.04"),
        ("h100x8", "580.178.04", ["lose-nvswitch", "2"], "number of NVSwitches don't match"),
        ("t4x1", "580.178.04", [], "NV_WARN_NOTHING_TO_DO"),
    ],
)
def test_fabric_manager_gives_up_with_its_words(tmp_path, machine, version, fault, words):
    rig = Rig(tmp_path, machine)
    rig.reboot()
    if fault:
        rig.fault(*fault)
    with pytest.raises(SystemExit, match=words):
        train(rig, version)


def test_a100_have_no_fabric_state(tmp_path):
    rig = Rig(tmp_path, "a100x8")
    rig.reboot()
    train(rig)
    assert fabric_states(rig) == set()


def test_switches_behind_adapters(tmp_path):
    """The kernel loads the module of the adapters. The other one is loaded by somebody else."""
    rig = Rig(tmp_path, "b200x8", "open")
    rig.reboot()
    devices = rig.node.path("/sys/bus/pci/devices")
    ports = [file.parent.name for file in devices.glob("*/vpd") if "SW_MNG" in file.read_text()]
    assert sorted(ports) == [f"0000:c4:00.{number}" for number in range(4)]
    assert "mlx5_ib" in rig.kernel.modules
    assert "ib_umad" not in rig.kernel.modules
    assert rig.modprobe("ib_umad") == 0
    assert rig.node.path("/sys/module/ib_umad/initstate").exists()
    assert fabric_states(rig) == {"fabric=1"}
    with pytest.raises(SystemExit, match="NV_WARN_NOTHING_TO_DO"):
        train(rig)
    rig.write("/proc/77/cmdline", "/opt/nvidia/nvlsm/sbin/nvlsm\0infinity\0")
    train(rig)
    assert fabric_states(rig) == {"fabric=3"}


def test_modules_of_adapters_are_in_modules_dep(tmp_path):
    rig = Rig(tmp_path, "b200x8")
    dep = f"/lib/modules/{RELEASE}/modules.dep"
    rig.write(dep, "updates/dkms/nvidia.ko:\n")
    for _boot in range(2):
        boot.list_kernels_modules(rig.node, rig.machine)
    lines = rig.read(dep).splitlines()
    assert lines == [
        "updates/dkms/nvidia.ko:",
        *(f"{one}:" for one in kmod.ADAPTER_MODULES.values()),
    ]


def test_other_machines_have_no_modules_of_adapters(tmp_path):
    rig = Rig(tmp_path, "h100x8")
    rig.reboot()
    boot.list_kernels_modules(rig.node, rig.machine)
    assert not rig.node.path(f"/lib/modules/{RELEASE}/modules.dep").exists()
    assert rig.modprobe("ib_umad") == 1
    assert "mlx5_ib" not in rig.kernel.modules


def test_a_lost_switch_is_not_on_the_bus(tmp_path):
    rig = Rig(tmp_path, "h100x8")
    rig.reboot()
    rig.fault("lose-nvswitch")
    assert not rig.node.path("/sys/bus/pci/devices/0000:c4:00.0").exists()
    with pytest.raises(FaultError, match="NVSwitch 3 does not exist, the machine has 3"):
        rig.fault("lose-nvswitch", "3")

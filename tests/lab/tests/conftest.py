# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in of a driver, compiled with /dev and /proc in a planted directory."""

import ctypes
import os
import shutil
import subprocess

import pytest

from metal_lab.silicon.build import build, nvml_header

GPU = (
    "gpu minor={minor} address=0000:{bus}:00.0 uuid=GPU-{minor} serial=32000000{minor} "
    'name="Tesla P100-PCIE-16GB" memory_mib=16384 cc=6.0 arch=4 brand=2 device=15f8 '
    "subsystem=10de:118f class=0302 numa={numa} power_w=250 mig=0 persistence=0 state={state}"
)


class Driver:
    """A driver installation: libraries, the description, device files."""

    def __init__(self, directory, version):
        self.version = version
        self.root, self.libraries = directory / "root", directory / "lib"
        build(version, self.libraries, nvml_header(), [f'ROOT="{self.root}"'])
        (self.libraries / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{version}")
        self.description = self.libraries / f"libnvidia-sandboxutils.so.{version}"
        self.head = self.description.read_bytes()

    def clear(self):
        shutil.rmtree(self.root, ignore_errors=True)
        (self.root / "dev").mkdir(parents=True)
        self.description.write_bytes(self.head)

    def load(self, *states, devices=None, smi=None):
        """Describe four GPUs, given in another order than on the bus; device files for all."""
        states = [*states, "ok", "ok", "ok", "ok"][:4]
        gpus = [
            GPU.format(minor=minor, bus=bus, numa=int(bus > "80"), state=states[minor])
            for minor, bus in reversed(list(enumerate(("03", "04", "83", "84"))))
        ]
        fault = [f"nvidia_smi {smi}"] if smi else []
        self.describe("\n".join([f"driver_version {self.version}", *fault, *gpus, "end", ""]))
        for name in ("nvidiactl", *(f"nvidia{n}" for n in devices or range(4))):
            (self.root / "dev" / name).touch()

    def describe(self, text):
        with self.description.open("r+b") as stream:
            stream.write(self.head + b"metal-lab-machine 1\n" + text.encode())
            stream.truncate()

    def smi(self, *arguments, libraries=None):
        result = subprocess.run(
            [self.libraries / "nvidia-smi", *arguments],
            env={**os.environ, "LD_LIBRARY_PATH": str(libraries or self.libraries)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.stderr == ""
        return result.returncode, result.stdout

    def nvml(self):
        return ctypes.CDLL(str(self.libraries / f"libnvidia-ml.so.{self.version}"))


@pytest.fixture(scope="session")
def install(tmp_path_factory):
    """Return what installs a version of the driver in a directory of its own."""
    return lambda version: Driver(tmp_path_factory.mktemp("driver"), version)

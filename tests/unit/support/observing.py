# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests of observations share: units, packages and times of planted nodes."""

from __future__ import annotations

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


IN_THE_FUTURE = 1e9  # seconds after the boot of the machine


def active_since(unit, boot_s):
    """Return what systemd says of a unit that was started so many seconds after the boot."""
    since = int(boot_s * 1e6)
    return f"Id={unit}.service\nActiveState=active\nActiveEnterTimestampMonotonic={since}\n"

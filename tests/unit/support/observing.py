# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests of observations share: planted units, packages, times, and a check of types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

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


def differences(value: Any, kind: Any, path: str) -> Iterator[str]:
    """Yield where a value is not what its type says."""
    if get_origin(kind) is UnionType:
        kinds = get_args(kind)
        if value is None and type(None) in kinds:
            return
        kind = kinds[0]
    if is_typeddict(kind):
        hints = get_type_hints(kind)
        if not kind.__required_keys__ <= set(value) <= set(hints):
            yield f"{path}: keys that differ are {sorted(set(value) ^ set(hints))}"
        for key in set(value) & set(hints):
            yield from differences(value[key], hints[key], f"{path}.{key}")
    elif get_origin(kind) is list:
        for one in value:
            yield from differences(one, get_args(kind)[0], f"{path}[]")
    elif get_origin(kind) in (dict, Mapping):
        for key, one in value.items():
            yield from differences(one, get_args(kind)[1], f"{path}.{key}")
    elif kind is not object and type(value) is not kind:
        yield f"{path} is {value!r}, and no {kind.__name__}"

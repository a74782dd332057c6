# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Understand how a kubelet is set up: endpoint, cgroup driver, feature gates. No I/O.

Documents are KubeletConfiguration objects, already loaded from YAML.

Source: https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/;
cmd/kubelet/app/server.go: configuration file, then the *.conf files of --config-dir in lexical
order, then flags; the later one wins.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.command_line import value_of
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section, text
from ansible_collections.metal.gpu.plugins.module_utils.version import release

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.command_line import Flag

UNIT = "kubelet.service"
# Which of them a unit reads depends on who made the package.
ENVIRONMENT_FILES = (
    "/var/lib/kubelet/kubeadm-flags.env",
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
)
DEFAULT_ENDPOINT = "unix:///run/containerd/containerd.sock"
DEFAULT_ENDPOINT_SINCE = (1, 27)  # before, there was a flag, and dockershim
DEFAULT_CGROUP_DRIVER = "cgroupfs"

_JOURNAL_LINE = re.compile(r"\w{3} [ \d]\d [\d:]{8} \S+\[(?P<pid>\d+)\]: (?P<text>.*\S)")
# klog's fatal and error lines, Go's panics, cobra's refusal of the command line.
_FATAL = re.compile(r"^(?:[EF]\d{4} |panic: |Error: )|command failed|unrecognized feature gate")
# What strconv.ParseBool takes.
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


class FeatureGate(NamedTuple):
    """A gate set in one place."""

    name: str
    value: bool | None  # None: not a boolean, which the kubelet refuses
    file: str
    where: str  # "flag" or "config"
    flag: str | None  # the variable that holds the flag, else "--feature-gates"
    effective: bool  # False: written down, but not in force


def parse_gates_flag(value: str) -> dict[str, bool | None]:
    """Parse the value of --feature-gates: "A=true,B=false"."""
    pairs = (pair.partition("=") for pair in value.split(",") if pair.strip())
    return {name.strip(): _BOOLEANS.get(text.strip()) for name, dummy, text in pairs}


def parse_last_error(journal: str) -> str | None:
    """Find why the kubelet failed: its last fatal line, else the very last one.

    The journal is in the form "short". Only what the last process of the unit said counts, which
    may be another program that has to succeed before the kubelet starts.
    """
    lines = [match for match in map(_JOURNAL_LINE.match, journal.splitlines()) if match]
    said = [line["text"].strip() for line in lines if line["pid"] == lines[-1]["pid"]]
    fatal = [text for text in said if _FATAL.search(text)]
    return next(iter((fatal or said)[-1:]), None)


def feature_gates(
    flags: Iterable[Flag], documents: Iterable[tuple[str, Mapping[str, Any]]]
) -> tuple[FeatureGate, ...]:
    """List every place where a gate is set; documents are pairs of path and content."""
    gates = []
    for flag in flags:
        if flag.name == "--feature-gates":
            for name, value in parse_gates_flag(flag.value or "").items():
                holder = flag.variable or flag.name
                gates.append(FeatureGate(name, value, flag.file, "flag", holder, flag.effective))
    for path, document in documents:
        for name, given in section(document, "featureGates").items():
            value = given if isinstance(given, bool) else None
            gates.append(FeatureGate(str(name), value, path, "config", None, True))
    return tuple(gates)


def endpoint(
    flags: Sequence[Flag], documents: Iterable[Mapping[str, Any]], version: str | None
) -> str | None:
    """Return the socket of the container runtime; None where this kubelet has no default."""
    given = value_of(flags, "--container-runtime-endpoint")
    given = given or _configured("containerRuntimeEndpoint", documents)
    if given is None and version is not None and release(version) >= DEFAULT_ENDPOINT_SINCE:
        return DEFAULT_ENDPOINT
    return given


def cgroup_driver(flags: Sequence[Flag], documents: Iterable[Mapping[str, Any]]) -> str:
    given = value_of(flags, "--cgroup-driver") or _configured("cgroupDriver", documents)
    return given or DEFAULT_CGROUP_DRIVER


def node_name(flags: Sequence[Flag], hostname: str) -> str:
    """Return the name under which the kubelet registers."""
    return (value_of(flags, "--hostname-override") or hostname).strip().lower()


def _configured(key: str, documents: Iterable[Mapping[str, Any]]) -> str | None:
    values = [value for document in documents if (value := text(document, key))]
    return values[-1] if values else None

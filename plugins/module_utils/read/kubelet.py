# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse the settings of a kubelet: names, endpoint, cgroup driver, feature gates.

Documents are KubeletConfiguration objects, already loaded from YAML.

Source: https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/;
cmd/kubelet/app/server.go: configuration file, then the *.conf files of --config-dir in lexical
order, then flags; the later one wins. ITU-T X.690, section 8.1.3 (lengths) and X.520 (commonName)
for the certificate; the API server identifies a kubelet by the common name system:node:NAME.
"""

from __future__ import annotations

import base64
import re
from posixpath import dirname, join
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.mappings import section, text
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import value_of
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import Flag

UNIT = "kubelet.service"
# Which of these a unit reads depends on the distributor of the package.
ENVIRONMENT_FILES = (
    "/var/lib/kubelet/kubeadm-flags.env",
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
)
# Flags whose values this collection uses.
FLAGS = (
    *("--config", "--config-dir", "--kubeconfig", "--bootstrap-kubeconfig", "--cert-dir"),
    *("--hostname-override", "--cloud-provider", "--container-runtime-endpoint"),
    *("--cgroup-driver", "--feature-gates", "--healthz-port", "--healthz-bind-address"),
)
DEFAULT_ENDPOINT = "unix:///run/containerd/containerd.sock"
DEFAULT_ENDPOINT_SINCE = (1, 27)  # older versions have a flag and no default
DEFAULT_CGROUP_DRIVER = "cgroupfs"
# Since this version, the kubelet takes the cgroup driver that its engine reports, if it does.
ASKS_CRI_SINCE = (1, 31)
DEFAULT_KUBECONFIG = "/etc/kubernetes/kubelet.conf"
DEFAULT_CERTIFICATE_DIRECTORY = "/var/lib/kubelet/pki"
CURRENT_CERTIFICATE = "kubelet-client-current.pem"
DEFAULT_HEALTH_ADDRESS = "127.0.0.1"
DEFAULT_HEALTH_PORT = 10248

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----(?P<base64>[^-]+)-----END CERTIFICATE-----")
_CERTIFICATE_FILE = re.compile(
    r"^\s*client-certificate:\s*[\"']?(?P<path>[^\"'\s#]+)", re.MULTILINE
)
_CERTIFICATE_DATA = re.compile(
    r"^\s*client-certificate-data:\s*[\"']?(?P<base64>[\w+/=]+)", re.MULTILINE
)
# The attribute commonName, with the type and the length of its value.
_COMMON_NAME = re.compile(
    rb"\x06\x03\x55\x04\x03[\x0c\x13](?:\x81(?P<long>.)|(?P<short>[\x00-\x7f]))", re.DOTALL
)
_NODE_USER = "system:node:"
# Characters that a shell or systemd expands before it starts the kubelet.
_EXPANDED = re.compile(r"[$`%]")
# Addresses that the kubelet listens on, and the address to query instead.
_ANY_ADDRESS = {"0.0.0.0": DEFAULT_HEALTH_ADDRESS, "::": "::1"}

_JOURNAL_LINE = re.compile(r"\w{3} [ \d]\d [\d:]{8} \S+\[(?P<pid>\d+)\]: (?P<text>.*\S)")
# klog's fatal and error lines, Go's panics, cobra's errors about the command line.
_FATAL = re.compile(r"^(?:[EF]\d{4} |panic: |Error: )|command failed|unrecognized feature gate")
# The values that strconv.ParseBool accepts.
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


class Gate(TypedDict):
    """A gate set in one place."""

    name: str
    value: bool | None  # None: no boolean, so the kubelet rejects it
    file: str | None  # None: the kubelet runs with it, but no file contains it
    where: str  # `flag` or `config`
    flag: str | None  # the variable that contains the flag, else `--feature-gates`
    effective: bool  # false: it is in a file, but not used


def parse_gates_flag(value: str) -> dict[str, bool | None]:
    """Parse the value of --feature-gates: "A=true,B=false"."""
    pairs = (pair.partition("=") for pair in value.split(",") if pair.strip())
    return {name.strip(): _BOOLEANS.get(text.strip()) for name, dummy, text in pairs}


def parse_last_error(journal: str) -> str | None:
    """Return why the kubelet failed: its last fatal line, else its last line.

    The journal is in the format "short". Only the lines of the unit's last process count. That may
    be another program, which has to succeed before the kubelet starts.
    """
    lines = [match for match in map(_JOURNAL_LINE.match, journal.splitlines()) if match]
    printed = [line["text"].strip() for line in lines if line["pid"] == lines[-1]["pid"]]
    fatal = [text for text in printed if _FATAL.search(text)]
    return next(iter((fatal or printed)[-1:]), None)


def feature_gates(
    flags: Iterable[Flag], documents: Iterable[tuple[str, Mapping[str, object]]]
) -> list[Gate]:
    """List every place where a gate is set; documents are pairs of path and content."""
    in_flags = (
        (name, value, flag.file, "flag", flag.variable or flag.name, flag.effective)
        for flag in flags
        if flag.name == "--feature-gates"
        for name, value in parse_gates_flag(flag.value or "").items()
    )
    in_documents = (
        (str(name), given if isinstance(given, bool) else None, path, "config", None, True)
        for path, document in documents
        for name, given in section(document, "featureGates").items()
    )
    return [
        {
            "name": name,
            "value": value,
            "file": file,
            "where": where,
            "flag": holder,
            "effective": effective,
        }
        for name, value, file, where, holder, effective in (*in_flags, *in_documents)
    ]


def endpoint(
    flags: Sequence[Flag], documents: Iterable[Mapping[str, object]], version: str | None
) -> str | None:
    """Return the socket of the container runtime; None if unset and this kubelet has no default."""
    given = value_of(flags, "--container-runtime-endpoint")
    given = given or _configured("containerRuntimeEndpoint", documents)
    if given is None and version is not None and release(version) >= DEFAULT_ENDPOINT_SINCE:
        return DEFAULT_ENDPOINT
    return given


def socket_path(endpoint: str) -> str:
    """Return the path of a socket, in one form: /var/run is a link to /run.

    kubeadm writes unix:///var/run/containerd/containerd.sock, and containerd's own configuration
    has /run. Source: kubernetes v1.37.1, cmd/kubeadm/app/constants/constants_unix.go.
    """
    path = re.sub(r"^unix:(//)?(?=/)", "", endpoint)
    return re.sub(r"^/var/run/", "/run/", path)


def cgroup_driver(flags: Sequence[Flag], documents: Iterable[Mapping[str, object]]) -> str:
    given = value_of(flags, "--cgroup-driver") or _configured("cgroupDriver", documents)
    return given or DEFAULT_CGROUP_DRIVER


def node_name(flags: Sequence[Flag], joined: str | None, hostname: str) -> str:
    """Return the name of the node in the cluster; `joined` is the one in its certificate."""
    overridden = value_of(flags, "--hostname-override")
    own = own_name(flags, hostname) if overridden or not joined else None
    return own or joined or hostname.strip().lower()


def own_name(flags: Sequence[Flag], hostname: str) -> str | None:
    """Return the name under which the kubelet registers at its next start.

    None if a cloud provider inside the kubelet determines the name, or if a shell or systemd
    expands it.
    Source: https://kubernetes.io/docs/reference/access-authn-authz/node/
    """
    if value_of(flags, "--cloud-provider") not in (None, "", "external"):
        return None
    override = value_of(flags, "--hostname-override") or ""
    if _EXPANDED.search(override):
        return None
    return (override or hostname).strip().lower()


def certificate_file(path: str, kubeconfig: str) -> str | None:
    """Return the path of the client certificate in a kubeconfig, given its path and content."""
    match = _CERTIFICATE_FILE.search(kubeconfig)
    return join(dirname(path), match["path"]) if match else None


def joined_name(text: str) -> str | None:
    """Return the name of a node, from its client certificate as PEM or in a kubeconfig.

    None without the certificate of a node.
    """
    embedded = _CERTIFICATE_DATA.search(text)
    if embedded:
        text = _decode(embedded["base64"]).decode(errors="replace")
    match = _CERTIFICATE.search(text)
    certificate = _decode(match["base64"]) if match else b""
    names = []
    for found in _COMMON_NAME.finditer(certificate):  # of the issuer, then of the subject
        length = (found["long"] or found["short"])[0]
        name = certificate[found.end() : found.end() + length]
        if len(name) == length:
            names.append(name.decode(errors="replace"))
    subject = names[-1] if names else ""
    return subject[len(_NODE_USER) :] if subject.startswith(_NODE_USER) else None


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError:
        return b""


def health_url(flags: Sequence[Flag], documents: Sequence[Mapping[str, object]]) -> str | None:
    """Return the URL of the kubelet's health check; None if it is disabled."""
    address = value_of(flags, "--healthz-bind-address") or _configured(
        "healthzBindAddress", documents
    )
    address = address or DEFAULT_HEALTH_ADDRESS
    ports = [document["healthzPort"] for document in documents if "healthzPort" in document]
    port = str(value_of(flags, "--healthz-port") or (ports or [DEFAULT_HEALTH_PORT])[-1])
    address = _ANY_ADDRESS.get(address, address)
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}/healthz" if port != "0" else None


def _configured(key: str, documents: Iterable[Mapping[str, object]]) -> str | None:
    values = [value for document in documents if (value := text(document, key))]
    return values[-1] if values else None

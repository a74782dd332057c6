# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configuration files of engines and kubelets, collected and random, and what is changed in them.

A random file has parts that such files have, in a random order, with comments, blank lines, quotes,
indentation and line ends as people and tools write them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import settings
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import edit as documents
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.edit import Edits, Language

FOLDER = Path(__file__).parents[1] / "fixtures" / "config_files"
RUNTIME = {"path": "/usr/bin/nvidia-container-runtime", "args": []}
CRIO = {"runtime_path": "/usr/bin/nvidia-container-runtime", "runtime_type": "oci"}


class File(NamedTuple):
    name: str
    language: Language
    text: str
    edits: Edits


def collected() -> Iterator[File]:
    for path in sorted(FOLDER.glob("*/*.*")):
        # Those in YAML are named .txt, because people write what linters of this project reject.
        language: Language = documents.language_of(path.name) or (
            "yaml" if path.suffix == ".txt" else "toml"
        )
        text = path.read_bytes().decode()
        content = documents.read(text, language).content
        yield File(f"{path.parent.name}/{path.name}", language, text, edits(path, content))


def edits(path: Path, content: Any) -> Edits:
    """Return what the roles change in such a file, or for others something like it."""
    match path.parent.name:
        case "docker":
            return Edits(
                merge={
                    "default-runtime": "nvidia",
                    "runtimes": {"nvidia": RUNTIME},
                    "features": {"cdi": True},
                }
            )
        case "containerd":
            return containerd(content, "2.4.2")
        case "crio":
            table = {"default_runtime": "nvidia", "runtimes": {"nvidia": CRIO}}
            return Edits(merge={"crio": {"runtime": table}})
        case "kubelet":
            return Edits(remove=(("featureGates", "DevicePlugins"),), merge={"registerNode": True})
    if path.suffix == ".conf":
        if "registries" in content:  # version 1
            return Edits(merge={"registries": {"block": {"registries": ["new.example.org"]}}})
        return Edits(
            merge={"short-name-mode": "enforcing", "aliases": {"new": "new.example.org/new"}}
        )
    if path.suffix == ".toml":
        return Edits(merge={"host": {"https://new.example.org": {"capabilities": ["pull"]}}})
    return Edits(merge={"mirrors": {"new.example.org": {"endpoint": ["https://x.example.org"]}}})


def containerd(content: Any, version: str) -> Edits:
    table = settings.cri_plugin(content.get("version"), version, list(content.get("plugins", {})))
    keys = settings.runtime_keys(
        table,
        systemd_cgroup=True,
        default="nvidia",
        enable_cdi=version.startswith("1."),
        keep_runc=None,
        base_runtime_spec="/etc/containerd/cri-base.json",
    )
    disabled = documents.ListEdit(("disabled_plugins",), ["cri"])
    return Edits(merge=keys, discard=(disabled,))


def generated(seed: int) -> File:
    """Return a random file; the kinds take turns."""
    chance = random.Random(seed)
    path = KINDS[seed % len(KINDS)]
    kind = path.parent.name
    language: Language = "toml" if path.suffix == ".conf" else documents.language_of(path.name)
    text = _WRITERS[path](chance)
    if chance.random() < 0.1:
        text = text.rstrip("\n")
    if chance.random() < 0.1:
        text = text.replace("\n", "\r\n")
    if chance.random() < 0.05:
        text = documents.BYTE_ORDER_MARK + text
    content = documents.read(text, language).content
    wanted = edits(path, content)
    if kind == "containerd" and content.get("version", 1) < 3 and chance.random() < 0.5:
        wanted = containerd(content, "1.7.24")
    return File(f"{kind}-{seed}", language, text, wanted)


def _some(chance: random.Random, parts: list[Any], *, least: int = 0) -> list[Any]:
    return chance.sample(parts, chance.randint(least, len(parts)))


def _docker(chance: random.Random) -> str:
    runtimes: dict[str, Any] = {"kata": {"runtimeType": "io.containerd.kata.v2"}}
    if chance.random() < 0.5:
        name = chance.choice(("nvidia-container-runtime", "/usr/bin/nvidia-container-runtime"))
        arguments = chance.choice(("args", "runtimeArgs"))
        runtimes["nvidia"] = {"path": name, arguments: []}
    parts: list[tuple[str, Any]] = [
        ("log-driver", chance.choice(("json-file", "journald"))),
        ("log-opts", {"max-size": "100m", "max-file": "3"}),
        ("exec-opts", ["native.cgroupdriver=systemd"]),
        ("data-root", chance.choice(("/data/docker", "/mnt/nvme\u00e9"))),
        ("registry-mirrors", ["https://a.example.org", "https://b.example.org"]),
        ("default-address-pools", [{"base": "172.27.0.0/16", "size": 24}]),
        ("features", {"containerd-snapshotter": True}),
        ("runtimes", runtimes),
        ("default-runtime", chance.choice(("runc", "nvidia"))),
        ("live-restore", True),
        ("default-ulimits", {"memlock": {"Name": "memlock", "Hard": -1, "Soft": -1}}),
    ]
    indent = chance.choice((None, 1, 2, 4, "\t"))
    content = dict(_some(chance, parts))
    return json.dumps(content, indent=indent, ensure_ascii=chance.random() < 0.5) + "\n"


def _toml(chance: random.Random, tables: list[tuple[str, list[str]]]) -> str:
    """Write tables with comments and indentation."""
    text = ""
    unit = chance.choice(("", "  "))
    for number, (header, lines) in enumerate(tables):
        indent = unit * header.count(".") if header else ""
        if chance.random() < 0.3:
            text += f"{indent}# about {number}: {header or 'the file'}\n"
        text += f"{indent}[{header}]\n" if header else ""
        for line in lines:
            if chance.random() < 0.15:
                text += f"{indent}{unit}# why {number}\n"
            comment = chance.choice(("", "", f"  # c{number}"))
            text += f"{indent}{unit if header else ''}{line}{comment}\n"
        text += chance.choice(("", "\n"))
    return text


def _containerd(chance: random.Random) -> str:
    version = chance.choice((None, 1, 2, 2, 3, 3, 4))
    quote = chance.choice(("'", '"'))
    names = {1: "cri", 2: "io.containerd.grpc.v1.cri"}
    name = names.get(version or 1, "io.containerd.cri.v1.runtime")
    plugin = f"plugins.{name}" if name == "cri" else f"plugins.{quote}{name}{quote}"
    images = f"plugins.{quote}io.containerd.cri.v1.images{quote}"
    top = [f"version = {version}"] if version else []
    top += _some(
        chance,
        [
            'root = "/var/lib/containerd"',
            "oom_score = -999",
            'imports = ["/etc/containerd/conf.d/*.toml"]',
            f"disabled_plugins = [{chance.choice(('', quote + 'cri' + quote))}]",
            "required_plugins = []",
        ],
    )
    tables = [
        (plugin, [f"max_container_log_line_size = {chance.choice(('16384', '0x8000', '32_768'))}"]),
        (f"{plugin}.cni", ['bin_dir = "/opt/cni/bin"', "conf_dir = '/etc/cni/net.d'"]),
        (
            f"{plugin}.containerd.runtimes.runc",
            ['runtime_type = "io.containerd.runc.v2"', 'runtime_engine = ""'],
        ),
        (f"{plugin}.containerd.runtimes.runc.options", ["SystemdCgroup = true"]),
        (
            f"{plugin}.containerd.runtimes.kata",
            ["privileged_without_host_devices = true", 'pod_annotations = ["io.katacontainers.*"]'],
        ),
        (f"{images}.pinned_images", ['sandbox = "registry.k8s.io/pause:3.10"']),
        (f"{images}.registry", ['config_path = "/etc/containerd/certs.d"']),
        (
            f"{images}.registry.configs.{quote}r.example.org{quote}.auth",
            ["password = 'a#b'", 'username = "r"'],
        ),
        ("grpc", ["max_recv_message_size = 16777216", "address = '/run/containerd.sock'"]),
        ("debug", ['level = "info"']),
        ("metrics", ["address = '127.0.0.1:1338'", "grpc_histogram = false"]),
        (
            f"proxy_plugins.{quote}stargz{quote}",
            ['type = "snapshot"', "exports = {root = '/var/x'}"],
        ),
        (
            'stream_processors."io.containerd.ocicrypt.decoder.v1.tar"',
            ["accepts = [\n  'a+encrypted', # one\n  'b+encrypted'\n]", 'path = "ctd-decoder"'],
        ),
        ("timeouts", ["'io.containerd.timeout.shim.load' = \"5s\""]),
    ]
    return _toml(chance, [("", top), *_some(chance, tables)])


def _crio(chance: random.Random) -> str:
    tables = [
        ("crio", ['root = "/var/lib/containers/storage"']),
        ("crio.api", ['listen = "/var/run/crio/crio.sock"']),
        ("crio.runtime", ["conmon_cgroup = 'pod'", "pids_limit = 0", 'hooks_dir = ["/a", "/b"]']),
        (
            "crio.runtime.runtimes.crun",
            [
                'runtime_path = "/usr/libexec/crio/crun"',
                'monitor_path = "/usr/libexec/crio/conmon"',
                'allowed_annotations = [\n    "io.containers.trace-syscall", # for all\n]',
            ],
        ),
        ("crio.runtime.runtimes.runc", ['runtime_path = "/usr/bin/runc"']),
        ("crio.image", ['pause_image = "registry.k8s.io/pause:3.10"']),
        ("crio.metrics", ["enable_metrics = true", "metrics_port = 9_090"]),
    ]
    return _toml(chance, _some(chance, tables))


def _yaml(chance: random.Random, parts: list[str]) -> str:
    text = chance.choice(("", "---\n", "# by hand\n"))
    for number, part in enumerate(_some(chance, parts, least=1)):
        text += chance.choice(("", "\n")) if number else ""
        text += chance.choice(("", f"# about {number}\n"))
        text += f"{part}\n"
    return text


def _kubelet(chance: random.Random) -> str:
    gates = [
        f"{name}: {value}{chance.choice(('', '  # gate'))}"
        for name, value in _some(
            chance, [("DevicePlugins", "true"), ("GracefulNodeShutdown", "yes"), ("'X.Y'", "no")]
        )
    ]
    indent = chance.choice(("  ", "    "))
    block = "featureGates:" + "".join(f"\n{indent}{gate}" for gate in gates)
    parts = [
        "apiVersion: kubelet.config.k8s.io/v1beta1",
        "kind: KubeletConfiguration   # aligned",
        "clusterDNS:\n- 10.96.0.10  # first\n- '10.96.0.11'",
        "evictionHard: {memory.available: 500Mi, nodefs.available: '10%'}",
        "authentication:\n  anonymous:\n    enabled: false\n  # tokens\n  webhook: {enabled: true}",
        "maxPods: 0xfa",
        "tlsCipherSuites:\n    - A\n    - B",
        block if gates else "featureGates: {}",
        "reservedMemory:\n- numaNode: 0\n  limits:\n    memory: 1Gi",
    ]
    return _yaml(chance, parts)


def _registries(chance: random.Random) -> str:
    parts = [
        'mirrors:\n  docker.io:\n    endpoint:\n      - "https://a.example.org"  # in house\n'
        "  '*': {endpoint: [http://10.0.0.5:5000]}",
        "configs:\n  a.example.org:\n    auth: {username: r, password: 'a: b # c'}\n"
        "    tls:\n      insecure_skip_verify: on",
    ]
    return _yaml(chance, parts)


def _hosts(chance: random.Random) -> str:
    """Write a hosts.toml of containerd."""
    quote = chance.choice(("'", '"'))
    first, second = (f"host.{quote}https://{name}.example.org{quote}" for name in "ab")
    tables = [
        (first, ['capabilities = ["pull", "resolve"]', "skip_verify = false"]),
        (f"{first}.header", ['authorization = "Basic YTpiI2M="', 'x-many = ["a", "b#"]']),
        (second, ["override_path = true", 'ca = ["/etc/a.pem", # old\n  "/etc/b.pem"]']),
    ]
    top = _some(chance, ['server = "https://docker.io"', 'client = [["/a.cert", "/a.key"]]'])
    return _toml(chance, [("", top), *_some(chance, tables)])


def _containers(chance: random.Random) -> str:
    """Write a registries.conf, which CRI-O reads."""
    if chance.random() < 0.2:
        kinds = _some(chance, ["search", "insecure", "block"], least=1)
        lines = ["registries = ['a.example.org', \"b.example.org:5000\"]"]
        return _toml(chance, [(f"registries.{kind}", lines) for kind in kinds])
    top = _some(
        chance,
        [
            'unqualified-search-registries = ["a.example.org", "docker.io"]',
            "short-name-mode = 'permissive'",
            "credential-helpers = []",
        ],
    )
    tables: list[tuple[str, list[str]]] = []
    for number in range(chance.randint(0, 3)):
        tables.append(("[registry]", [f"location = 'r{number}.example.org'", "insecure = true"]))
        mirror = [f'location = "m{number}.example.org:5000/x#y"']
        tables += [("[registry.mirror]", mirror)] * chance.randint(0, 2)
    if chance.random() < 0.5:
        tables.append(("aliases", ['"a/b" = "r.example.org/a/b"', "c = 'r.example.org/c'"]))
    return _toml(chance, [("", top), *tables])


_WRITERS = {
    Path("docker", "daemon.json"): _docker,
    Path("containerd", "config.toml"): _containerd,
    Path("crio", "crio.conf"): _crio,
    Path("kubelet", "config.yaml"): _kubelet,
    Path("registries", "registries.yaml"): _registries,
    Path("registries", "hosts.toml"): _hosts,
    Path("registries", "registries.conf"): _containers,
}
KINDS = tuple(_WRITERS)

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn the raw data of a node into the observation `gpu_node`. No I/O.

This module loads TOML and YAML. The libraries in module_utils also run on the node, so they take
loaded documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils import mappings
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    cdi,
    containerd,
    crio,
    docker,
    document_history_files,
    kubelet,
    nvidia_driver,
    nvidia_smi,
    packages,
    systemd,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import Flag, value_of
from ansible_collections.metal.gpu.plugins.module_utils.read.os_release import parse_os_release
from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output, failure_text
from ansible_collections.metal.gpu.plugins.module_utils.read.version import (
    parse_version,
    upstream_version,
)
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact_all
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import history as document_history
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.edit import BYTE_ORDER_MARK
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.load import (
    Document,
    load_json,
    load_toml,
    load_yaml,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    ObservedRepository,
)

# containerd 2 (go-toml 2) reads the first byte of the mark as a key. containerd 1 skips the mark.
# Source: LoadConfig of containerd v2.1.4 and `containerd config dump` of 1.6.20, run.
_MARK_AS_READ = "invalid character at start of key: \u00ef"
_MARK_REFUSED = (
    "{path}, line 1, column 1: the file starts with a byte order mark, which this containerd "
    r"rejects. Remove it: sed -i '1s/^\xEF\xBB\xBF//' {path}"
)
_SECURE_BOOT_FLAG = 4  # an EFI variable starts with four bytes of attributes


class Raw:
    """The raw data of the module, with helpers for several parts."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.asked: Mapping[str, list[str]] = raw["asked"]
        self.architecture: str = raw["architecture"]
        self.pci: list[dict[str, Any]] = raw["pci"]
        self.device_files: list[dict[str, Any]] = raw["device_files"]
        self.device_users: list[dict[str, Any]] | None = raw["device_users"]
        self.package_manager: dict[str, Any] = raw["package_manager"]
        self.package_sources: list[dict[str, str]] = raw["package_sources"]
        self.paths: Mapping[str, bool] = raw["paths"]
        self.found: Mapping[str, list[str]] = raw["found"]
        self.module_files: list[str] = raw["module_files"]
        self.modified: Mapping[str, float] = raw["modified"]
        self.clock: Mapping[str, float] = raw["clock"]
        self.texts: Mapping[str, str] = raw["texts"]
        self.errors: Mapping[str, str] = raw["errors"]
        self.outputs = {name: Output(**output) for name, output in raw["outputs"].items()}
        self.programs: Mapping[str, str | None] = raw["programs"]
        self.services: Mapping[str, Mapping[str, Any]] = raw["services"]
        self.program_files: Mapping[str, dict[str, Any]] = raw["program_files"]
        self.libraries: dict[str, str | None] = raw["libraries"]
        self.own_files: list[str] = raw["own_files"]
        self.joined_name: str | None = raw["joined_name"]
        self.units: Mapping[str, Mapping[str, str]] = raw["units"]
        self.packages = packages.parse_packages(self.stdout("packages"), self.architecture)
        self.unfinished = packages.parse_unfinished(self.stdout("packages"), self.architecture)
        if any(package.held is None for package in self.packages.values()):
            locks = self.texts.get(packages.VERSION_LOCKS, "")
            self.packages = packages.with_locks(self.packages, locks)

    def stdout(self, name: str) -> str:
        return self.outputs[name].stdout if name in self.outputs else ""

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of a program; None if it timed out or was not run."""
        return self.outputs[name].rc if name in self.outputs else None

    def text(self, path: str) -> str | None:
        """Return the stripped text of a file; None if it is absent or empty."""
        return self.texts.get(path, "").strip() or None

    def find(self, *patterns: str) -> list[str]:
        """Return the paths of the texts that match a pattern, sorted."""
        return sorted(
            path for path in self.texts for pattern in patterns if fnmatchcase(path, pattern)
        )

    def unread(self, *patterns: str) -> list[str]:
        """Return the paths of unreadable files that match a pattern, sorted."""
        return sorted(
            path for path in self.errors if any(fnmatchcase(path, one) for one in patterns)
        )

    def is_active(self, unit: str) -> bool | None:
        """Tell whether a unit runs; None if systemd does not report its state."""
        state = self.units.get(unit, {}).get("ActiveState")
        return state == "active" if state else None

    def needs_reload(self, unit: str) -> bool:
        """Tell whether the files of a unit changed since systemd read them."""
        return self.units.get(unit, {}).get("NeedDaemonReload") == "yes"

    def is_enabled(self, unit: str) -> bool:
        return self.units.get(unit, {}).get("UnitFileState") in systemd.ENABLED

    def started(self, unit: str) -> float | None:
        """Return when a unit was started, in seconds of the epoch; None if it is not active."""
        active_s = systemd.seconds_active(self.units.get(unit, {}), self.clock["uptime"])
        return None if active_s is None else self.clock["now"] - active_s

    def in_force(self, unit: str) -> tuple[Flag, ...]:
        """Return the flags that a service runs with, or would start with."""
        return tuple(Flag(**flag) for flag in self.services[unit]["in_force"])

    def program(self, unit: str, name: str, output: str) -> dict[str, Any]:
        """Return whether a service's program is installed and runs, and its version."""
        is_active = self.is_active(unit)
        path = self.programs[name]
        version, error = parse_version(self.stdout(output)), None
        if version is None and output in self.outputs:
            answer = self.outputs[output]
            printed = " ".join(f"{answer.stdout} {answer.stderr}".split())
            nothing = "timeout" if answer.rc is None else f"exit code {answer.rc}"
            error = printed or f"nothing ({nothing})"
        elif version is None and is_active:
            error = f"nothing, because the program that {unit} runs cannot be found"
        # A running program is installed, even if its file is unknown.
        installed = path is not None or bool(is_active)
        return {
            "installed": installed,
            "path": path,
            "version": version,
            "version_error": error,
            "running": installed and is_active,
        }

    def versions(self, belongs: Callable[[str], bool]) -> dict[str, str]:
        return {name: package.version for name, package in self.packages.items() if belongs(name)}


class KubeletSetup(NamedTuple):
    """The flags and configuration files of a kubelet."""

    flags: tuple[Flag, ...]  # in force
    path: str | None  # of --config
    config: Document
    directory: str | None  # of --config-dir
    dropins: Mapping[str, Document]  # keyed by path, in the order of reading

    @property
    def documents(self) -> dict[str, Mapping[str, Any]]:
        """All configuration, keyed by path; later documents win."""
        own = {self.path: self.config.content} if self.path else {}
        return {**own, **{path: document.content for path, document in self.dropins.items()}}


def interpret(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return `gpu_node`, as the documentation of metal.gpu.node_info describes it."""
    node = Raw(raw)
    setup = _kubelet_setup(node)
    observed = {
        "os": _os(node),
        "hostname": node.text("/proc/sys/kernel/hostname"),
        "boot_id": node.text("/proc/sys/kernel/random/boot_id"),
        "init": "systemd" if node.paths["systemd"] else "other",
        "systemd": _systemd(node),
        "kernel": {
            "release": node.text("/proc/sys/kernel/osrelease"),
            "headers": node.paths["headers"],
            "modules": [path.split("/")[3] for path in node.find("/sys/module/*/initstate")],
        },
        "secure_boot": _secure_boot(node),
        "pci": [_row(device) for device in node.pci],
        "driver": _driver(node),
        "nvml": _nvml(node),
        "device_files": node.device_files,
        "device_users": node.device_users,
        "toolkit": _toolkit(node),
        "cdi": _cdi(node),
        "engines": {
            "containerd": _containerd(node),
            "docker": _docker(node),
            "crio": _crio(node),
        },
        "kubelet": _kubelet(node, setup),
        "cgroup": _cgroup(node, setup),
        "packages": {
            name: package._asdict()
            for name, package in node.packages.items()
            if any(fnmatchcase(name, pattern) for pattern in node.asked["packages"])
        },
        "repositories": _repositories(node),
        "package_sources": node.package_sources,
        "module_streams": _module_streams(node),
        "ours": _ours(node),
        "package_manager": {
            **node.package_manager,
            "error": packages.query_error(node.outputs.get("packages"))
            or node.package_manager["error"],
            "unfinished": {name: one._asdict() for name, one in node.unfinished.items()},
        },
        "reboot_required": node.paths["reboot_required"],
    }
    # Addresses of repositories are compared, and `repositories` has sealed their credentials.
    return {
        key: value if key == "repositories" else redact_all(value)
        for key, value in observed.items()
    }


def _os(node: Raw) -> dict[str, Any]:
    text = node.texts.get("/etc/os-release") or node.texts.get("/usr/lib/os-release", "")
    return {**parse_os_release(text)._asdict(), "architecture": node.architecture}


def _systemd(node: Raw) -> dict[str, Any]:
    """Return the units whose state is unknown, and why; no units if the node has no systemd."""
    asked = node.asked["units"] if node.paths["systemd"] else []
    unknown = [unit for unit in asked if node.is_active(unit) is None]
    error = failure_text(node.outputs.get("systemctl"), "systemctl")
    return {"unknown": unknown, "error": error if unknown else None}


def _secure_boot(node: Raw) -> bool | None:
    for path in node.find("/sys/firmware/efi/efivars/SecureBoot-*"):
        return node.texts[path][_SECURE_BOOT_FLAG:] == "\x01"
    return None


def _driver(node: Raw) -> dict[str, Any]:
    loaded = nvidia_driver.parse_loaded_module(node.texts.get("/proc/driver/nvidia/version", ""))
    module_version = node.text("/sys/module/nvidia/version")
    return {
        "packages": node.versions(nvidia_driver.is_driver_package),
        "module_version": module_version or (loaded.version if loaded else None),
        "disk_version": node.stdout("module").strip() or None,
        "module_files": node.module_files,
        "flavour": loaded.flavour if loaded else None,
        "nouveau_blacklisted": any(
            nvidia_driver.is_nouveau_blocked(node.texts[path])
            for path in node.find("*/modprobe.d/*.conf")
        ),
        "initramfs_outdated": _is_initramfs_outdated(node),
        "modules_load": [
            name
            for path in node.find("*/modules-load.d/*.conf")
            for name in nvidia_driver.parse_modules_load(node.texts[path])
        ],
        "programs": node.program_files["driver"],
        "libraries": node.libraries,
        "persistenced": _unit(node, "nvidia-persistenced.service"),
        "dkms": _dkms(node),
    }


def _dkms(node: Raw) -> dict[str, Any]:
    """Tell whether DKMS built the module for the running kernel; None: it has no source."""
    release = node.text("/proc/sys/kernel/osrelease")
    names = ("dkms_sources", "dkms_modules", "dkms_logs")
    paths = [path for name in names for path in node.found[name]]
    return nvidia_driver.parse_dkms(paths, release)._asdict()


def _is_initramfs_outdated(node: Raw) -> bool | None:
    """Tell whether a file about nouveau is newer than the running kernel's initramfs."""
    release = node.text("/proc/sys/kernel/osrelease")
    paths = [path.format(release=release) for path in nvidia_driver.INITIAL_RAMDISKS]
    built = [node.modified[path] for path in paths if path in node.modified]
    if not built:
        return None
    written = [node.modified[path] for path in node.find("*/modprobe.d/*.conf")]
    # A time in the future shows only that a clock was wrong.
    past = [modified for modified in written if modified <= node.clock["now"]]
    return max(past, default=0.0) > min(built)


def _nvml(node: Raw) -> dict[str, Any]:
    answer = nvidia_smi.NOT_INSTALLED
    if "nvidia_smi" in node.outputs:
        answer = nvidia_smi.parse_answer(*node.outputs["nvidia_smi"])
    information = {
        PurePosixPath(path).parent.name.lower(): node.texts[path]
        for path in node.find("/proc/driver/nvidia/gpus/*/information")
    }
    slots = [gpu["address"] for gpu in node.pci]
    devices = nvidia_smi.place(
        answer.devices,
        node.stdout("nvidia_smi_list"),
        {address: nvidia_driver.parse_uuid(text) for address, text in information.items()},
        slots,
    )
    minors = {address: nvidia_driver.parse_minor(text) for address, text in information.items()}
    rows = [
        {**_row(device._asdict()), "minor": minors.get(device.pci_address or "")}
        for device in devices
    ]
    versions = [version for row in rows if (version := row.pop("driver_version"))]
    return {
        "driver_version": versions[0] if versions else None,
        "complete": answer.is_whole and {*slots} <= {device.pci_address for device in devices},
        "devices": rows,
        "failure": answer.failure._asdict() if answer.failure else None,
    }


def _toolkit(node: Raw) -> dict[str, Any]:
    versions = node.versions(nvidia_driver.is_toolkit_package)
    # A program that was built without a version prints "unknown".
    packaged = versions.get("nvidia-container-toolkit-base") or versions.get(
        "nvidia-container-toolkit"
    )
    return {
        "packages": versions,
        "version": parse_version(node.stdout("toolkit"))
        or (upstream_version(packaged) if packaged else None),
        "programs": node.program_files["toolkit"],
        "cdi_refresh": _unit(node, "nvidia-cdi-refresh.path"),
        "cdi_skipped": node.units.get("nvidia-cdi-refresh.service", {}).get("Result")
        == "exec-condition",
        "config": next(iter(node.found["toolkit_config"]), None),
        "config_sha256": _sha256(node.texts.get(nvidia_driver.TOOLKIT_CONFIG)),
        "char_dev_rules": [
            path
            for path in node.find("*/udev/rules.d/*.rules")
            if any(
                "create-dev-char-symlinks" in line and not line.lstrip().startswith("#")
                for line in node.texts[path].splitlines()
            )
        ],
    }


def _cdi(node: Raw) -> dict[str, Any]:
    patterns = [f"{directory}/*" for directory in cdi.DIRECTORIES]
    files = node.find(*patterns)
    # YAML is a superset of JSON as far as these files go.
    documents = {path: load_yaml(path, node.texts[path]) for path in files}
    devices = [
        name for document in documents.values() for name in cdi.parse_devices(document.content)
    ]
    return {
        "spec_files": files,
        "kinds": {path: cdi.parse_kind(document.content) for path, document in documents.items()},
        "errors": {
            **{path: document.error for path, document in documents.items() if document.error},
            **{path: _read_error(node, path) for path in node.unread(*patterns)},
        },
        "devices": list(dict.fromkeys(devices)),
    }


def _containerd(node: Raw) -> dict[str, Any]:
    named = value_of(node.in_force(containerd.UNIT), *containerd.CONFIG_FLAGS)
    path = named or containerd.DEFAULT_CONFIG
    text = node.texts.get(path, "")
    own = load_toml(path, text)
    program = node.program(containerd.UNIT, "containerd", "containerd")
    version = program["version"]
    dump = node.outputs.get("containerd_dump")
    error, obstacle = _read_error(node, path) or own.error, own.obstacle
    imported = containerd.mentioned_files(path, text)
    effective = None
    has_file = named or _exists(node, path) is not False  # the module runs the same command
    command = f"containerd config {'dump' if has_file else 'default'}"
    if dump and dump.rc == 0 and version:
        merged = load_toml(command, dump.stdout)
        effective = containerd.parse_effective(merged.content, version)
        # A file that containerd accepts is valid, even if it is not strict TOML.
        error, obstacle = _read_error(node, path), own.error or own.obstacle
    elif dump and not error:
        error = containerd.parse_refusal(dump.stderr)
        if text.startswith(BYTE_ORDER_MARK) and _MARK_AS_READ in dump.stderr:
            error = _MARK_REFUSED.format(path=path)
    return {
        **program,
        "socket": effective.socket if effective else None,
        "runc": node.program_files["containerd"]["runc"],
        "config": {
            "path": path,
            "exists": _exists(node, path),
            "version": mappings.number(own.content, "version"),
            "imports": mappings.texts(own.content, "imports"),
            "imported_cri": [
                name
                for name in node.find(*imported)
                if containerd.has_cri(load_toml(name, node.texts[name]).content)
            ],
            "text_sha256": _sha256(node.texts.get(path)),
            "error": error,
            "obstacle": obstacle,
            "source": command if effective else None,
        },
        "needs_reload": node.needs_reload(containerd.UNIT),
        "changed_since_start": _changed_since_start(node, containerd.UNIT, [path, *imported]),
        "cri_enabled": effective.cri_enabled if effective else None,
        "cdi_enabled": effective.cdi_enabled if effective else None,
        "default_runtime": effective.default_runtime if effective else None,
        "runtimes": _runtimes(effective.runtimes if effective else {}),
    }


def _docker(node: Raw) -> dict[str, Any]:
    flags = node.in_force(docker.UNIT)
    path = value_of(flags, *docker.CONFIG_FLAGS) or docker.DEFAULT_CONFIG
    document = load_json(path, node.texts.get(path, ""))
    program = node.program(docker.UNIT, "dockerd", "docker")
    version, installed = program["version"], program["installed"]
    info = docker.parse_info(node.stdout("docker_info"))
    error = _read_error(node, path) or document.error
    effective, source = None, None
    written = docker.effective_from_file(document.content, version or "0")
    if info:
        effective, source = docker.effective_from_info(info), "docker info"
    elif version:
        # Without a valid file, these are the engine's defaults.
        source = path if _exists(node, path) and not error else None
        effective = written
    return {
        **program,
        "server_version": parse_version(info["ServerVersion"]) if info else None,
        "client_path": node.programs["docker"],
        "client_version": parse_version(node.stdout("docker_client")),
        "running": installed and (bool(info) or program["running"]),
        "answers": bool(info) and node.exit_code("docker_ps") == 0,
        "enabled": node.is_enabled(docker.UNIT),
        "needs_reload": node.needs_reload(docker.UNIT),
        "changed_since_start": _changed_since_start(node, docker.UNIT, [docker.GPU_HOOK]),
        "program": _starter(node, docker.UNIT),
        "flags_source": node.services[docker.UNIT]["source"],
        "flags": node.services[docker.UNIT]["flags"],
        "config": {
            "path": path,
            "exists": _exists(node, path),
            "error": error,
            "obstacle": document.obstacle,
            "source": source,
            "keys": list(document.content),
            "default_runtime": mappings.text(document.content, "default-runtime"),
            "runtimes": _runtimes(written.runtimes),
            "cdi_enabled": written.cdi_enabled if version else None,
        },
        "default_runtime": effective.default_runtime if effective else None,
        "runtimes": _runtimes(effective.runtimes if effective else {}),
        "live_restore": docker.live_restore(document.content, info) if installed else None,
        "data_root": docker.data_root(document.content, flags, info) if installed else None,
        "containers": _running_containers(node),
        "made_with": _made_with(node),
        "interrupted": _interrupted_containers(node, answers=bool(info)),
        "record_error": _read_error(node, docker.RECORD) or _record(node).error,
        "purge_script": next(iter(node.found["docker_purge_script"]), None),
        "group": docker.parse_group(node.stdout("docker_group")),
        "snap": node.found["docker_snap"],
        "rootless": node.found["docker_rootless"],
        "cri_dockerd": _cri_dockerd(node),
        "v1": _docker_v1(node),
        "cgroup_driver": effective.cgroup_driver if effective else None,
        "cdi_enabled": effective.cdi_enabled if effective else None,
    }


def _starter(node: Raw, unit: str) -> dict[str, str] | None:
    """Return the program that a unit starts, and the file that sets it."""
    service = node.services[unit]
    if service["starter"] is None:
        return None
    return {"path": service["starter"], "file": service["starter_file"]}


def _running_containers(node: Raw) -> list[dict[str, Any]]:
    configs = docker.parse_host_configs(node.stdout("docker_host_config"))
    noted = _noted_containers(node)
    return [
        {
            "id": container.id,
            "name": container.name,
            "of_pod": container.is_of_pod,
            "ephemeral": container.id in configs and configs[container.id].ephemeral,
            "noted": container.id in noted,
        }
        for container in docker.parse_ps(node.stdout("docker_ps"))
        if container.running
    ]


def _made_with(node: Raw) -> dict[str, list[str]]:
    names = {one.id: one.name for one in docker.parse_ps(node.stdout("docker_ps"))}
    found: dict[str, list[str]] = {}
    for key, config in docker.parse_host_configs(node.stdout("docker_host_config")).items():
        found.setdefault(config.runtime, []).append(names[key])
    return found


def _interrupted_containers(node: Raw, *, answers: bool) -> list[dict[str, str]]:
    """Return the recorded containers that are stopped; all if Docker does not answer."""
    noted = _noted_containers(node)
    stopped = [one.id for one in docker.parse_ps(node.stdout("docker_ps")) if not one.running]
    return [
        {"id": key, "name": name} for key, name in noted.items() if key in stopped or not answers
    ]


def _noted_containers(node: Raw) -> dict[str, str]:
    """Return the names of the containers that ran before the replacement of Docker, by id."""
    noted = _record(node).content
    return {key: name for key, name in noted.items() if isinstance(name, str)}


def _record(node: Raw) -> Document:
    return load_json(docker.RECORD, node.texts.get(docker.RECORD, ""))


def _cri_dockerd(node: Raw) -> dict[str, Any]:
    # "/run/cri-dockerd.sock (Stream)"
    socket = node.units.get(docker.CRI_SOCKET, {}).get("Listen", "").partition(" ")[0]
    program = node.program(docker.CRI_UNIT, "cri-dockerd", "cri_dockerd")
    return {
        **{key: program[key] for key in ("installed", "version", "running")},
        "enabled": node.is_enabled(docker.CRI_UNIT),
        "socket": socket or None,
    }


def _docker_v1(node: Raw) -> dict[str, Any]:
    volumes = node.stdout("docker_v1_volumes").split()
    containers = docker.users_of(docker.parse_ps(node.stdout("docker_ps")), volumes)
    return {
        "unit": node.units.get(docker.V1_UNIT, {}).get("LoadState") == "loaded",
        "volumes": volumes,
        "containers": [{"id": one.id, "name": one.name} for one in containers],
    }


def _crio(node: Raw) -> dict[str, Any]:
    path = crio.CONFIG_PATTERNS[0]
    files = {file: load_toml(file, node.texts[file]) for file in node.find(*crio.CONFIG_PATTERNS)}
    errors = [_read_error(node, file) for file in node.unread(*crio.CONFIG_PATTERNS)]
    errors += [document.error for document in files.values() if document.error]
    answer = node.outputs.get("crio_config")
    if answer and answer.rc == 0:
        documents = {"crio status config": load_toml("crio status config", answer.stdout)}
    else:
        documents = {file: document for file, document in files.items() if not document.error}
    effective = crio.parse_effective(document.content for document in documents.values())
    program = node.program(crio.UNIT, "crio", "crio")
    return {
        **{key: program[key] for key in ("installed", "version", "running")},
        "config": {
            "path": path,
            "exists": _exists(node, path),
            "error": errors[0] if errors else None,
            "source": ", ".join(documents) or None,
        },
        "default_runtime": effective.default_runtime,
        "runtimes": _runtimes(effective.runtimes),
    }


def _kubelet_setup(node: Raw) -> KubeletSetup:
    flags = node.in_force(kubelet.UNIT)
    path, directory = value_of(flags, "--config"), value_of(flags, "--config-dir")
    return KubeletSetup(
        flags=flags,
        path=path,
        config=load_yaml(path, node.texts.get(path, "")) if path else Document({}, None),
        directory=directory,
        dropins=_dropins(node, directory) if directory else {},
    )


def _dropins(node: Raw, directory: str) -> dict[str, Document]:
    pattern = f"{directory}/*.conf"
    read = {path: load_yaml(path, node.texts[path]) for path in node.find(pattern)}
    errors = {path: Document({}, _read_error(node, path)) for path in node.unread(pattern)}
    return dict(sorted({**read, **errors}.items()))


def _kubelet(node: Raw, setup: KubeletSetup) -> dict[str, Any]:
    program = node.program(kubelet.UNIT, "kubelet", "kubelet")
    service = node.services[kubelet.UNIT]
    places = [Flag(**flag) for flag in service["flags"]]
    state = node.units.get(kubelet.UNIT, {})
    gates = kubelet.feature_gates(places, setup.documents.items())
    hostname = node.text("/proc/sys/kernel/hostname") or ""
    joined = node.joined_name
    return {
        **program,
        "unit_state": {
            "active": state.get("ActiveState"),
            "sub": state.get("SubState"),
            "result": state.get("Result"),
        },
        "distribution": kubelet.distribution(node.units, has_kubelet=program["installed"]),
        "node_name": kubelet.node_name(setup.flags, joined, hostname),
        "own_name": kubelet.own_name(setup.flags, hostname),
        "joined_name": joined,
        "flags_source": service["source"],
        "flags": service["flags"],
        "config": {
            "path": setup.path,
            "exists": _exists(node, setup.path),
            "error": _read_error(node, setup.path) or setup.config.error,
            "obstacle": setup.config.obstacle,
        },
        "health_url": kubelet.health_url(setup.flags, list(setup.documents.values())),
        "config_dir": {
            "path": setup.directory,
            "files": [
                {"path": path, "error": document.error, "obstacle": document.obstacle}
                for path, document in setup.dropins.items()
            ],
        },
        "feature_gates": [gate._asdict() for gate in gates],
        "endpoint": kubelet.endpoint(setup.flags, setup.documents.values(), program["version"]),
        "last_error": None
        if state.get("Result") == "success"
        else kubelet.parse_last_error(node.stdout("journal")),
        "needs_reload": node.needs_reload(kubelet.UNIT),
        "changed_since_start": _changed_since_start(
            node,
            kubelet.UNIT,
            [*(place.file for place in places if place.file), *setup.documents],
        ),
    }


def _cgroup(node: Raw, setup: KubeletSetup) -> dict[str, Any]:
    version = None
    if node.paths["cgroup"]:
        version = 2 if node.paths["cgroup_v2"] else 1
    driver = None
    if node.programs["kubelet"]:
        driver = kubelet.cgroup_driver(setup.flags, setup.documents.values())
    return {"version": version, "driver": driver}


def _repositories(node: Raw) -> dict[str, Any]:
    *files, key_file = packages.REPOSITORIES
    found: dict[str, Any] = {}
    for pattern in files:
        for path in node.find(pattern.format("*")):
            name = PurePosixPath(path).stem
            if any(fnmatchcase(name, asked) for asked in node.asked["repositories"]):
                key = node.texts.get(key_file.format(name))
                repository = ObservedRepository.parse(path, node.texts[path], key)
                found.setdefault(name, repository._asdict())
    return found


def _module_streams(node: Raw) -> dict[str, str]:
    return {
        name: stream
        for path in node.find(packages.MODULE_STATES)
        for name, stream in packages.parse_module_states(node.texts[path]).items()
    }


def _ours(node: Raw) -> dict[str, Any]:
    """Return what this collection left: its own files, and edits of the admin's files."""
    return {
        "files": node.own_files,
        "edits": [_edit(node, path) for path in node.find(document_history_files.PATTERN)],
        "packages": {
            PurePosixPath(path).stem: _package_record(node, path)
            for path in (*node.find(packages.RECORDS), *node.unread(packages.RECORDS))
        },
    }


def _package_record(node: Raw, path: str) -> dict[str, Any]:
    text = node.texts.get(path, "")
    document = load_json(path, text)
    error = _read_error(node, path) or document.error or _record_problem(path, text, document)
    return {"path": path, "packages": {} if error else document.content, "error": error}


def _record_problem(path: str, text: str, document: Document) -> str | None:
    """Return why a text is not a valid record of packages; None if it is valid."""
    if not text.strip():
        return f"{path}: the file is empty"
    for name, entry in document.content.items():
        if not isinstance(entry, Mapping) or not isinstance(entry.get("version"), str):
            return f'{path}: "version" of {name} is not a string'
        if not isinstance(entry.get("before", 0), str | None):
            return f'{path}: "before" of {name} is not a string or null'
    return None


def _edit(node: Raw, history: str) -> dict[str, Any]:
    """Return the edited file, the actor and the changed values, from the path of a history."""
    path, actor = document_history_files.parse_file_name(history)
    summary = document_history.summarize(path, node.texts[history], node.texts.get(path))
    return {
        "path": path,
        "actor": actor,
        "changes": list(summary.changes),
        "untouched": summary.untouched,
        "error": f"{history}: {summary.error}" if summary.error else None,
    }


def _unit(node: Raw, name: str) -> dict[str, Any]:
    unit = node.units.get(name, {})
    return {
        "installed": unit.get("LoadState") == "loaded",
        "enabled": node.is_enabled(name),
        "active": unit.get("ActiveState") == "active",
    }


def _changed_since_start(node: Raw, unit: str, patterns: Iterable[str]) -> list[str]:
    """Return which of a unit's files were written after it was started."""
    started = node.started(unit)
    if started is None:
        return []
    return [
        path
        for path, modified in node.modified.items()
        # A time in the future is no evidence.
        if started < modified <= node.clock["now"]
        and any(fnmatchcase(path, pattern) for pattern in patterns)
    ]


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the underscore after keys that are reserved words of Python."""
    return {key.rstrip("_"): value for key, value in record.items()}


def _runtimes(runtimes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: runtime._asdict() for name, runtime in runtimes.items()}


def _exists(node: Raw, path: str | None) -> bool | None:
    return None if path in node.errors else path in node.texts


def _sha256(text: str | None) -> str | None:
    return None if text is None else sha256(text.encode(errors="replace")).hexdigest()


def _read_error(node: Raw, path: str | None) -> str | None:
    return f"{path}: {node.errors[path]}" if path and path in node.errors else None

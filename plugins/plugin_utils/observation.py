# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn what a node handed over into the observation `gpu_node`. No I/O.

TOML and YAML are loaded here; the libraries in module_utils, which run on the node too, take
documents that are loaded already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils import (
    cdi,
    containerd,
    crio,
    docker,
    document_states,
    kubelet,
    nvidia_driver,
    nvidia_smi,
    packages,
    systemd,
)
from ansible_collections.metal.gpu.plugins.module_utils.command_line import (
    Flag,
    parse_flags,
    value_of,
)
from ansible_collections.metal.gpu.plugins.module_utils.commands import Output
from ansible_collections.metal.gpu.plugins.module_utils.os_release import parse_os_release
from ansible_collections.metal.gpu.plugins.module_utils.version import (
    parse_version,
    upstream_version,
)
from ansible_collections.metal.gpu.plugins.plugin_utils import document_history
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import BYTE_ORDER_MARK
from ansible_collections.metal.gpu.plugins.plugin_utils.loaders import (
    Document,
    load_json,
    load_toml,
    load_yaml,
)

# containerd 2 (go-toml 2) takes the first byte of the mark for a key, containerd 1 skips the mark.
# Source: LoadConfig of containerd v2.1.4 and `containerd config dump` of 1.6.20, run.
_MARK_AS_READ = "invalid character at start of key: \u00ef"
_MARK_REFUSED = (
    "{path}, line 1, column 1: the file begins with a byte order mark, which this containerd "
    r"refuses. Remove it: sed -i '1s/^\xEF\xBB\xBF//' {path}"
)
_SECURE_BOOT_FLAG = 4  # an EFI variable starts with four bytes of attributes


class Raw:
    """What the module handed over, with questions that several parts ask."""

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
        self.modified: Mapping[str, float] = raw["modified"]
        self.clock: Mapping[str, float] = raw["clock"]
        self.texts: Mapping[str, str] = raw["texts"]
        self.errors: Mapping[str, str] = raw["errors"]
        self.outputs = {name: Output(**output) for name, output in raw["outputs"].items()}
        self.units = systemd.parse_show(self.stdout("units"))
        self.packages = packages.parse_packages(self.stdout("packages"))
        if any(package.held is None for package in self.packages.values()):
            locks = self.texts.get(packages.VERSION_LOCKS, "")
            self.packages = packages.with_locks(self.packages, locks)

    def stdout(self, name: str) -> str:
        return self.outputs[name].stdout if name in self.outputs else ""

    def text(self, path: str) -> str | None:
        """Return the stripped text of a file; None where it is absent or empty."""
        return self.texts.get(path, "").strip() or None

    def find(self, *patterns: str) -> list[str]:
        """Return the paths of the texts that match a pattern, sorted."""
        return sorted(
            path for path in self.texts for pattern in patterns if fnmatchcase(path, pattern)
        )

    def is_active(self, unit: str) -> bool | None:
        """Tell whether a unit runs; None where no systemd answers."""
        if not self.units:
            return None
        return self.units.get(unit, {}).get("ActiveState") == "active"

    def needs_reload(self, unit: str) -> bool:
        """Tell whether the files of a unit say something else than systemd knows."""
        return self.units.get(unit, {}).get("NeedDaemonReload") == "yes"

    def is_enabled(self, unit: str) -> bool:
        return self.units.get(unit, {}).get("UnitFileState") in systemd.ENABLED

    def started(self, unit: str) -> float | None:
        """Return when a unit was started, in seconds of the epoch; None where it is not active."""
        active_s = systemd.seconds_active(self.units.get(unit, {}), self.clock["uptime"])
        return None if active_s is None else self.clock["now"] - active_s

    def flags(self, unit: str, *other_environment_files: str) -> tuple[Flag, ...]:
        service = systemd.parse_service(self.texts, unit, other_environment_files)
        return parse_flags(service.words)

    def version(self, name: str) -> dict[str, str | None]:
        """Return the version that a program has told, and else what it has said instead."""
        version, error = parse_version(self.stdout(name)), None
        if version is None and name in self.outputs:
            output = self.outputs[name]
            said = " ".join(f"{output.stdout} {output.stderr}".split())
            error = said or ("nothing in time" if output.rc is None else f"nothing ({output.rc})")
        return {"version": version, "version_error": error}

    def versions(self, belongs: Callable[[str], bool]) -> dict[str, str]:
        return {name: package.version for name, package in self.packages.items() if belongs(name)}


class KubeletSetup(NamedTuple):
    """What a kubelet is started with."""

    flags: tuple[Flag, ...]
    path: str | None  # of --config
    config: Document
    directory: str | None  # of --config-dir
    dropins: Mapping[str, Mapping[str, Any]]  # contents, keyed by path, in the order they are read

    @property
    def documents(self) -> dict[str, Mapping[str, Any]]:
        """All configuration, keyed by path; later documents win."""
        own = {self.path: self.config.content} if self.path else {}
        return {**own, **self.dropins}


def interpret(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return `gpu_node`, as the documentation of metal.gpu.node_info describes it."""
    node = Raw(raw)
    setup = _kubelet_setup(node)
    return {
        "os": _os(node),
        "hostname": node.text("/proc/sys/kernel/hostname"),
        "boot_id": node.text("/proc/sys/kernel/random/boot_id"),
        "init": "systemd" if node.paths["systemd"] else "other",
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
        "package_manager": node.package_manager,
        "reboot_required": node.paths["reboot_required"],
    }


def _os(node: Raw) -> dict[str, Any]:
    text = node.texts.get("/etc/os-release") or node.texts.get("/usr/lib/os-release", "")
    return {**parse_os_release(text)._asdict(), "architecture": node.architecture}


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
        "persistenced": _unit(node, "nvidia-persistenced.service"),
    }


def _is_initramfs_outdated(node: Raw) -> bool | None:
    """Tell whether a file about nouveau is newer than what the running kernel booted from."""
    release = node.text("/proc/sys/kernel/osrelease")
    paths = [path.format(release=release) for path in nvidia_driver.INITIAL_RAMDISKS]
    built = [node.modified[path] for path in paths if path in node.modified]
    if not built:
        return None
    written = [node.modified[path] for path in node.find("*/modprobe.d/*.conf")]
    return max(written, default=0.0) > min(built)


def _nvml(node: Raw) -> dict[str, Any]:
    if "nvidia_smi" not in node.outputs:
        failure: nvidia_smi.NvmlFailure | None = nvidia_smi.NOT_INSTALLED
        devices: tuple[nvidia_smi.NvmlDevice, ...] = ()
    else:
        output = node.outputs["nvidia_smi"]
        failure = nvidia_smi.parse_failure(*output)
        devices = nvidia_smi.parse_devices(output.stdout)
    minors = {
        PurePosixPath(path).parent.name.lower(): nvidia_driver.parse_minor(node.texts[path])
        for path in node.find("/proc/driver/nvidia/gpus/*/information")
    }
    rows = [
        {**_row(device._asdict()), "minor": minors.get(device.pci_address or "")}
        for device in devices
    ]
    versions = [version for row in rows if (version := row.pop("driver_version"))]
    return {
        "driver_version": versions[0] if versions else None,
        "devices": rows,
        "failure": failure._asdict() if failure else None,
    }


def _toolkit(node: Raw) -> dict[str, Any]:
    versions = node.versions(nvidia_driver.is_toolkit_package)
    # A program that somebody built without a version says "unknown".
    packaged = versions.get("nvidia-container-toolkit-base") or versions.get(
        "nvidia-container-toolkit"
    )
    return {
        "packages": versions,
        "version": parse_version(node.stdout("toolkit"))
        or (upstream_version(packaged) if packaged else None),
        "cdi_refresh": _unit(node, "nvidia-cdi-refresh.path"),
        "config": next(iter(node.found["toolkit_config"]), None),
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
    files = node.find(*(f"{directory}/*" for directory in cdi.DIRECTORIES))
    # YAML is a superset of JSON as far as these files go.
    documents = [load_yaml(path, node.texts[path]).content for path in files]
    devices = [name for document in documents for name in cdi.parse_devices(document)]
    return {"spec_files": files, "devices": list(dict.fromkeys(devices))}


def _containerd(node: Raw) -> dict[str, Any]:
    named = value_of(node.flags(containerd.UNIT), *containerd.CONFIG_FLAGS)
    path = named or containerd.DEFAULT_CONFIG
    text = node.texts.get(path, "")
    own = load_toml(path, text)
    told = node.version("containerd")
    version = told["version"]
    dump = node.outputs.get("containerd_dump")
    error, obstacle = _read_error(node, path) or own.error, own.obstacle
    imported = containerd.mentioned_files(path, text)
    effective = None
    has_file = named or _exists(node, path) is not False  # the module asks accordingly
    command = f"containerd config {'dump' if has_file else 'default'}"
    if dump and dump.rc == 0 and version:
        merged = load_toml(command, dump.stdout)
        effective = containerd.parse_effective(merged.content, version)
        # What containerd reads is right, also where it is more than TOML.
        error, obstacle = _read_error(node, path), own.error or own.obstacle
    elif dump and not error:
        error = containerd.parse_refusal(dump.stderr)
        if text.startswith(BYTE_ORDER_MARK) and _MARK_AS_READ in dump.stderr:
            error = _MARK_REFUSED.format(path=path)
    return {
        "installed": "containerd" in node.outputs,
        **told,
        "running": "containerd" in node.outputs and node.is_active(containerd.UNIT),
        "socket": effective.socket if effective else None,
        "config": {
            "path": path,
            "exists": _exists(node, path),
            "version": own.content.get("version"),
            "imports": own.content.get("imports", []),
            "imported_cri": [
                name
                for name in node.find(*imported)
                if containerd.has_cri(load_toml(name, node.texts[name]).content)
            ],
            "text_sha256": sha256(text.encode()).hexdigest() if path in node.texts else None,
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
    flags = node.flags(docker.UNIT)
    path = value_of(flags, "--config-file") or docker.DEFAULT_CONFIG
    document = load_json(path, node.texts.get(path, ""))
    told = node.version("docker")
    version = told["version"]
    info = docker.parse_info(node.stdout("docker_info"))
    error = _read_error(node, path) or document.error
    effective, source = None, None
    written = docker.effective_from_file(document.content, version or "0")
    if info:
        effective, source = docker.effective_from_info(info), "docker info"
    elif version:
        # Without a file that is valid these are the engine's defaults.
        source = path if _exists(node, path) and not error else None
        effective = written
    installed = "docker" in node.outputs
    return {
        "installed": installed,
        **told,
        "server_version": parse_version(info["ServerVersion"]) if info else None,
        "client_version": parse_version(node.stdout("docker_client")),
        "running": installed and (bool(info) or node.is_active(docker.UNIT)),
        "answers": bool(info) and node.outputs["docker_ps"].rc == 0,
        "enabled": node.is_enabled(docker.UNIT),
        "needs_reload": node.needs_reload(docker.UNIT),
        "changed_since_start": _changed_since_start(node, docker.UNIT, [docker.GPU_HOOK]),
        "program": _program(node, docker.UNIT),
        "flags": [flag._asdict() for flag in flags],
        "config": {
            "path": path,
            "exists": _exists(node, path),
            "error": error,
            "obstacle": document.obstacle,
            "source": source,
            "keys": list(document.content),
            "default_runtime": document.content.get("default-runtime"),
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
        "purge_script": next(iter(node.found["docker_purge_script"]), None),
        "group": docker.parse_group(node.stdout("docker_group")),
        "snap": node.found["docker_snap"],
        "rootless": node.found["docker_rootless"],
        "cri_dockerd": _cri_dockerd(node),
        "v1": _docker_v1(node),
        "cgroup_driver": effective.cgroup_driver if effective else None,
        "cdi_enabled": effective.cdi_enabled if effective else None,
    }


def _program(node: Raw, unit: str) -> dict[str, str] | None:
    """Return what a unit starts, and the file that says so."""
    words = systemd.parse_service(node.texts, unit).words
    return {"path": words[0].text, "file": words[0].file} if words else None


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
    """Return the containers that were noted, unless they run again, or are gone by now."""
    noted = _noted_containers(node)
    stopped = [one.id for one in docker.parse_ps(node.stdout("docker_ps")) if not one.running]
    return [
        {"id": key, "name": name} for key, name in noted.items() if key in stopped or not answers
    ]


def _noted_containers(node: Raw) -> Mapping[str, Any]:
    """Return the names of the containers that ran before Docker was to be replaced, keyed by id."""
    return load_json(docker.RECORD, node.texts.get(docker.RECORD, "")).content


def _cri_dockerd(node: Raw) -> dict[str, Any]:
    # "/run/cri-dockerd.sock (Stream)"
    socket = node.units.get(docker.CRI_SOCKET, {}).get("Listen", "").partition(" ")[0]
    installed = "cri_dockerd" in node.outputs
    return {
        "installed": installed,
        "version": parse_version(node.stdout("cri_dockerd")),
        "running": installed and node.is_active(docker.CRI_UNIT),
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
    unread = [file for file in node.errors if file.startswith(path)]  # drop-in files too
    errors = [_read_error(node, file) for file in unread]
    errors += [document.error for document in files.values() if document.error]
    answer = node.outputs.get("crio_config")
    if answer and answer.rc == 0:
        documents = {"crio status config": load_toml("crio status config", answer.stdout)}
    else:
        documents = {file: document for file, document in files.items() if not document.error}
    effective = crio.parse_effective(document.content for document in documents.values())
    installed = "crio" in node.outputs
    return {
        "installed": installed,
        "version": parse_version(node.stdout("crio")),
        "running": installed and node.is_active(crio.UNIT),
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
    flags = node.flags(kubelet.UNIT, *kubelet.ENVIRONMENT_FILES)
    path, directory = value_of(flags, "--config"), value_of(flags, "--config-dir")
    return KubeletSetup(
        flags=flags,
        path=path,
        config=load_yaml(path, node.texts.get(path, "")) if path else Document({}, None),
        directory=directory,
        dropins={
            file: load_yaml(file, node.texts[file]).content
            for file in (node.find(f"{directory}/*.conf") if directory else ())
        },
    )


def _kubelet(node: Raw, setup: KubeletSetup) -> dict[str, Any]:
    installed = "kubelet" in node.outputs
    told = node.version("kubelet")
    state = node.units.get(kubelet.UNIT, {})
    gates = kubelet.feature_gates(setup.flags, setup.documents.items())
    hostname = node.text("/proc/sys/kernel/hostname") or ""
    return {
        "installed": installed,
        **told,
        "running": installed and node.is_active(kubelet.UNIT),
        "unit_state": {
            "active": state.get("ActiveState"),
            "sub": state.get("SubState"),
            "result": state.get("Result"),
        },
        "node_name": kubelet.node_name(setup.flags, hostname),
        "flags": [flag._asdict() for flag in setup.flags],
        "config": {
            "path": setup.path,
            "exists": _exists(node, setup.path),
            "error": _read_error(node, setup.path) or setup.config.error,
            "obstacle": setup.config.obstacle,
            "content": setup.config.content,
        },
        "config_dir": {
            "path": setup.directory,
            "files": [
                {"path": path, "content": content} for path, content in setup.dropins.items()
            ],
        },
        "feature_gates": [gate._asdict() for gate in gates],
        "endpoint": kubelet.endpoint(setup.flags, setup.documents.values(), told["version"]),
        "last_error": None
        if state.get("Result") == "success"
        else kubelet.parse_last_error(node.stdout("journal")),
        "needs_reload": node.needs_reload(kubelet.UNIT),
        "changed_since_start": _changed_since_start(
            node, kubelet.UNIT, [*(flag.file for flag in setup.flags), *setup.documents]
        ),
    }


def _cgroup(node: Raw, setup: KubeletSetup) -> dict[str, Any]:
    version = None
    if node.paths["cgroup"]:
        version = 2 if node.paths["cgroup_v2"] else 1
    driver = None
    if "kubelet" in node.outputs:
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
                found.setdefault(name, {"path": path, "text": node.texts[path], "key": key})
    return found


def _module_streams(node: Raw) -> dict[str, str]:
    return {
        name: stream
        for path in node.find(packages.MODULE_STATES)
        for name, stream in packages.parse_module_states(node.texts[path]).items()
    }


def _ours(node: Raw) -> dict[str, Any]:
    """Return what this collection has left: files named after it, and edits of others' files."""
    states = node.find(document_states.PATTERN)
    return {
        "files": sorted(
            path
            for path in node.texts
            if "metal-gpu" in PurePosixPath(path).name and path not in states
        ),
        "edits": [_edit(node, state) for state in states],
    }


def _edit(node: Raw, state: str) -> dict[str, Any]:
    """Return which file was edited, by whom, and which values were others before."""
    path, actor = document_states.parse_file_name(state)
    summary = document_history.summarize(path, node.texts[state], node.texts.get(path))
    return {
        "path": path,
        "actor": actor,
        "changes": list(summary.changes),
        "untouched": summary.untouched,
        "error": f"{state}: {summary.error}" if summary.error else None,
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
        # What comes from the future tells nothing.
        if started < modified <= node.clock["now"]
        and any(fnmatchcase(path, pattern) for pattern in patterns)
    ]


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    """Take the underscore off the keys that Python would not have without."""
    return {key.rstrip("_"): value for key, value in record.items()}


def _runtimes(runtimes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: runtime._asdict() for name, runtime in runtimes.items()}


def _exists(node: Raw, path: str | None) -> bool | None:
    return None if path in node.errors else path in node.texts


def _read_error(node: Raw, path: str | None) -> str | None:
    return f"{path}: {node.errors[path]}" if path and path in node.errors else None

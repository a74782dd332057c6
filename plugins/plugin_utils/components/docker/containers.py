# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about the containers of Docker, those of nvidia-docker v1 included."""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import (
    V1,
    Container,
    Running,
)
from ansible_collections.metal.gpu.plugins.module_utils.read import cdi, docker
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.load import (
    Document,
    load_json,
    load_yaml,
)


def _hook_drivers(raw: Raw, version: str | None, *, has_cdi: bool) -> tuple[str, ...]:
    """Return the drivers of requests for GPUs that use the hook of NVIDIA's runtime."""
    is_late = bool(raw.changed_since_start(docker.UNIT, [docker.CDI_HOOK]))
    uses_cdi = docker.gives_gpus_by_cdi(
        version,
        has_cdi=has_cdi,
        has_hook=docker.CDI_HOOK in raw.modified and not is_late,
        has_devices=_has_devices(raw),
    )
    return (docker.HOOK_DRIVER,) if uses_cdi else (docker.GPU_DRIVER, docker.HOOK_DRIVER)


def _has_devices(raw: Raw) -> bool:
    """Tell whether a specification has GPUs for `--gpus`."""
    files = raw.find(*(f"{directory}/*" for directory in cdi.DIRECTORIES))
    names = {
        path: cdi.parse_devices(load_yaml(path, raw.texts[path]).content)
        for path in files
        if docker.GPU_KIND in raw.texts[path]
    }
    return any(name.startswith(f"{docker.GPU_KIND}=") for name in cdi.usable(names))


def running(raw: Raw, version: str | None, *, has_cdi: bool) -> list[Running]:
    """Return the running containers. `has_cdi`: the engine of this version gives CDI devices."""
    configs = docker.parse_host_configs(raw.stdout("docker_host_config"))
    asks = any(config.gpu_drivers for config in configs.values())
    hook_drivers = _hook_drivers(raw, version, has_cdi=has_cdi) if asks else ()
    noted = _noted(raw)
    return [
        {
            "id": container.id,
            "name": container.name,
            "of_pod": container.is_of_pod,
            "ephemeral": container.id in configs and configs[container.id].ephemeral,
            "noted": container.id in noted,
            "gpus": container.id in configs and configs[container.id].gpus,
            "gpus_by_hook": container.id in configs
            and any(driver in hook_drivers for driver in configs[container.id].gpu_drivers),
        }
        for container in docker.parse_ps(raw.stdout("docker_ps"))
        if container.running
    ]


def made_with(raw: Raw) -> dict[str, list[str]]:
    """Return the names of containers that the kubelet did not create, by runtime."""
    names = {one.id: one.name for one in docker.parse_ps(raw.stdout("docker_ps"))}
    found: dict[str, list[str]] = {}
    for key, config in docker.parse_host_configs(raw.stdout("docker_host_config")).items():
        found.setdefault(config.runtime, []).append(names[key])
    return found


def interrupted(raw: Raw, *, answers: bool) -> list[Container]:
    """Return the recorded containers that are stopped; all if Docker does not answer."""
    stopped = [one.id for one in docker.parse_ps(raw.stdout("docker_ps")) if not one.running]
    return [
        {"id": key, "name": name}
        for key, name in _noted(raw).items()
        if key in stopped or not answers
    ]


def _noted(raw: Raw) -> dict[str, str]:
    """Return the names of the containers that ran before the replacement of Docker, by id."""
    noted = record(raw).content
    return {key: name for key, name in noted.items() if isinstance(name, str)}


def record(raw: Raw) -> Document:
    """Return the record of the containers that ran before the replacement of Docker."""
    return load_json(docker.RECORD, raw.texts.get(docker.RECORD, ""))


def v1(raw: Raw) -> V1:
    """Return the remains of nvidia-docker v1."""
    volumes = raw.stdout("docker_v1_volumes").split()
    containers = docker.users_of(docker.parse_ps(raw.stdout("docker_ps")), volumes)
    return {
        "unit": raw.is_loaded(docker.V1_UNIT),
        "volumes": volumes,
        "containers": [{"id": one.id, "name": one.name} for one in containers],
    }

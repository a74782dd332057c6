# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plans for the distribution's own driver, and for the sources that install nothing."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    BROKEN,
    DONE,
    GPU,
    VIRGIN,
    codes,
    merge,
    names,
    plan,
    record,
    without_nulls,
)

SOURCE = {
    "path": "/etc/apt/sources.list.d/debian.sources",
    "url": "http://deb.debian.org/debian",
    "suite": "trixie",
    "section": "",
    "components": "main non-free-firmware",
    "signed_by": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "unsigned": "",
    "credentials": False,
}
DEBIAN_13 = {
    "os": {"version_id": "13", "codename": "trixie"},
    "kernel": {"release": "6.12.107+deb13-amd64"},
    "package_sources": [SOURCE],
}
DEBIAN = merge(VIRGIN, DEBIAN_13)
UBUNTU = merge(
    VIRGIN,
    {
        "os": {"id": "ubuntu", "version_id": "24.04", "codename": "noble"},
        "kernel": {"release": "6.8.0-60-generic"},
        "package_sources": [
            {
                **SOURCE,
                "url": "http://x/ubuntu",
                "suite": "noble",
                "components": "main restricted",
                "signed_by": "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
            }
        ],
        "packages": {"linux-image-generic": {"version": "6.8.0-60.63", "held": False}},
        "secure_boot": True,
    },
)
FILE = "/etc/apt/sources.list.d/metal-gpu-nvidia-driver.sources"
OURS = {
    "metal-gpu-nvidia-driver": {
        "path": FILE,
        "entries": [
            {
                "x-repolib-name": "metal-gpu-nvidia-driver",
                "types": "deb",
                "uris": SOURCE["url"],
                "suites": "trixie",
                "components": "contrib non-free",
                "signed-by": SOURCE["signed_by"],
            }
        ],
        "key": None,
        "error": None,
    }
}
RECORDED = {
    **dict.fromkeys(("nvidia-kernel-dkms", "nvidia-smi", "libcuda1", "libnvidia-cfg1"), "550.*"),
    "nvidia-persistenced": "550.*",
}
INSTALLED = {
    name: {"version": version.replace("550.*", "550.163.01-2"), "held": True}
    for name, version in RECORDED.items()
}


def driver(node: dict[str, Any], **desired: Any) -> dict[str, Any]:
    return plan("nvidia_driver", node, **{"version": "", "repository_url": "", **desired})


def installed(**changes: Any) -> dict[str, Any]:
    """Return a node with Debian's driver, which this role installed."""
    done = without_nulls(merge(DONE, {"packages": dict.fromkeys(DONE["packages"])}))
    node = merge(merge(done, DEBIAN_13), {"repositories": OURS, "packages": INSTALLED})
    node["ours"]["packages"] = record("nvidia_driver", RECORDED)["packages"]
    node["driver"]["packages"] = {name: one["version"] for name, one in INSTALLED.items()}
    node["package_manager"] |= {"automatic": [], "dependants": {}}
    version = {
        "module_version": "550.163.01",
        "disk_version": "550.163.01",
        "own_pin": [
            "Package: *nvidia* libcuda1 libcudadebugger1 libnvcuvid1 libnvoptix1",
            "Pin: release o=Debian,n=trixie*",
            "Pin-Priority: 999",
        ],
    }
    found = {"driver": version, "nvml": {"driver_version": "550.163.01"}}
    return merge(merge(node, found), changes)


def test_debians_driver() -> None:
    planned = driver(DEBIAN)
    assert codes(planned) == []
    assert names(planned) == [
        "Install python3-debian for the driver repository",
        "Add the repository of the driver",
        "Pin the driver version",
        "Block the nouveau module",
        "Rebuild the initramfs",
        "Install the driver",
        "Hold the driver",
        "Load the NVIDIA modules at boot",
        "Create the device files for CUDA at boot",
        "Load the NVIDIA modules",
        "Create the device files for CUDA now",
        "Start the persistence daemon",
    ]
    data = planned["data"]
    assert data["packages"] == [
        # By name: the pin chooses the version.
        "nvidia-kernel-dkms",
        "nvidia-smi",
        "libcuda1",
        "libnvidia-cfg1",
        "nvidia-persistenced",
        "linux-headers-6.12.107+deb13-amd64",
    ]
    assert data["repository"] == {
        "name": "metal-gpu-nvidia-driver",
        "url": "http://deb.debian.org/debian",
        "suite": "trixie",
        "components": "contrib non-free",
        "key": "",
        "fingerprint": "",
        "signs": "metadata",
        "key_file": "",
        "signed_by": SOURCE["signed_by"],
        "new": True,
    }
    assert data["hold"] == [*RECORDED]
    (install,) = (one for one in planned["steps"] if one["slug"] == "install")
    assert install["reason"].endswith("the archive of Debian 13 has branch 550")


def test_second_run_has_nothing_to_do() -> None:
    planned = driver(installed())
    assert (planned["steps"], planned["refusals"], planned["notices"]) == ([], [], [])


def test_interrupted_installation_continues() -> None:
    node = installed(nvml={"failure": BROKEN, "driver_version": None, "devices": []})
    node["driver"] |= {"module_version": None, "dkms": DONE["driver"]["dkms"]}
    del node["packages"]["nvidia-smi"], node["driver"]["packages"]["nvidia-smi"]
    planned = driver(node)
    assert codes(planned) == []
    assert "Install the driver" in names(planned)
    assert "Add the repository of the driver" not in names(planned)


def test_module_is_built_from_debians_source() -> None:
    node = installed(nvml={"failure": BROKEN, "driver_version": None, "devices": []})
    dkms = {
        **{"built": False, "kernels": [], "unfinished": [], "log": None},
        **{"sources": ["nvidia-current/550.163.01"], "addable": [], "builds": {}},
    }
    node["driver"] |= {"module_version": None, "dkms": dkms}
    planned = driver(node)
    assert planned["data"]["source"] == "nvidia-current/550.163.01"
    assert planned["data"]["version"] == "of branch 550"


def test_teardown_removes_the_packages_and_our_file_only() -> None:
    planned = driver(installed(), state="absent")
    assert codes(planned) == []
    assert set(planned["data"]["packages"]) >= set(RECORDED)
    assert names(planned)[-3:] == [
        "Remove the pin of the driver version",
        "Remove the repository of the driver",
        "Delete the record of the driver packages",
    ]
    assert planned["data"]["repository"]["name"] == "metal-gpu-nvidia-driver"


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        pytest.param(
            [{**SOURCE, "components": "main contrib non-free non-free-firmware"}], [], id="there"
        ),
        pytest.param(
            [{**SOURCE, "unsigned": "Trusted: yes"}], ["REPOSITORY_UNSIGNED"], id="unsigned"
        ),
        pytest.param([{**SOURCE, "credentials": True}], ["COMPONENTS_MISSING"], id="password"),
        pytest.param([{**SOURCE, "signed_by": "embedded"}], ["COMPONENTS_MISSING"], id="key"),
        pytest.param(
            [{**SOURCE, "signed_by": ""}, {**SOURCE, "signed_by": "", "url": "http://x.example/y"}],
            ["COMPONENTS_MISSING"],
            id="two that may be the archive",
        ),
    ],
)
def test_components(sources: list[dict[str, Any]], expected: list[str]) -> None:
    planned = driver({**DEBIAN, "package_sources": sources})
    assert codes(planned) == expected
    assert "Add the repository of the driver" not in names(planned)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("components", "contrib", "has Components contrib, not contrib non-free"),
        ("signed-by", "/old.gpg", "has another Signed-By than the archive's own source"),
        ("uris", "https://developer.download.nvidia.com/x/", "has URIs https://developer."),
    ],
)
def test_our_file_is_written_again_if_it_differs(field: str, value: str, reason: str) -> None:
    (entry,) = OURS["metal-gpu-nvidia-driver"]["entries"]
    file = {**OURS["metal-gpu-nvidia-driver"], "entries": [{**entry, field: value}]}
    planned = driver({**DEBIAN, "repositories": {"metal-gpu-nvidia-driver": file}})
    (step,) = (one for one in planned["steps"] if one["slug"] == "repository")
    assert reason in step["reason"]


def test_kepler_on_debian_12() -> None:
    sources = [{**SOURCE, "suite": "bookworm"}]
    planned = driver(
        merge(VIRGIN, {"pci": [{**GPU, "device": "102d"}], "package_sources": sources})
    )
    assert planned["data"]["packages"][:5] == [
        "nvidia-tesla-470-kernel-dkms",
        "nvidia-tesla-470-smi",
        "libnvidia-tesla-470-cuda1",
        "libnvidia-tesla-470-cfg1",
        "nvidia-persistenced",
    ]


def test_exact_version() -> None:
    node = merge(DEBIAN, {"pci": [{**GPU, "device": "1eb8"}]})
    planned = driver(node, source="distribution", version="550.163.01")
    assert planned["data"]["packages"][0] == "nvidia-kernel-dkms=550.163.01-*"


SECURITY = {
    **SOURCE,
    "url": "http://deb.debian.org/debian-security",
    "suite": "trixie-security",
}
SECURITY_NAME = "metal-gpu-nvidia-driver-security"


def test_security_updates_get_the_same_components() -> None:
    """With non-free in one archive only, apt finds no solution on Debian 12."""
    planned = driver({**DEBIAN, "package_sources": [SOURCE, SECURITY]})
    assert codes(planned) == []
    assert names(planned)[:3] == [
        "Install python3-debian for the driver repository",
        "Add the repository of the driver",
        "Add the security updates of the driver",
    ]
    found = planned["data"]["security"]
    assert (found["name"], found["new"]) == (SECURITY_NAME, True)
    assert (found["url"], found["suite"]) == (SECURITY["url"], "trixie-security")
    assert found["components"] == "contrib non-free"
    assert found["signed_by"] == SECURITY["signed_by"]


@pytest.mark.parametrize(
    ("security", "expected"),
    [
        pytest.param([], [], id="none"),
        pytest.param(
            [{**SECURITY, "components": "main contrib non-free non-free-firmware"}], [], id="there"
        ),
        pytest.param([{**SECURITY, "credentials": True}], ["COMPONENTS_MISSING"], id="password"),
        pytest.param(
            [{**SECURITY, "unsigned": "Trusted: yes"}], ["REPOSITORY_UNSIGNED"], id="unsigned"
        ),
    ],
)
def test_security_updates_that_need_no_file(
    security: list[dict[str, Any]], expected: list[str]
) -> None:
    base = {**SOURCE, "components": "main contrib non-free non-free-firmware"}
    planned = driver({**DEBIAN, "package_sources": [base, *security]})
    assert codes(planned) == expected
    assert not [name for name in names(planned) if "security" in name]


def test_teardown_removes_the_file_of_the_security_updates() -> None:
    (entry,) = OURS["metal-gpu-nvidia-driver"]["entries"]
    path = FILE.replace("driver.sources", "driver-security.sources")
    file = {
        **OURS["metal-gpu-nvidia-driver"],
        "path": path,
        "entries": [{**entry, "x-repolib-name": SECURITY_NAME}],
    }
    planned = driver(installed(repositories={SECURITY_NAME: file}), state="absent")
    assert names(planned)[-4:-1] == [
        "Remove the security updates of the driver",
        "Remove the pin of the driver version",
        "Remove the repository of the driver",
    ]
    theirs = {**file, "entries": [entry]}
    planned = driver(installed(repositories={SECURITY_NAME: theirs}), state="absent")
    assert "Remove the security updates of the driver" not in names(planned)


def test_ubuntus_signed_modules_under_secure_boot() -> None:
    planned = driver(UBUNTU)
    assert codes(planned) == []
    assert planned["data"]["packages"] == [
        "nvidia-headless-no-dkms-580-server=580.*",
        "nvidia-compute-utils-580-server=580.*",
        "nvidia-utils-580-server=580.*",
        "linux-modules-nvidia-580-server-6.8.0-60-generic",
    ]
    # The meta package needs the newest kernel of the archive, which the node may not have.
    meta = "linux-modules-nvidia-580-server-generic"
    assert planned["data"]["following"] == [
        f"{meta}=6.8.0-60.63",
        f"{meta}=6.8.0-60.63+*",
        meta,
    ]
    assert meta in planned["data"]["packages_record"]["packages"]
    # The modules follow their kernel.
    assert planned["data"]["hold"] == [
        "nvidia-headless-no-dkms-580-server",
        "nvidia-compute-utils-580-server",
        "nvidia-utils-580-server",
    ]
    assert not any("headers" in name for name in planned["data"]["packages"])
    assert "Add the repository of the driver" not in names(planned)


def test_ubuntus_modules_may_change_their_version() -> None:
    """They have that of the kernel: an upgrade of the kernel is no other driver."""
    modules = "linux-modules-nvidia-580-server-6.8.0-60-generic"
    packages = {
        "nvidia-headless-no-dkms-580-server": "580.173.02-0ubuntu0.24.04.1",
        "nvidia-compute-utils-580-server": "580.173.02-0ubuntu0.24.04.1",
        "nvidia-utils-580-server": "580.173.02-0ubuntu0.24.04.1",
        modules: "6.8.0-60.63+1",
        "linux-modules-nvidia-580-server-generic": "6.8.0-61.64",
    }
    noted = {name: "*" if "modules" in name else "580.*" for name in packages}
    observed = {
        name: {"version": one, "held": "modules" not in name} for name, one in packages.items()
    }
    changes = {
        "driver": {"packages": packages, "module_version": None},
        "packages": observed,
        "nvml": {"failure": BROKEN},
        "ours": record("nvidia_driver", noted),
    }
    planned = driver(merge(UBUNTU, changes))
    assert codes(planned) == []
    assert names(planned)[0] != "Install the driver"
    assert "Install the driver" not in names(planned)
    assert "Hold the driver" not in names(planned)
    assert set(driver(merge(UBUNTU, changes), state="absent")["data"]["packages"]) == set(packages)


def test_kernel_whose_modules_need_a_newer_driver() -> None:
    """The archive has modules of 6.8.0-151 for 580.178.04 only, as read on 2026-11-23."""
    old = "580.173.02-0ubuntu0.24.04.1"
    series = "580-server"
    driver_names = [
        f"nvidia-{one}-{series}" for one in ("headless-no-dkms", "compute-utils", "utils")
    ]
    modules = {
        f"linux-modules-nvidia-{series}-6.8.0-138-generic": "6.8.0-138.138",
        f"linux-modules-nvidia-{series}-generic": "6.8.0-138.138",
    }
    packages = {**dict.fromkeys(driver_names, old), **modules}
    changes = {
        "kernel": {"release": "6.8.0-151-generic"},
        "driver": {"packages": packages, "module_version": None},
        "packages": {name: {"version": one, "held": one == old} for name, one in packages.items()},
        "nvml": {"failure": BROKEN},
        "ours": record(
            "nvidia_driver", {name: "*" if name in modules else "580.*" for name in packages}
        ),
    }
    planned = driver(merge(UBUNTU, changes))
    assert codes(planned) == []
    data = planned["data"]
    assert data["packages"] == [
        *(f"{name}=580.*" for name in driver_names),
        f"linux-modules-nvidia-{series}-6.8.0-151-generic",
    ]
    # They are held, and change with the modules. So they are held again.
    assert data["newest"] is True
    slugs = [one["slug"] for one in planned["steps"]]
    assert slugs[slugs.index("install") + 1] == "hold"
    assert data["hold"] == driver_names
    assert driver(UBUNTU)["data"]["newest"] is False
    # NVIDIA's repository has exact versions.
    assert driver(VIRGIN, version="580.178.04")["data"]["newest"] is False


NEXT = "linux-modules-nvidia-580-server-6.8.0-61-generic"


def works_on_ubuntu(**changes: Any) -> dict[str, Any]:
    """Return a node whose driver, Ubuntu's, this role installed."""
    version, modules = "580.178.04-0ubuntu0.24.04.1", "linux-modules-nvidia-580-server-"
    packages = {
        **{f"nvidia-{one}-580-server": version for one in ("headless-no-dkms", "utils")},
        "nvidia-compute-utils-580-server": version,
        f"{modules}6.8.0-60-generic": "6.8.0-60.63",
        f"{modules}generic": "6.8.0-60.63",
    }
    node = merge(installed(), {name: UBUNTU[name] for name in ("os", "kernel", "package_sources")})
    node["packages"] = {
        name: {"version": one, "held": "modules" not in name} for name, one in packages.items()
    }
    noted = {name: "*" if "modules" in name else "580.*" for name in packages}
    node["ours"]["packages"] = record("nvidia_driver", noted)["packages"]
    node["kernel"]["modules"] = DONE["kernel"]["modules"]
    found = {"packages": packages, "module_version": "580.178.04", "disk_version": "580.178.04"}
    more = {"driver": found, "nvml": {"driver_version": "580.178.04"}, "repositories": {}}
    return merge({**node, **{name: {**node[name], **one} for name, one in more.items()}}, changes)


def test_modules_of_the_next_kernel() -> None:
    missing = {"package": NEXT, "error": None}
    planned = driver(works_on_ubuntu(signed_modules=missing), source="distribution")
    assert (planned["refusals"], planned["notices"]) == ([], [])
    assert names(planned) == ["Install what the next kernel needs"]
    assert planned["data"]["following"] == [NEXT]
    # A teardown removes them.
    assert planned["data"]["packages_record"]["packages"].keys() == {NEXT}
    assert driver(works_on_ubuntu(), source="distribution")["steps"] == []


@pytest.mark.parametrize(
    ("more", "desired", "words"),
    [
        pytest.param({"error": "needs 580.179"}, {}, "loses the GPUs: needs 580.179", id="newer"),
        pytest.param({}, {"source": "present"}, "loses the GPUs", id="only checked"),
    ],
)
def test_next_kernel_without_modules(
    more: dict[str, str], desired: dict[str, str], words: str
) -> None:
    """A driver that works is not updated."""
    missing = {"package": NEXT, "error": None, **more}
    node = works_on_ubuntu(signed_modules=missing)
    planned = driver(node, **{"source": "distribution", **desired})
    assert planned["steps"] == []
    (notice,) = planned["notices"]
    assert notice["code"] == "KERNEL_WITHOUT_MODULES"
    assert words in notice["message"]


def test_present_changes_nothing() -> None:
    planned = driver(DEBIAN, source="present")
    (refusal,) = planned["refusals"]
    assert refusal["code"] == "DRIVER_NOT_PRESENT"
    assert "nvidia-smi is not installed" in refusal["message"]
    node = installed(driver={"modules_load": [], "persistenced": {"active": False}})
    assert names(driver(node)) == [
        "Load the NVIDIA modules at boot",
        "Start the persistence daemon",
    ]
    planned = driver(node, source="present")
    assert (planned["steps"], planned["refusals"]) == ([], [])
    assert "Remove the driver" in names(driver(node, source="present", state="absent"))


@pytest.mark.parametrize("version", ["latest", "580", "580.x"])
def test_what_is_no_version_is_refused(version: str) -> None:
    (refusal,) = driver(DEBIAN, version=version)["refusals"]
    assert refusal["code"] == "VARIABLE_INVALID"
    assert f"nvidia_driver_version is '{version}', expected " in refusal["message"]
    assert [one["code"] for one in driver(installed(), version=version)["notices"]] == [
        "DRIVER_KEPT"
    ]


def test_headers_of_the_next_kernel_are_no_condition() -> None:
    """The archive had 6.12.107 and 6.12.117 on 2026-11-23, and the headers of 6.12.113 alone."""
    image = {"linux-image-amd64": {"version": "6.12.113-1", "held": False}}
    node = merge(DEBIAN, {"kernel": {"release": "6.12.113+deb13-amd64"}, "packages": image})
    planned = driver(node)
    headers = [name for name in planned["data"]["packages"] if "headers" in name]
    assert headers == ["linux-headers-6.12.113+deb13-amd64"]
    assert planned["data"]["following"] == ["linux-headers-amd64=6.12.113-1", "linux-headers-amd64"]
    order = names(planned)
    assert (
        order.index("Install what the next kernel needs") == order.index("Install the driver") + 1
    )
    # The admin's other modules may need headers, so a teardown leaves them.
    assert not any("headers" in name for name in planned["data"]["packages_record"]["packages"])


def test_working_driver_that_the_next_kernel_would_lose_is_named() -> None:
    image = {"linux-image-amd64": {"version": "6.12.107-1", "held": False}}
    planned = driver(installed(packages=image))
    assert planned["steps"] == []
    (notice,) = planned["notices"]
    assert notice["code"] == "KERNEL_HEADERS_LEFT"
    assert "linux-headers-amd64 is not installed" in notice["message"]
    headers = {"linux-headers-amd64": {"version": "6.12.107-1", "held": False}}
    assert driver(installed(packages={**image, **headers}))["notices"] == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"os": {"architecture": "aarch64"}}, ["ARM64_UNSUPPORTED"], id="arm64"),
        pytest.param({"pci": [{**GPU, "device": "2342"}]}, ["ARM64_UNSUPPORTED"], id="Grace"),
        pytest.param(
            {"pci": [{**GPU, "device": "102d"}, {**GPU, "device": "2330"}]},
            ["GPUS_INCOMPATIBLE"],
            id="Kepler beside Hopper",
        ),
        pytest.param({"secure_boot": True}, ["SECURE_BOOT_ON"], id="Secure Boot"),
        pytest.param(
            {"kernel": {"modules": ["nouveau"]}, "pci": [{**GPU, "device": "102d"}]},
            ["DRIVER_BRANCH_MISSING", "NOUVEAU_LOADED"],
            id="two reasons",
        ),
    ],
)
def test_refusals(changes: dict[str, Any], expected: list[str]) -> None:
    assert codes(driver(merge(DEBIAN, changes))) == expected


def test_driver_that_no_source_has_is_kept_where_it_works() -> None:
    node = installed(pci=[{**GPU, "device": "102d"}])
    planned = driver(node)
    assert (planned["steps"], planned["refusals"], planned["notices"]) == ([], [], [])


@pytest.mark.parametrize(
    ("wish", "sets_up"),
    [
        pytest.param({}, True, id="any"),
        pytest.param({"version": "550.163.01"}, True, id="this version"),
        pytest.param({"branch": 550}, True, id="this branch"),
        pytest.param({"branch": 595}, False, id="another branch"),
        pytest.param({"version": "580.65.06"}, False, id="another version"),
    ],
)
def test_driver_that_no_source_can_deliver_is_set_up(wish: dict[str, Any], sets_up: bool) -> None:
    """With Secure Boot, the admin has installed and signed it, as the refusal asked for."""
    planned = driver(installed(secure_boot=True, driver={"unblocked": ["nouveau"]}), **wish)
    assert planned["refusals"] == []
    assert ("Block the nouveau module" in names(planned)) is sets_up
    assert [one["code"] for one in planned["notices"]] == ([] if sets_up else ["DRIVER_KEPT"])

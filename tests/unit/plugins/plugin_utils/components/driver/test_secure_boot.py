# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secure Boot: which node is refused or warned, and what the words tell the admin to do."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import dkms
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import secure_boot
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.driver.test_modules import (  # noqa: E501
    DEBIAN_12,
    DEBIAN_13,
    LOADED,
    NEWER,
    RUNNING,
    UBUNTU,
    kernel,
    notices,
    slugs,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    BROKEN,
    DONE,
    VIRGIN,
    codes,
    merge,
    plan,
)

KEY, CERTIFICATE = "/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub"


def key(**changes: str | None) -> dict[str, Any]:
    """Return an enrolled key of DKMS, with changes."""
    pair = {"private_key": KEY, "certificate": CERTIFICATE}
    whole = {**pair, "missing_key": None, "missing_certificate": None}
    return {**whole, "state": "enrolled", "error": None, **changes}


def without(certificate: str, *, private_key: str, has_key: bool = True) -> dict[str, Any]:
    """Return a key without its certificate. `has_key`: the private key is there."""
    return key(
        certificate=None,
        state="missing",
        private_key=private_key,
        missing_key=None if has_key else private_key,
        missing_certificate=certificate,
    )


NO_KEY = without(CERTIFICATE, private_key=KEY, has_key=False)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        pytest.param(
            None,
            "install dkms, openssl and mokutil, create a key with `install -d /var/lib/dkms",
            id="unknown",
        ),
        pytest.param(
            NO_KEY,
            "install dkms, openssl and mokutil, create a key with `install -d /var/lib/dkms",
            id="no key",
        ),
        pytest.param(
            key(certificate="/k", state="missing"),
            "enrol the key of DKMS: run `mokutil --import /k`",
            id="not enrolled",
        ),
        pytest.param(
            key(certificate="/k", state="requested"),
            'confirm the key /k: reboot the node, and choose "Enroll MOK"',
            id="requested",
        ),
        pytest.param(
            key(certificate="/k", state="unknown", error="mokutil: odd"),
            "enrol the key of DKMS (its state is unknown: mokutil: odd): run",
            id="unknown state",
        ),
        pytest.param(
            key(certificate="mok_certificate=$x", state="unknown", error="odd"),
            "enrol the key of DKMS (its state is unknown: odd): run `mokutil --import FILE`",
            id="unknown certificate",
        ),
        pytest.param(
            key(certificate="/my keys/k", state="missing"),
            "enrol the key of DKMS: run `mokutil --import '/my keys/k'`",
            id="quoted",
        ),
    ],
)
def test_a_key_that_is_not_enrolled(found: dict[str, Any] | None, words: str) -> None:
    node = merge(VIRGIN, {"secure_boot": True, "driver": {"signing": found}})
    (refusal,) = plan("nvidia_driver", node)["refusals"]
    assert refusal["code"] == "SECURE_BOOT_ON"
    assert refusal["remedy"].startswith(words)
    assert "turn Secure Boot off" in refusal["remedy"]


@pytest.mark.parametrize(
    ("system", "command"),
    [
        ({"id": "debian", "version_id": "12"}, "openssl req -new -x509"),
        ({"id": "debian", "version_id": "13"}, "dkms generate_mok"),
        ({"id": "rocky", "version_id": "9.6"}, "dkms generate_mok"),
        ({"id": "ubuntu", "version_id": "24.04"}, "update-secureboot-policy --new-key"),
    ],
)
def test_what_creates_the_key(system: dict[str, str], command: str) -> None:
    node = merge(VIRGIN, {"os": system, "driver": {"signing": None}})
    assert command in secure_boot.way_out(node)


TOKEN = 'mok_signing_key="pkcs11:object=k;…'
IMPORT_IT = "; then enrol the key if the firmware does not trust it yet: run `mokutil --import"


@pytest.mark.parametrize("system", [DEBIAN_12, DEBIAN_13, UBUNTU], ids=["12", "13", "Ubuntu"])
@pytest.mark.parametrize(
    ("found", "why", "way"),
    [
        pytest.param(
            without(CERTIFICATE, private_key="/k"),
            "DKMS would sign with a new key, which the firmware does not trust: only the "
            "certificate /var/lib/dkms/mok.pub is missing",
            "restore the certificate /var/lib/dkms/mok.pub from a backup, or put a key at /k and "
            f"its certificate, as DER, at /var/lib/dkms/mok.pub{IMPORT_IT}",
            id="private key of the admin",
        ),
        pytest.param(
            without("/c", private_key="/k", has_key=False),
            "DKMS would sign with a new key, which the firmware does not trust: there is no key "
            "yet",
            "put a key at /k and its certificate, as DER, at /c, and run again for the next step",
            id="both files of the admin",
        ),
        pytest.param(
            without(CERTIFICATE, private_key=TOKEN),
            "DKMS would not sign: the certificate /var/lib/dkms/mok.pub of its key in a token is "
            "missing",
            "export the certificate of the key from its token to /var/lib/dkms/mok.pub, as DER"
            f"{IMPORT_IT} /var/lib/dkms/mok.pub`",
            id="private key in a token",
        ),
    ],
)
def test_no_command_creates_a_key_that_dkms_does_not_take(
    system: dict[str, Any], found: dict[str, Any], why: str, way: str
) -> None:
    """The commands create the system's own pair, or overwrite the key of the admin."""
    node = merge(VIRGIN, {**system, "driver": {"signing": found}})
    assert secure_boot.distrust(node) == why
    words = secure_boot.way_out(node)
    assert way in words
    assert not any(one in words for one in ("openssl req", "generate_mok", "--new-key", "rm "))


def test_the_easiest_way_with_secure_boot_comes_first() -> None:
    """Ubuntu's own modules, then the key, then the firmware, and last a driver of the admin."""
    changes = {**UBUNTU, "secure_boot": True, "driver": {"signing": None}}
    node = merge(VIRGIN, {**changes, "kernel": {"release": "6.8.0-60-generic"}})
    (refusal,) = plan("nvidia_driver", node, source="nvidia")["refusals"]
    assert refusal["code"] == "SECURE_BOOT_ON"
    ways = [
        "set `nvidia_driver_source: distribution` and remove nvidia_driver_version, for driver of "
        "branch 580 (",
        "install dkms, openssl, mokutil and shim-signed, create a key with "
        "`update-secureboot-policy --new-key`",
        "turn Secure Boot off",
        "install a driver yourself, with a signed module",
    ]
    assert refusal["remedy"].startswith(ways[0])
    found = [refusal["remedy"].index(one) for one in ways]
    assert found == sorted(found)
    assert refusal["remedy"].count("nvidia_driver_source: distribution") == 1


def test_an_enrolled_key_signs_and_the_role_goes_on() -> None:
    node = merge(VIRGIN, {"secure_boot": True, "driver": {"signing": key()}})
    planned = plan("nvidia_driver", node)
    assert planned["refusals"] == []
    assert "install" in slugs(planned)


ALONE = key(missing_key=KEY)
ALONE_ON_UBUNTU = {
    **ALONE,
    "certificate": "/var/lib/shim-signed/mok/MOK.der",
    "private_key": "/var/lib/shim-signed/mok/MOK.priv",
    "missing_key": "/var/lib/shim-signed/mok/MOK.priv",
}
OPENSSL = "openssl req -new -x509"


@pytest.mark.parametrize("state", ["enrolled", "requested", "missing"])
@pytest.mark.parametrize(
    ("system", "found", "words"),
    [
        (DEBIAN_12, ALONE, f"or create a key with `install -d /var/lib/dkms && {OPENSSL}"),
        (DEBIAN_13, ALONE, "or create a key with `dkms generate_mok`; then enrol the key"),
        (
            UBUNTU,
            ALONE_ON_UBUNTU,
            "or create a key with `rm /var/lib/shim-signed/mok/MOK.der && "
            "update-secureboot-policy --new-key`",
        ),
        *(
            (
                system,
                key(private_key="/k", missing_key="/k"),
                "or put a key at /k and its certificate, as DER, at /var/lib/dkms/mok.pub; then",
            )
            for system in (DEBIAN_13, UBUNTU)
        ),
    ],
)
def test_a_certificate_without_its_private_key_signs_nothing(
    system: dict[str, Any], found: dict[str, Any], words: str, state: str
) -> None:
    changes = {**system, "secure_boot": True, "driver": {"signing": {**found, "state": state}}}
    node: Any = merge(VIRGIN, {**changes, "kernel": {"release": "6.8.0-60-generic"}})
    node["pci"] = [{**gpu, "device": "2330"} for gpu in node["pci"]]
    source = {"source": "nvidia", "version": "595.71.05"}
    (refusal,) = plan("nvidia_driver", node, **source)["refusals"]
    assert refusal["code"] == "SECURE_BOOT_ON"
    assert (
        f"restore the private key {found['missing_key']} from a backup, {words}"
        in (refusal["remedy"])
    )


IMPORT = "run `mokutil --import /var/lib/dkms/mok.pub`, set a one-time password, reboot the node"
NEW_KEY = "DKMS would sign with a new key, which the firmware does not trust"
LOST = without(CERTIFICATE, private_key=KEY)


@pytest.mark.parametrize(
    ("found", "why", "way"),
    [
        pytest.param(
            ALONE,
            f"{NEW_KEY}: only the private key /var/lib/dkms/mok.key is missing",
            "restore the private key /var/lib/dkms/mok.key from a backup, or create a key",
            id="no private key",
        ),
        pytest.param(
            LOST,
            f"{NEW_KEY}: only the certificate /var/lib/dkms/mok.pub is missing",
            "restore the certificate /var/lib/dkms/mok.pub from a backup, or create a key",
            id="no certificate",
        ),
        pytest.param(
            NO_KEY,
            f"{NEW_KEY}: there is no key yet",
            "install dkms, openssl and mokutil, create a key",
            id="no key",
        ),
        pytest.param(
            key(state="missing"),
            "the firmware does not trust the key of DKMS, /var/lib/dkms/mok.pub",
            f"enrol the key of DKMS: {IMPORT}",
            id="not enrolled",
        ),
        pytest.param(
            key(state="requested"),
            "the firmware does not trust the key of DKMS yet: nobody has confirmed its enrolment",
            "confirm the key /var/lib/dkms/mok.pub: reboot the node",
            id="requested",
        ),
        pytest.param(
            key(state="unknown", error="mokutil: odd"),
            "nobody knows whether the firmware trusts the key of DKMS: mokutil: odd",
            f"enrol the key of DKMS (its state is unknown: mokutil: odd): {IMPORT}",
            id="unknown",
        ),
    ],
)
def test_a_driver_that_works_and_whose_next_module_may_be_refused(
    found: dict[str, Any], why: str, way: str
) -> None:
    """It stays, and nothing is built: the module for the next kernel would not load."""
    changes = {"secure_boot": True, "driver": {"signing": found}}
    planned = plan("nvidia_driver", merge(DONE, changes))
    assert (planned["steps"], planned["refusals"]) == ([], [])
    (notice,) = planned["notices"]
    assert notice["code"] == "SIGNING_KEY_UNTRUSTED"
    assert f"Secure Boot is on, and {why}; if the kernel refuses" in notice["message"]
    assert notice["remedy"].startswith(way)
    newer = merge(DONE, merge(changes, {"driver": {"next_kernel": kernel(headers=True)}}))
    planned = plan("nvidia_driver", newer)
    assert (planned["steps"], notices(planned)) == ([], ["SIGNING_KEY_UNTRUSTED", "KERNEL_PENDING"])
    assert f"({why})" in planned["notices"][1]["message"]
    assert planned["notices"][1]["remedy"].startswith(way)
    assert "; or boot the running kernel again" in planned["notices"][1]["remedy"]


@pytest.mark.parametrize("lone", [ALONE, LOST], ids=["private key", "certificate"])
def test_the_words_about_a_missing_file_have_all_steps(lone: dict[str, Any]) -> None:
    """Such a driver works, so no refusal of a later run has the rest."""
    node = merge(DONE, {**DEBIAN_13, "secure_boot": True, "driver": {"signing": lone}})
    (notice,) = [
        one
        for one in plan("nvidia_driver", node)["notices"]
        if one["code"] == "SIGNING_KEY_UNTRUSTED"
    ]
    assert "`dkms generate_mok`; then enrol the key if the firmware does not" in notice["remedy"]
    assert IMPORT in notice["remedy"]


def test_a_new_key_that_nobody_has_enrolled_is_still_reported() -> None:
    """An admin has created it, as the first notice says, and has forgotten the other steps."""
    for found in (ALONE, key(state="missing"), key(state="requested")):
        node = merge(DONE, {"secure_boot": True, "driver": {"signing": found}})
        assert notices(plan("nvidia_driver", node)) == ["SIGNING_KEY_UNTRUSTED"]
    node = merge(DONE, {"secure_boot": True, "driver": {"signing": key()}})
    assert notices(plan("nvidia_driver", node)) == []


def test_what_a_former_driver_left_in_dkms_needs_no_key() -> None:
    node = merge(DONE, {"secure_boot": True, "driver": {"signing": ALONE}})
    (build,) = node["driver"]["dkms"]["builds"].values()
    node["driver"]["dkms"] = dkms.join({"nvidia/535.309.01": build})
    assert notices(plan("nvidia_driver", node)) == []


def test_nvidia_uvm_that_has_to_be_built_again_needs_the_key() -> None:
    """Otherwise modprobe would fail."""
    lacking = {"driver": {"uvm_readable": False}, "kernel": {"modules": ["nvidia"]}}
    node = merge(merge(DONE, lacking), {"secure_boot": True, "driver": {"signing": ALONE}})
    planned = plan("nvidia_driver", node)
    assert (codes(planned), planned["steps"]) == (["SECURE_BOOT_ON"], [])
    (refusal,) = planned["refusals"]
    assert (
        f"nvidia_uvm of kernel {RUNNING} must be built again, and {NEW_KEY}" in (refusal["message"])
    )
    assert refusal["remedy"].startswith("restore the private key /var/lib/dkms/mok.key")
    trusted = merge(node, {"driver": {"signing": key()}})
    assert slugs(plan("nvidia_driver", trusted)) == ["build", *LOADED]


UNLOADED = {
    "driver": {"module_version": None},
    "kernel": {"modules": []},
    "nvml": {"failure": BROKEN, "devices": []},
}


def test_a_module_that_is_built_already_loads_without_the_private_key() -> None:
    changes = {"secure_boot": True, "driver": {"signing": ALONE}}
    node = merge(merge(DONE, UNLOADED), changes)
    planned = plan("nvidia_driver", node)
    assert (codes(planned), slugs(planned)) == ([], [*LOADED])
    newer = merge(node, {"driver": {"next_kernel": kernel(headers=True)}})
    assert slugs(plan("nvidia_driver", newer)) == [*LOADED]


@pytest.mark.parametrize(
    "unfit",
    [
        pytest.param({"dkms": {"built": False, "kernels": []}}, id="not built"),
        pytest.param({"module_files": [], "disk_version": None}, id="gone"),
        pytest.param({"uvm_readable": False}, id="cut off"),
        pytest.param({"disk_version": "535.309.01"}, id="of a former driver"),
    ],
)
def test_a_module_that_has_to_be_built_needs_the_private_key(unfit: dict[str, Any]) -> None:
    changes = {"secure_boot": True, "driver": {"signing": ALONE, **unfit}}
    node = merge(merge(DONE, UNLOADED), changes)
    assert "SECURE_BOOT_ON" in codes(plan("nvidia_driver", node))


def test_a_driver_that_dkms_does_not_build_needs_no_key() -> None:
    changes = {"secure_boot": True, "driver": {"signing": ALONE, "dkms": dkms.join({})}}
    assert "SIGNING_KEY_UNTRUSTED" not in notices(plan("nvidia_driver", merge(DONE, changes)))


def test_a_reboot_into_a_kernel_whose_module_needs_the_key() -> None:
    """The module for the running kernel has the signature of the enrolled key."""
    changes = {
        "secure_boot": True,
        "driver": {"signing": ALONE, "next_kernel": kernel(headers=True)},
        "kernel": {"modules": ["nouveau"]},
    }
    node = merge(merge(DONE, UNLOADED), changes)
    planned = plan("nvidia_driver", node, reboot_ok=True)
    assert (codes(planned), planned["steps"]) == (["SECURE_BOOT_ON"], [])
    (refusal,) = planned["refusals"]
    assert (
        f"the module of kernel {NEWER}, which boots next, must be built, and {NEW_KEY}"
        in (refusal["message"])
    )
    assert refusal["remedy"].startswith("restore the private key /var/lib/dkms/mok.key")
    trusted = merge(node, {"driver": {"signing": key()}})
    assert "build" in slugs(plan("nvidia_driver", trusted, reboot_ok=True))

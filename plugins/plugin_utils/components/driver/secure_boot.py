# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does the kernel of a node load modules that are built on the node, and what makes it do so?"""

from __future__ import annotations

import shlex

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read.signing import Signing, is_path, pair
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import state
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import Data
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

_AT_THE_CONSOLE = (
    'reboot the node, and choose "Enroll MOK", "Continue", "Yes" at its console within 10 seconds, '
    "enter the password, and run again"
)

# What dkms 3.0.10 of Debian 12, which has no generate_mok, runs before it signs its first module.
_BY_OPENSSL = (
    "install -d /var/lib/dkms && openssl req -new -x509 -nodes -days 36500 "
    '-subj "/CN=DKMS module signing key" -newkey rsa:2048 -keyout /var/lib/dkms/mok.key '
    "-outform DER -out /var/lib/dkms/mok.pub"
)


def refuses_unsigned(node: Node) -> bool:
    """Whether Secure Boot is on, and the kernel refuses the module that a driver needs.

    A driver that DKMS has built needs no other one, and loads even if its private key is gone.
    """
    key = node["driver"]["signing"]
    is_enrolled = key is not None and key["state"] == "enrolled"
    return refuses_next(node) and not (is_enrolled and _is_built(node))


def refuses_next(node: Node) -> bool:
    """Whether Secure Boot is on, and the kernel refuses the next module that DKMS builds.

    Without the private key, DKMS creates another pair first.
    """
    key = node["driver"]["signing"]
    is_trusted = key is not None and key["state"] == "enrolled" and not key["missing_key"]
    return bool(node["secure_boot"]) and not is_trusted


def _is_built(node: Node) -> bool:
    """Whether DKMS has built the modules of the installed driver for the running kernel."""
    driver = node["driver"]
    installed = {*driver_packages.versions(driver["packages"]), driver["installer"]["version"]}
    is_whole = bool(driver["dkms"]["built"]) and state.has_usable_modules(node)
    return is_whole and driver["disk_version"] in installed


def notice_untrusted(plan: Plan[Data], node: Node) -> None:
    """Report that the kernel may refuse the next module of a driver that works."""
    if refuses_next(node) and node["driver"]["dkms"]["sources"]:
        plan.notice("SIGNING_KEY_UNTRUSTED", why=distrust(node), way=way_out(node))


def refuse(plan: Plan[Data], node: Node, found: str) -> None:
    """Refuse a node that needs a module which DKMS would build. `found`: which module, and why."""
    own = "install a driver yourself, with a signed module: the role keeps a driver that works"
    reasons = f"{found}, and {distrust(node)}"
    key = way_out(node)
    plan.refuse("SECURE_BOOT_ON", reasons=reasons, signed="", key=key, alternatives=own)


def distrust(node: Node) -> str:
    """Return why the kernel refuses, or may refuse, the next module that DKMS builds."""
    key = node["driver"]["signing"]
    if key is None or not _is_whole(key):
        if key and not is_path(key["private_key"]):
            found = f"the certificate {key['missing_certificate']} of its key in a token is missing"
            return f"DKMS would not sign: {found}"
        lost = key and _lost(key)
        found = f"only {lost} is missing" if lost else "there is no key yet"
        return f"DKMS would sign with a new key, which the firmware does not trust: {found}"
    if key["state"] == "unknown":
        return f"nobody knows whether the firmware trusts the key of DKMS: {key['error']}"
    if key["state"] == "requested":
        return "the firmware does not trust the key of DKMS yet: nobody has confirmed its enrolment"
    return f"the firmware does not trust the key of DKMS, {key['certificate']}"


def way_out(node: Node) -> str:
    """Return how an admin lets the firmware trust the key of DKMS."""
    key = node["driver"]["signing"]
    if key and _lost(key):
        return _restoration(node, key)
    if key is None or not _is_whole(key):
        return f"install {_needed(node)}, {_new_pair(node, key)}, and run again for the next step"
    if key["state"] == "requested":
        return f"confirm the key {key['certificate']}: {_AT_THE_CONSOLE}"
    unknown = f" (its state is unknown: {key['error']})" if key["error"] else ""
    return f"enrol the key of DKMS{unknown}: {_enrolment(_certificate(key))}"


def _enrolment(certificate: str) -> str:
    path = shlex.quote(certificate) if is_path(certificate) else "FILE"
    return f"run `mokutil --import {path}`, set a one-time password, {_AT_THE_CONSOLE}"


def _is_whole(key: Signing) -> bool:
    """Whether no file is missing, as far as this is known."""
    return not (key["missing_key"] or key["missing_certificate"])


def _lost(key: Signing) -> str | None:
    """Return which one of the two files is missing, in words, if only one is."""
    private_key, certificate = key["missing_key"], key["missing_certificate"]
    if bool(private_key) == bool(certificate):
        return None
    return f"the private key {private_key}" if private_key else f"the certificate {certificate}"


def _certificate(key: Signing) -> str:
    return key["certificate"] or key["missing_certificate"] or ""


def _restoration(node: Node, key: Signing) -> str:
    """Return what an admin does if one of the two files is missing."""
    certificate = _certificate(key)
    way = f"restore {_lost(key)} from a backup, or {_new_pair(node, key)}"
    if not is_path(key["private_key"]):
        way = f"export the certificate of the key from its token to {certificate}, as DER"
    return (
        f"{way}; then enrol the key if the firmware does not trust it yet: "
        f"{_enrolment(certificate)}"
    )


def _new_pair(node: Node, key: Signing | None) -> str:
    """Return how an admin creates a key and its certificate where DKMS looks for them.

    The commands know only the system's own two files.
    """
    system, command = node["os"]["id"], _creation(node)
    if key:
        files = (key["private_key"], _certificate(key))
        if files != pair(system, ()):
            return "put a key at {} and its certificate, as DER, at {}".format(*files)
        if system == "ubuntu" and key["certificate"]:  # it creates nothing beside one
            command = f"rm {key['certificate']} && {command}"
    return f"create a key with `{command}`"


def _needed(node: Node) -> str:
    """Return the packages that create the key of DKMS, sign with it and enrol it."""
    names = "dkms, openssl, mokutil"
    if node["os"]["id"] == "ubuntu":  # it has update-secureboot-policy
        return f"{names} and shim-signed"
    return " and ".join(names.rsplit(", ", 1))


def _creation(node: Node) -> str:
    """Return the command that creates the key of DKMS."""
    system = node["os"]
    if system["id"] == "ubuntu":
        return "update-secureboot-policy --new-key"
    is_old = (system["id"], system["version_id"]) == ("debian", "12")
    return _BY_OPENSSL if is_old else "dkms generate_mok"

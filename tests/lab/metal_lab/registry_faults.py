# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of the registry: `lab fault registry FAULT`. All of them stay until `restore`."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from metal_lab import registry, registry_content
from metal_lab.state import State

DEFAULT_DELAY_S = "2"


def _setting(**changes: bool | str) -> Callable[[State], None]:
    def inject(state: State) -> None:
        registry.apply(state, replace(registry.settings(state), **changes))  # type: ignore[arg-type]

    return inject


def _slow(state: State, seconds: str = DEFAULT_DELAY_S) -> None:
    if not re.fullmatch(r"\d+(\.\d+)?", seconds):
        raise SystemExit(f"slow: {seconds!r} is not a number of seconds")
    delay_s = float(seconds)
    registry.apply(state, replace(registry.settings(state), delay_s=delay_s))


def _wrong_password(state: State) -> None:
    registry.set_password(state, secrets.token_urlsafe())


def _tags(state: State, image: str) -> list[Path]:
    """Return the folders of an image's tag. If there is no such image, exit with all images."""
    known = registry.images(state)
    if image not in known:
        names = "\n".join(known)
        raise SystemExit(f"no image {image!r} in the registry; it has:\n{names}")
    reference = registry_content.parse(image)
    repositories = registry.storage(state) / "docker/registry/v2/repositories"
    return [
        repositories / repository / "_manifests/tags" / reference.tag
        for repository in reference.repositories
    ]


def _missing(state: State, image: str) -> None:
    for tag in _tags(state, image):
        shutil.rmtree(tag, ignore_errors=True)  # it may be missing already


def _foreign(state: State, image: str) -> None:
    for tag in _tags(state, image):
        (tag / "current/link").write_text(registry.images(state)[image]["foreign"])


def _corrupt(state: State, image: str) -> None:
    _tags(state, image)
    digest = registry.images(state)[image]["layer"].removeprefix("sha256:")
    blob = registry.storage(state) / f"docker/registry/v2/blobs/sha256/{digest[:2]}/{digest}/data"
    content = bytearray(blob.read_bytes())
    content[-1] ^= 1
    blob.write_bytes(content)


class Fault(NamedTuple):
    """A fault with its arguments, as `list` shows them."""

    what: str
    inject: Callable[..., None]
    required: int = 0  # number of arguments
    optional: int = 0


FAULTS = {
    "down": Fault("connections are refused", registry.stop),
    "slow": Fault(
        f"[SECONDS]: what a client sends arrives SECONDS later, by default {DEFAULT_DELAY_S};"
        " with 3600, the registry hangs",
        _slow,
        optional=1,
    ),
    "wrong-password": Fault("the password of the facts is not valid any more", _wrong_password),
    "no-login": Fault("everybody may pull without a login", _setting(needs_login=False)),
    "expired-certificate": Fault(
        "the certificate has expired", _setting(certificate=registry.EXPIRED)
    ),
    "unknown-authority": Fault(
        "another authority issued the certificate", _setting(certificate=registry.STRANGER)
    ),
    "client-certificate": Fault(
        "only clients with a certificate of the registry's authority are served",
        _setting(needs_client_certificate=True),
    ),
    "missing-image": Fault("IMAGE: the tag does not exist", _missing, required=1),
    "foreign-image": Fault(
        "IMAGE: the tag is a list of images with arm64 alone", _foreign, required=1
    ),
    "corrupt-image": Fault(
        "IMAGE: the layer has another digest than the manifest says", _corrupt, required=1
    ),
    "restore": Fault("undo all faults of the registry", registry.restore),
}


def inject(state: State, name: str, arguments: Sequence[str]) -> str:
    """Inject a fault into the registry. Return what to say."""
    if not state.registry:
        raise SystemExit(
            f"laboratory {state.name!r} has no registry; to get one: the part 'registry', or"
            " 'images: registry' of a node"
        )
    return choose(registry.NAME, FAULTS, state, name, arguments)


def choose(
    service: str, faults: Mapping[str, Fault], state: State, name: str, arguments: Sequence[str]
) -> str:
    """Inject one of the faults of a service, or list them."""
    if name == "list":
        return "\n".join(f"{known:26}{fault.what}" for known, fault in faults.items())
    if name not in faults:
        raise SystemExit(f"no fault {name!r}; to list the faults: lab fault {service} list")
    fault = faults[name]
    if not fault.required <= len(arguments) <= fault.required + fault.optional:
        raise SystemExit(f"wrong number of arguments: {name} {fault.what}")
    fault.inject(state, *arguments)
    return ""

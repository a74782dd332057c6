# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find out why a registry does not give a node an image, from the words of its engine.

A registry that cannot be reached, or does not have the image, is no case of this: the caller quotes
the error.

Source: tests/recorded/registries.yml, words
"""

from __future__ import annotations

import re

from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import Cause, quote

# The status of the answer itself: other numbers of an error can have the same digits.
_STATUS = r"unexpected status(?: from \w+ request to \S+|:) 40[13]\b"
# The first one that matches counts. An error can have several: a certificate that has expired is
# also not verified, and a refused login also ends in 401.
_WORDS = (
    (
        "IMAGE_PLATFORM_MISSING",
        r"no match for platform in manifest|no matching manifest for \S+ in the manifest list"
        r"|no image found in (?:image index|manifest list) for architecture",
    ),
    (
        "IMAGE_DIGEST_DIFFERS",
        r"unexpected commit digest sha256:|[Mm]anifest does not match provided manifest digest"
        r"|manifest verification failed for digest|[Dd]igest did not match, expected"
        r"|filesystem layer verification failed for digest",
    ),
    ("REGISTRY_CERTIFICATE_EXPIRED", r"x509: certificate has expired or is not yet valid"),
    (
        "REGISTRY_UNTRUSTED",
        r"x509: certificate signed by unknown authority|x509: certificate is valid for "
        r"|x509: certificate is not valid for any names|doesn't contain any IP SANs"
        r"|x509: certificate relies on legacy Common Name",
    ),
    (
        "REGISTRY_LOGIN_REFUSED",
        rf"(?i)failed to fetch oauth token: {_STATUS}|invalid username/password"
        r"|incorrect username or password|tls: (?:bad certificate|certificate required)"
        r"|(?<!token: )unexpected status from \w+ request to \S+ 401 unauthorized",
    ),
    (
        "REGISTRY_LOGIN_MISSING",
        rf"(?i)failed to fetch anonymous token: {_STATUS}|no basic auth credentials"
        r"|pulling from host \S+ failed with status code \[manifests \S+\]: 401 Unauthorized"
        r"|(?<!proxy )authentication required",
    ),
)
# Registries also say so about an image that does not exist. Docker Hub has public images, so a
# wrong name is likely there.
_DENIED = re.compile(r"pull access denied|insufficient_scope", re.IGNORECASE)
_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")
_CAUSES = tuple((code, re.compile(words, re.DOTALL)) for code, words in _WORDS)


def of_pull(error: str, image: str, setting: str) -> Cause | None:
    """Return why the node cannot pull an image; None if the words have no known reason."""
    code = next((code for code, words in _CAUSES if words.search(error)), None)
    if code is None and _DENIED.search(error) and not _is_of_docker_hub(image):
        code = "REGISTRY_LOGIN_MISSING"
    if code is None:
        return None
    what = image if code.startswith("IMAGE_") else f"the registry of {image}"
    return Cause(code, {"what": what, "issuer": "", "error": quote(error), "setting": setting})


def _is_of_docker_hub(image: str) -> bool:
    host, slash, _rest = image.partition("/")
    is_host = bool(slash) and ("." in host or ":" in host or host == "localhost")
    return not is_host or host in _DOCKER_HUB

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: signing_key
short_description: Fetch a repository's signing key and check its fingerprint
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Fetches an OpenPGP public key on the controller and returns it armoured, for C(signed_by) of
    M(ansible.builtin.deb822_repository).
  - Returns only the certificate with this fingerprint. Fails if the key has another fingerprint, if
    it was revoked or has expired, or if the text contains anything else, such as a second key.
options:
  _terms:
    description:
      - The key, as a URL, a file on the controller, or the armoured key itself.
    type: list
    elements: str
    required: true
  fingerprint:
    description:
      - The fingerprint of the primary key. Spaces and case are ignored.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Add Docker's repository
  ansible.builtin.deb822_repository:
    name: docker
    uris: https://download.docker.com/linux/debian
    suites: bookworm
    components: stable
    signed_by: "{{ lookup('metal.gpu.signing_key', 'https://download.docker.com/linux/debian/gpg',
      fingerprint='9DC8 5822 9FC7 DD38 854A E2D8 8D81 803C 0EBF CD88') }}"
"""

RETURN = r"""
_raw:
  description: The armoured keys.
  type: list
  elements: str
"""

from datetime import UTC, datetime
from typing import Any
from urllib.error import URLError

from ansible.errors import AnsibleError
from ansible.module_utils.common.text.converters import to_native
from ansible.module_utils.urls import ConnectionError as FetchError
from ansible.module_utils.urls import SSLValidationError, open_url
from ansible.plugins.lookup import LookupBase

from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.pinned_key import (
    KeyRefused,
    pinned_key,
)


class LookupModule(LookupBase):
    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[str]:
        self.set_options(var_options=variables, direct=kwargs)
        fingerprint = self.get_option("fingerprint")
        now = datetime.now(UTC)
        try:
            return [
                pinned_key(self._read(term, variables), fingerprint, _label(term), now)
                for term in terms
            ]
        except KeyRefused as error:
            raise AnsibleError(str(error)) from error

    def _read(self, term: str, variables: Any) -> bytes:
        if term.lstrip().startswith("-----BEGIN"):
            return term.encode()
        if term.startswith(("http://", "https://")):
            return _fetch(term)
        path = self.find_file_in_search_path(variables, "files", term)
        if path is None:
            raise AnsibleError(f"the signing key {term} does not exist on the controller")
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise AnsibleError(f"cannot read the signing key {path}: {error}") from error


def _fetch(url: str) -> bytes:
    try:
        with open_url(url) as response:
            return bytes(response.read())
    except (URLError, SSLValidationError, FetchError, OSError) as error:
        message = f"cannot fetch the signing key {url}: {to_native(error)}"
        raise AnsibleError(
            redact(message)
        ) from None  # the cause would show the credentials of the address


def _label(term: str) -> str:
    return "the given signing key" if term.lstrip().startswith("-----BEGIN") else redact(term)

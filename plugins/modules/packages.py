#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: packages
short_description: Carry out one package operation of a plan
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Carries out one step of a plan (M(metal.gpu.plan)) with apt or dnf. The plan decides
    whether the step is needed, and has the arguments. Internal to the roles of this collection.
  - Uses Ansible's own modules, such as M(ansible.builtin.apt), M(ansible.builtin.deb822_repository)
    and M(ansible.builtin.yum_repository), and the program C(dnf).
  - If another process holds the package manager's lock, waits up to C(metal_gpu_lock_timeout)
    seconds (300). Names this process on stderr at least every 15 seconds.
  - O(operation=repository) reads only the index of the new repository. If that fails, for whatever
    reason, removes the repository.
  - With apt, O(operation=install) reads the indexes of all repositories if they are older than an
    hour, or if they do not have the packages. dnf reads indexes when it needs them.
  - Repeats what fails because of a server's bad moment.
  - If the operation fails, queries the package manager for its repositories and versions, and
    fails with findings. Packages that were held stay held.
  - Shows C(***) in place of credentials, at any verbosity. C(ANSIBLE_DEBUG) still shows everything.
attributes:
  check_mode:
    support: partial
    description: Changes nothing.
    details: O(operation=install) asks the package manager, and fails with the findings of a real
      run. It reads a planned repository, with its key, in a temporary folder. It does not ask while
      dpkg has to be repaired. O(operation=fetch_runfile) asks whether the file is there, and checks
      one that the controller has. The other operations report a change without looking at the node,
      because a plan has a step only if it changes the node.
  diff_mode:
    support: partial
    description: Shows the differences of the modules that it runs, without credentials.
    details: Depends on these modules.
  idempotent:
    support: partial
    description: As the modules that it runs.
    details: Commands, such as C(apt-mark hold), always report a change.
  platform:
    support: full
    platforms: posix
    description: Runs on systems with apt, and on systems with dnf 4.
options:
  operation:
    description:
      - V(repository) adds a repository, and pins its key by the fingerprint. V(no_repository)
        removes it.
      - V(stream) enables a module stream of dnf, and installs no packages.
      - V(install) installs packages at their versions, without recommended packages.
        V(install_file) installs a package that no repository contains, from a URL.
      - V(fetch_runfile) fetches NVIDIA's C(.run) file, which must have the checksum.
        V(runfile) installs the driver with this file, and deletes it. V(no_runfile) removes a
        driver with its own uninstaller.
      - V(follow_kernel) installs packages that belong to a kernel, if the repositories have them,
        and if that neither installs another kernel nor removes a package (apt only). A warning
        names a package that is left out, and the operation succeeds.
      - V(hold) holds packages at their versions. V(release) releases the hold.
      - V(remove) removes packages, even if they are held.
      - V(forget) deletes the record of the packages that a role has installed.
      - V(repair) finishes an interrupted operation of dpkg. Edited configuration files stay.
      - V(await_lock) waits until no other process holds the package manager's lock.
    type: str
    required: true
    choices:
      - repository
      - no_repository
      - stream
      - install
      - follow_kernel
      - install_file
      - fetch_runfile
      - runfile
      - no_runfile
      - hold
      - release
      - remove
      - forget
      - repair
      - await_lock
  names:
    description: Packages, with versions in the syntax of the node's package manager. For
      O(operation=follow_kernel), entries of one package are alternatives, the best first.
    type: list
    elements: str
  repository:
    description: C(data.repository) of the plan of a role. For O(operation=install) the repository
      of the packages.
    type: dict
  record:
    description:
      - C(data.packages_record) of the plan of a role, which has the path of the record and the
        packages. O(operation=install) and O(operation=install_file) write the record before the
        installation. After it, they add the installed versions of packages without a version, and
        the checksums of the files that the packages created. A downloaded package is beside the
        record until it is installed.
      - If not set, there is no record. This is for packages that Ansible itself needs.
    type: dict
  change_held:
    description:
      - For O(operation=install), allows changes to held packages, for packages that the role itself
        holds.
      - The change ends the hold, so a later step must hold the packages again.
    type: bool
    default: false
  newest:
    description: For O(operation=install), takes the newest version that matches, also of a package
      of which another matching version is installed (apt only).
    type: bool
    default: false
  may_remove:
    description: For O(operation=install), packages that the installation may remove, because they
      conflict with it. The variable C(metal_gpu_removable_packages) has more. The operation fails
      before any change if the package manager would remove others.
    type: list
    elements: str
    default: []
  earlier:
    description: Packages that earlier steps of the plan install. In check mode, they are not there
      yet, so the package manager answers about all of them.
    type: list
    elements: str
    default: []
  more_repositories:
    description: Repositories that earlier steps of the plan add besides O(repository), with a key
      that is on the node (apt only).
    type: list
    elements: dict
    default: []
  pin:
    description: A file of preferences that an earlier step of the plan writes (apt only), with its
      C(path) and its text, C(block). In check mode, it is not there yet.
    type: dict
  following:
    description: What a later step of the plan installs with O(operation=follow_kernel). In check
      mode, the same answer tells what this step would leave out (apt only).
    type: list
    elements: str
    default: []
  alike:
    description: For O(operation=hold), patterns of NAME-EPOCH:VERSION-RELEASE (dnf only). Installed
      packages that match are held, too. Their names are known only after the installation.
    type: list
    elements: str
    default: []
  also_release:
    description: For O(operation=remove), other packages whose hold ends (dnf only). dnf removes
      them if it has installed them as dependencies.
    type: list
    elements: str
    default: []
  purge:
    description:
      - For O(operation=remove), also removes the configuration files of the packages (apt only).
    type: bool
    default: false
  url:
    description: URL of the package of O(operation=install_file), or of the file of
      O(operation=fetch_runfile). The latter can also be a path on the controller.
    type: str
  checksum:
    description: Checksum of this package, in the format of M(ansible.builtin.get_url). For
      O(operation=fetch_runfile), the SHA-256.
    type: str
  arguments:
    description: Options for the installer of O(operation=runfile).
    type: list
    elements: str
  stream:
    description: Module and stream of O(operation=stream), in the form C(MODULE:STREAM). For
      O(operation=install), a stream that an earlier step enables.
    type: str
  _wait: {description: Internal. The action plugin sets it. A task cannot set it., type: int}
  _note: {description: Internal. The action plugin sets it. A task cannot set it., type: dict}
  _rehearse: {description: Internal. The action plugin sets it. A task cannot set it., type: dict}
notes:
  - Needs root, and the variable C(metal_gpu), which M(metal.gpu.plan) registers.
  - An operation without trouble needs one remote operation for each module that it runs. A record
    needs one, and one more for what is known only after the installation.
  - Is not in the action group C(gpu), because it has none of the connection options to the cluster.
seealso:
  - module: metal.gpu.node_info
  - module: ansible.builtin.apt
  - module: ansible.builtin.yum_repository
"""

EXAMPLES = r"""
- name: Install containerd
  metal.gpu.packages:
    operation: install
    names: "{{ containerd_plan.data.packages }}"
    record: "{{ containerd_plan.data.packages_record }}"
    repository: "{{ containerd_plan.data.repository }}"
  when: "'install' in __containerd_steps_to_run"

- name: Hold containerd
  metal.gpu.packages:
    operation: hold
    names: "{{ containerd_plan.data.hold }}"
  when: "'hold' in __containerd_steps_to_run"
"""

RETURN = r"""
msg:
  description:
    - Why the operation failed, as findings. C(docs/troubleshooting.md) has a section on each code.
  returned: failed
  type: str
output:
  description: What the modules and the package manager printed, without credentials.
  returned: always; after a failure only with C(-v)
  type: list
  elements: str
"""

import hashlib
import json
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils.probe.package_manager import (
    read_lock,
    read_start,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe.rehearsal import rehearse
from ansible_collections.metal.gpu.plugins.module_utils.read import packages

ARGUMENT_SPEC: dict[str, Any] = {
    "operation": {
        "type": "str",
        "required": True,
        "choices": [
            *("repository", "no_repository", "stream", "install", "follow_kernel"),
            *("install_file", "fetch_runfile", "runfile", "no_runfile"),
            *("hold", "release", "remove", "forget", "repair", "await_lock"),
        ],
    },
    "names": {"type": "list", "elements": "str"},
    "repository": {"type": "dict"},
    "record": {"type": "dict"},
    "change_held": {"type": "bool", "default": False},
    "newest": {"type": "bool", "default": False},
    "may_remove": {"type": "list", "elements": "str", "default": []},
    "earlier": {"type": "list", "elements": "str", "default": []},
    "more_repositories": {"type": "list", "elements": "dict", "default": []},
    "pin": {"type": "dict"},
    "following": {"type": "list", "elements": "str", "default": []},
    "alike": {"type": "list", "elements": "str", "default": []},
    "also_release": {"type": "list", "elements": "str", "default": []},
    "purge": {"type": "bool", "default": False},
    "url": {"type": "str"},
    "checksum": {"type": "str"},
    "arguments": {"type": "list", "elements": "str"},
    "stream": {"type": "str"},
}
_WITH_NAMES = ("install", "follow_kernel", "hold", "release", "remove")
REQUIRED_IF = [  # the action plugin checks it
    ("operation", "repository", ["repository"]),
    ("operation", "no_repository", ["repository"]),
    ("operation", "stream", ["stream"]),
    ("operation", "install_file", ["url", "checksum", "record"]),
    ("operation", "fetch_runfile", ["url", "checksum", "record"]),
    ("operation", "runfile", ["record", "arguments"]),
    *(("operation", one, ["names"]) for one in _WITH_NAMES),
    ("operation", "forget", ["record"]),
]
# What the action plugin asks of the node: `_wait` is the seconds to wait for the lock; `_note` has
#   path       of the record
#   packages   to add: entries, keyed by name
#   installed  names of packages to add with their installed versions
#   created    files that packages created, keyed by name, to add their checksums
#   files      texts of files to write, keyed by path
#   source     address of the repository whose index has just been read
# `_rehearse` is a request as in module_utils/probe/rehearsal.py.
_INTERNAL: dict[str, Any] = {
    "_wait": {"type": "int"},
    "_note": {"type": "dict"},
    "_rehearse": {"type": "dict"},
}
_INTERVAL_S = 1.0
_LISTS = Path("/var/lib/apt/lists")
_QUOTED = '\\|{}[]<>"^~_=!@#$%^&*'
# Indexes and caches can be large, and /tmp can be in memory.
_PARENT = Path("/var/tmp")


def run(
    root: Path, seconds: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> dict[str, Any]:
    """Wait until the package manager's lock is free. Return who still holds it.

    `started` is when that process started, in seconds since the epoch, or None if unknown.
    """
    end = clock() + seconds
    holder = read_lock(root)
    while holder is not None and clock() < end:
        sleep(min(_INTERVAL_S, max(end - clock(), 0.0)))
        holder = read_lock(root)
    if holder is None:
        return {"lock": None}
    return {"lock": {**holder, "started": read_start(root, holder["pid"])}}


def note(request: Mapping[str, Any], query: Callable[[list[str]], str]) -> dict[str, Any]:
    """Add packages to a record. Raises OSError and ValueError.

    `query` returns what dpkg-query or rpm prints about packages.
    """
    path = Path(request["path"])
    before: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    added: dict[str, dict[str, Any]] = {**request.get("packages", {})}
    if names := request.get("installed"):
        found = packages.parse_packages(query(names), platform.machine())
        added |= {name: {"version": found[name].version} for name in names if name in found}
    for name, file in request.get("created", {}).items():
        if name in before and os.path.isfile(file):
            checksum = hashlib.sha256(Path(file).read_bytes()).hexdigest()
            added[name] = {**added.get(name, {}), "config_sha256": checksum}
    after = dict(before)
    for name, row in added.items():
        known = before.get(name, {})
        # A plan does not know a version that only the installation has chosen.
        version = row.get("version") or known.get("version", "")
        after[name] = {**known, **row, "version": version}
    if after != before:
        _replace(path, json.dumps({**after, **packages.RECORD}, indent=2) + "\n")
    for file, text in request.get("files", {}).items():
        _replace(Path(file), text)
    return {"changed": after != before}


def has_index(lists: Path, source: str) -> bool:
    """Tell whether apt has the index of a repository besides that of `source`.

    A new machine often has none. Then an installation would fail first, for want of what the
    packages depend on. True without apt.
    """
    own = _list_name(source)
    return not lists.is_dir() or any(
        not path.name.startswith(own) for path in lists.glob("*Release")
    )


def _list_name(url: str) -> str:
    """Return how the names of apt's files about a repository begin.

    Source: apt, apt-pkg/contrib/strutl.cc (URItoFileName).
    """
    place = re.sub(r"^[\w+.-]+:/*(?:[^/]*@)?", "", url).rstrip("/")
    quoted = "".join(f"%{ord(sign):02x}" if sign in _QUOTED else sign for sign in place)
    return quoted.replace("/", "_") + "_"


def _replace(path: Path, text: str) -> None:
    """Write a file that is complete at any time, also after a power failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def main() -> None:
    module = AnsibleModule(argument_spec={**ARGUMENT_SPEC, **_INTERNAL}, supports_check_mode=True)
    seconds, request = module.params["_wait"], module.params["_note"]
    question = module.params["_rehearse"]

    def query(names: list[str]) -> str:
        has_dpkg = module.get_bin_path(packages.DPKG_QUERY[0])
        command = packages.DPKG_QUERY if has_dpkg else packages.RPM_QUERY
        _code, printed, _errors = module.run_command([*command, "--", *names])
        return str(printed)

    if seconds is not None:
        module.exit_json(changed=False, **run(Path("/"), seconds, time.monotonic, time.sleep))
    if question is not None:
        try:
            module.exit_json(
                changed=False, **rehearse(question, module.run_command, time.time(), _PARENT)
            )
        except OSError as error:
            module.fail_json(msg=f"cannot ask the package manager: {error}")
    if request is None:
        module.fail_json(msg="only the action plugin of this name can do it")
    try:
        index = has_index(_LISTS, request.get("source", ""))
        module.exit_json(**note(request, query), has_index=index)
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"cannot write the record {request['path']}: {error}")


if __name__ == "__main__":
    main()

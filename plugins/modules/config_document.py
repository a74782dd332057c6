#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: config_document
short_description: Change single keys of a JSON, YAML or TOML file, and give them back
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Merges keys into a configuration file, adds items to its lists, takes items and keys out.
  - Only the text of those keys is edited. All other keys, the order, comments, quotes, forms of
    numbers, indentation, line endings and a byte order mark stay as they are. That is also true
    within lists of tables. An item that has something in common with the new one is edited key by
    key; any other is taken out, and written anew.
  - Remembers what the file was before, so that O(state=absent) gives it back.
  - Keys are merged one by one, so several tasks can work on the same file, also with the same
    O(actor).
attributes:
  check_mode:
    support: partial
    description: Reads the file, returns the same diff as a real run, and writes nothing.
    details: O(validate) does not run, because the candidate would have to be written.
  diff_mode:
    support: full
    description: Shows the file before and after, with C(***) in the place of credentials.
  idempotent:
    support: full
    description: A second run changes nothing.
  safe_file_operations:
    support: full
    description:
      - The file is replaced in one step, and only if it still is the one that was read.
      - Fails before anything is written where the file or its directory is immutable, the file
        system is read-only, or the file is a mount point or has several hard links.
  platform:
    support: full
    platforms: posix
    description: Works on any node with Python 3.9 or newer, and needs no package there or on the
      controller.
options:
  path:
    description:
      - The file. Where it is a symbolic link, the link stays, and what it points to is edited.
      - An empty file is taken for an empty document.
    type: path
    required: true
  format:
    description:
      - Language of the file.
      - If not set, the suffix of O(path) tells; V(.yml) is YAML too.
      - Every language is read as the programs do that the files are for. JSON as dockerd
        reads it, YAML 1.1 as the kubelet reads it, TOML 1.0 as containerd 2 reads it.
    type: str
    choices: [json, yaml, toml]
  merge:
    description:
      - Keys to set, in nested tables as in the file.
      - A table is merged into the one in the file. A list or a single value replaces
        what is there.
      - Fails where one has a table, a list or a single value and the other does not, and
        names the key. Fails also where a single value or a list is to be added beside a key that
        differs only in case, which programs in Go take for the same key.
    type: dict
  append:
    description: Lists that have to contain some items. Those they lack are added at the end.
    type: list
    elements: dict
    suboptions:
      path:
        description: Key path of the list, as in O(remove). A missing list is created.
        type: raw
        required: true
      items:
        description: The items.
        type: list
        elements: raw
        required: true
  discard:
    description: Lists that must not contain some items. A list stays, also when it is empty then.
    type: list
    elements: dict
    suboptions:
      path:
        description: Key path of the list, as in O(remove).
        type: raw
        required: true
      items:
        description: The items.
        type: list
        elements: raw
        required: true
  remove:
    description:
      - Key paths to take out, with all that is below them. A table that this leaves empty goes too.
      - A key path is a list of keys, or a text with dots between the keys. Write V(\\.) for
        a dot within a key.
      - O(remove) comes first, then O(discard), O(merge) and O(append).
    type: list
    elements: raw
  state:
    description:
      - V(present) makes the changes.
      - V(absent) gives back what the tasks of this O(actor) have changed. Where nobody else
        has changed the file since, it becomes what it was, byte for byte. Otherwise the keys
        get their former values, and those that somebody else has changed since stay.
      - A file that was created goes unless it holds something else by now, and directories
        that were created for it go when they are empty.
      - V(previous) gives back only the last change that a task of this O(actor) has made, in the
        same way, so that a service that does not start with it can be started again. What earlier
        tasks have changed stays, and can be given back by V(absent). There is one step back, not
        more.
      - V(kept) leaves the file as it is, and forgets what it was before. From then on, nothing is
        given back.
    type: str
    choices: [present, absent, previous, kept]
    default: present
  actor:
    description: The role that makes the changes. Each actor's changes can be given back separately.
    type: str
    default: metal.gpu
  history_dir:
    description:
      - Directory on the node for what the file was before.
      - Only root can read it, since configuration files can hold secrets.
    type: path
    default: /var/lib/metal-gpu/config_document
  validate:
    description:
      - Command that judges the new file, before the old one is replaced. V(%s) stands
        for its path. If it fails, so does the task, and nothing is changed.
      - A list of arguments, or a text that is split as a shell would. There is no shell.
      - The candidate is beside the file, but has another suffix.
    type: raw
  backup:
    description:
      - Keep a copy of the file as it was before the first change, named RV(backup_file). It has
        the mode, the owner and the extended attributes of the file from its first byte on.
      - It goes when nothing is left to give back, unless it differs from the file then.
    type: bool
    default: true
  create:
    description:
      - Create a missing file, and its directories with mode 0755.
      - If V(false), a missing file is an error.
    type: bool
    default: true
  mode:
    description:
      - Mode of a file that the task creates, as in M(ansible.builtin.copy).
      - The mode of an existing file stays.
    type: raw
    default: '0644'
  owner:
    description: Owner of a file that the task creates. If not set, the user that runs the task.
    type: str
  group:
    description: Group of a file that the task creates. If not set, the group of that user.
    type: str
  _write:
    description:
      - For the action plugin, which tells the node what to write. A task cannot set it.
    type: str
notes:
  - A run without change costs one remote operation, a run with a change two.
  - Is not in the action group C(gpu), which is for the connection options to the cluster, as it has
    none of them.
  - Mode, owner, group and extended attributes of an existing file stay.
  - Fails with the line and the column where the file is not valid, and changes nothing. That
    includes YAML files of several documents and keys that are there twice.
  - Fails, and changes nothing, where a key cannot be edited without rewriting others, such as
    a value that is a YAML alias, or an item without keys in a list of TOML tables with headers.
  - What the module reads is not printed at C(-vvv). C(ANSIBLE_DEBUG) prints it.
"""

EXAMPLES = r"""
- name: Register the NVIDIA runtime with Docker and make it the default
  metal.gpu.config_document:
    path: /etc/docker/daemon.json
    merge:
      default-runtime: nvidia
      runtimes:
        nvidia:
          path: nvidia-container-runtime
          args: []
    validate: [dockerd, --validate, --config-file, "%s"]
  become: true
  notify: Restart Docker

- name: Have containerd read drop-in files and start its CRI plugin
  metal.gpu.config_document:
    path: /etc/containerd/config.toml
    merge:
      version: 3
    append:
      - path: imports
        items: [/etc/containerd/conf.d/*.toml]
    discard:
      - path: disabled_plugins
        items: [cri]
    validate: [containerd, --config, "%s", config, dump]
  become: true

- name: Register the NVIDIA runtime with containerd in a file of its own
  metal.gpu.config_document:
    path: /etc/containerd/conf.d/99-nvidia.toml
    merge:
      version: 3
      plugins:
        io.containerd.cri.v1.runtime:
          containerd:
            runtimes:
              nvidia:
                runtime_type: io.containerd.runc.v2
                options:
                  BinaryName: /usr/bin/nvidia-container-runtime
                  SystemdCgroup: true
  become: true

- name: Remove the gate that new kubelets do not know, and featureGates if that was all
  metal.gpu.config_document:
    path: /var/lib/kubelet/config.yaml
    remove:
      - featureGates.DevicePlugins
  become: true

- name: Remove a runtime whose path has dots within a key
  metal.gpu.config_document:
    path: /etc/containerd/config.toml
    remove:
      - [plugins, io.containerd.cri.v1.runtime, containerd, runtimes, nvidia]
  become: true

- name: Give back only the last change, with which Docker did not start
  metal.gpu.config_document:
    path: /etc/docker/daemon.json
    state: previous
  become: true

- name: Give Docker's configuration back
  metal.gpu.config_document:
    path: /etc/docker/daemon.json
    state: absent
  become: true
"""

RETURN = r"""
path:
  description: The file that is edited. Differs from O(path) where that is a symbolic link.
  returned: success
  type: str
  sample: /etc/docker/daemon.json
backup_file:
  description: Copy of the file as it was before the first change.
  returned: when a copy was made
  type: str
  sample: /etc/docker/daemon.json.metal.gpu-orig
"""

import base64
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils import document_history_files, replaceable
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIST_EDIT: dict[str, Any] = {
    "type": "list",
    "elements": "dict",
    "options": {
        "path": {"type": "raw", "required": True},
        "items": {"type": "list", "elements": "raw", "required": True},
    },
}

# What a task may say. The action plugin of the same name checks it and decides on the controller.
ARGUMENT_SPEC: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "format": {"type": "str", "choices": ["json", "yaml", "toml"]},
    "merge": {"type": "dict"},
    "append": _LIST_EDIT,
    "discard": _LIST_EDIT,
    "remove": {"type": "list", "elements": "raw"},
    "state": {
        "type": "str",
        "choices": ["present", "absent", "previous", "kept"],
        "default": "present",
    },
    "actor": {"type": "str", "default": "metal.gpu"},
    "history_dir": {"type": "path", "default": document_history_files.DIRECTORY},
    "validate": {"type": "raw"},
    "backup": {"type": "bool", "default": True},
    "create": {"type": "bool", "default": True},
    "mode": {"type": "raw", "default": "0644"},
    "owner": {"type": "str"},
    "group": {"type": "str"},
}

# What the action plugin says besides; without it the module only reads. A JSON text, so that it is
# kept out of the node's log as a whole: configuration files can hold secrets. Its keys:
#   expected         SHA-256 of the file that was read, null for no file
#   content          the coming file in Base64, null for no file
#   history_during     what to remember while the file is replaced
#   history_after      what to remember from then on, null for nothing
#   directories      to make for the file, or to remove after it; outermost first
#   validate         command, null for none
#   backup           whether to copy the file first
#   mode, owner, group   of a new file
_WRITE: dict[str, Any] = {"type": "str", "no_log": True}

_DIRECTORY_MODE = 0o755
_STATE_DIRECTORY_MODE = 0o700


class Refused(Exception):
    """The file must not, or cannot, be read or replaced; it is as it was."""


class Place:
    """The file and what is kept about it."""

    def __init__(self, path: str, actor: str, history_dir: str) -> None:
        self.path = os.path.realpath(path)  # a link is left to point where it points
        self.history_dir = history_dir
        self.state = os.path.join(history_dir, document_history_files.file_name(self.path, actor))
        self.backup = f"{self.path}.{quote(actor, safe='@ ')}-orig"


def read(place: Place) -> dict[str, Any]:
    """Return what the controller decides on; `content` is Base64. Raises Refused."""
    content, state = _content(place.path), _content(place.state)
    return {
        "changed": False,
        "file": place.path,  # AnsibleModule reports mode and more about what is called `path`
        "content": None if content is None else base64.b64encode(content).decode(),
        "history": None if state is None else state.decode(errors="replace"),
        "missing_directories": list(_missing_directories(place.path)),
        "obstacle": _obstacle(place),
    }


def write(place: Place, request: dict[str, Any], module: Any) -> dict[str, Any]:
    """Replace or remove the file, and keep the state of it. Raises Refused.

    The state is written before the file and again after it: wherever this is cut off, the
    state covers the file that is there then.
    """
    if obstacle := _obstacle(place):
        raise Refused(obstacle)
    content = None if request["content"] is None else base64.b64decode(request["content"])
    result: dict[str, Any] = {"changed": False}
    if _sha256(content) != request["expected"]:
        result.update(_replace(place, content, request, module), changed=True)
    if request["history_after"] is not None:
        _save(place, request["history_after"])
    else:
        _forget(place, content)
    if content is None:
        for directory in reversed(request["directories"]):
            with contextlib.suppress(OSError):  # somebody else uses it by now
                os.rmdir(directory)
    return result


def _obstacle(place: Place) -> str | None:
    paths = (place.path, place.state)
    return next(filter(None, map(replaceable.find_obstacle, paths)), None)


def _replace(
    place: Place, content: bytes | None, request: dict[str, Any], module: Any
) -> dict[str, Any]:
    result = {}
    directories = [] if content is None else request["directories"]
    with _directories(directories), _candidate(place.path, content) as candidate:
        if candidate and request["validate"]:
            _validate(place.path, request["validate"], candidate, module.run_command)
        with _alone(place.path), contextlib.ExitStack() as stack:
            found = _content(place.path)
            if _sha256(found) != request["expected"]:
                raise Refused(
                    f"another process changed {place.path} while this task edited it. "
                    "Run the task again"
                )
            if candidate:
                with _writing(place.path):
                    _dress(candidate, place.path, request, module, is_new=found is None)
            if request["backup"] and found is not None:
                stack.enter_context(_backup(place, found, module))
                result["backup_file"] = place.backup
            stack.enter_context(_saved_meanwhile(place, request["history_during"]))
            with _writing(place.path):
                if candidate:
                    os.rename(candidate, place.path)
                else:
                    os.unlink(place.path)
        _sync(os.path.dirname(place.path))
    return result


def _dress(
    candidate: str, path: str, request: dict[str, Any], module: Any, *, is_new: bool
) -> None:
    """Give a file that only its owner, root, can read what the file in its place has, or what a
    new one is to have. Whoever must not read it never can."""
    if not is_new:
        _dress_like(candidate, path, module)
        os.utime(candidate)
        return
    module.set_context_if_different(candidate, module.selinux_default_context(path), False)
    module.set_owner_if_different(candidate, request["owner"], False)
    module.set_group_if_different(candidate, request["group"], False)
    module.set_mode_if_different(candidate, request["mode"], False)


def _dress_like(candidate: str, original: str, module: Any) -> None:
    """Copy owner, group, extended attributes and last the mode, which lets others read it."""
    found = os.stat(original)
    os.chown(candidate, found.st_uid, found.st_gid)
    with contextlib.suppress(OSError):  # a file system without them
        # Such as an access control list that the directory gives to new files.
        for name in set(os.listxattr(candidate)) - set(os.listxattr(original)):
            os.removexattr(candidate, name)
    shutil.copystat(original, candidate)
    module.set_context_if_different(candidate, module.selinux_context(original), False)


@contextlib.contextmanager
def _alone(path: str) -> Iterator[None]:
    """Keep other runs of this module away from the directory of a file."""
    with _writing(path):
        descriptor = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _content(path: str) -> bytes | None:
    """Return what is in a file. What is no regular file is refused, as a pipe would block."""
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise Refused(replaceable.find_obstacle(path) or f"{path} is not a regular file")
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from error


def _sha256(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def _missing_directories(path: str) -> Iterator[str]:
    """Yield the directories that are missing for a file, outermost first."""
    directory = os.path.dirname(path)
    if not os.path.lexists(directory):
        yield from _missing_directories(directory)
        yield directory


@contextlib.contextmanager
def _directories(paths: list[str]) -> Iterator[None]:
    """Make directories, and take them back if the block fails."""
    made = []
    try:
        for path in paths:
            if not os.path.isdir(path):
                with _writing(path):
                    os.mkdir(path)
                    made.append(path)
                    os.chmod(path, _DIRECTORY_MODE)  # whatever the umask
        yield
    except BaseException:
        for path in reversed(made):
            with contextlib.suppress(OSError):
                os.rmdir(path)
        raise


@contextlib.contextmanager
def _candidate(path: str, content: bytes | None) -> Iterator[str | None]:
    """Write the coming file beside the old one. Nothing of it is left after the block.

    Its name ends in random letters, so that no program takes it for one of its files, as
    containerd would any `*.toml` in its `conf.d`.
    """
    if content is None:
        yield None
        return
    with _written_aside(path, f".{os.path.basename(path)}.", content) as candidate:
        yield candidate


def _validate(path: str, command: list[str], candidate: str, run_command: Any) -> None:
    argv = [argument.replace("%s", candidate) for argument in command]
    code, out, err = run_command(argv)
    if code:
        said = redact((err.strip() or out.strip()).replace(candidate, path))
        raise Refused(f"{command[0]} refuses the new {path} (exit code {code}): {said}")


def _save(place: Place, state: str) -> None:
    with _writing(place.state):
        for directory in _missing_directories(place.state):
            with contextlib.suppress(FileExistsError):  # another run was faster
                os.mkdir(directory, mode=_STATE_DIRECTORY_MODE)
        with _written_aside(place.state, "", state.encode()) as temporary:
            os.replace(temporary, place.state)
    _sync(place.history_dir)


@contextlib.contextmanager
def _saved_meanwhile(place: Place, state: str) -> Iterator[None]:
    """Save a state, and put the former one back if the block is refused."""
    former = _content(place.state)
    _save(place, state)
    try:
        yield
    except Refused:
        if former is None:
            _forget(place, None)
        else:
            _save(place, former.decode())
        raise


def _forget(place: Place, content: bytes | None) -> None:
    """Remove the state, its directory if that was the last, and a backup that adds nothing."""
    with _writing(place.state), contextlib.suppress(FileNotFoundError):
        os.unlink(place.state)
    with contextlib.suppress(OSError):  # it has other states
        os.removedirs(place.history_dir)
    if content is not None and _content(place.backup) == content:
        with _writing(place.backup):
            os.unlink(place.backup)


@contextlib.contextmanager
def _backup(place: Place, content: bytes, module: Any) -> Iterator[None]:
    """Copy the file. Nothing of that is left if the block, or the copying itself, fails."""
    prefix = f".{os.path.basename(place.backup)}."
    with _written_aside(place.backup, prefix, content) as copy, _writing(place.backup):
        _dress_like(copy, place.path, module)
        os.rename(copy, place.backup)
    try:
        yield
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place.backup)
        raise


@contextlib.contextmanager
def _written_aside(path: str, prefix: str, content: bytes) -> Iterator[str]:
    """Write what is to become a file beside it, for root only. It is gone after the block, unless
    it was moved."""
    temporary = None
    try:
        with _writing(path):
            descriptor, temporary = tempfile.mkstemp(prefix=prefix, dir=os.path.dirname(path))
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        yield temporary
    finally:
        if temporary:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = f". Free some space; `df -h {os.path.dirname(path)}` shows how much there is"
        raise Refused(f"cannot write {path}: {error.strerror}{remedy}") from error


def _sync(directory: str) -> None:
    """Make sure that a rename survives a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def main() -> None:
    module = AnsibleModule(
        argument_spec={**ARGUMENT_SPEC, "_write": _WRITE}, supports_check_mode=True
    )
    place = Place(*(module.params[name] for name in ("path", "actor", "history_dir")))
    request = module.params["_write"]
    try:
        result = write(place, json.loads(request), module) if request else read(place)
    except Refused as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()

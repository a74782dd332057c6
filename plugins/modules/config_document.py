#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: config_document
short_description: Edit single keys of a JSON, YAML or TOML file, and restore them
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Merges keys into a configuration file, adds items to its lists, and removes items and keys.
  - Edits only the text of these keys. Other keys, the order, comments, quotes, number formats,
    indentation, line endings and a byte order mark do not change. This also applies to lists of
    tables. The module edits an item key by key if it has keys in common with the new item.
    Otherwise it replaces the item.
  - Keeps a history of its edits, so that O(state=absent) can restore the file.
  - Merges keys one by one. So several tasks can edit the same file, even with the same O(actor).
attributes:
  check_mode:
    support: partial
    description: Reads the file, returns the same diff as a real run, and writes nothing.
    details: O(validate) does not run, because it needs the new file on the disk.
  diff_mode:
    support: full
    description: Shows the file before and after, with C(***) in place of credentials.
  idempotent:
    support: full
    description: A second run changes nothing.
  safe_file_operations:
    support: full
    description:
      - Replaces the file atomically, and only if it has not changed since it was read.
      - Fails before anything is written if the file or its directory is immutable, if the file
        system is read-only, or if the file is a mount point or has several hard links.
  platform:
    support: full
    platforms: posix
    description: Needs Python 3.9 or later on the node, and no other packages there or on the
      controller.
options:
  path:
    description:
      - The file. If it is a symbolic link, the module edits the target and keeps the link.
      - An empty file is an empty document.
    type: path
    required: true
  format:
    description:
      - Language of the file.
      - If not set, it follows from the suffix of O(path). V(.yml) also means YAML.
      - The module reads JSON as dockerd does, YAML 1.1 as the kubelet does, and TOML 1.0 as
        containerd 2 does.
    type: str
    choices: [json, yaml, toml]
  merge:
    description:
      - Keys to set, in nested tables as in the file.
      - A table is merged into the table in the file. A list or a single value replaces the value
        in the file.
      - Fails and names the key if the types differ (table, list, single value). Also fails if the
        file has a key that differs only in case, because programs in Go read both as the same key.
    type: dict
  append:
    description: Items that lists must contain. Missing items are added at the end.
    type: list
    elements: dict
    suboptions:
      path:
        description: Key path of the list, as in O(remove). A missing list is created.
        type: raw
        required: true
      items: {description: The items., type: list, elements: raw, required: true}
  discard:
    description: Items that lists must not contain. A list that becomes empty stays.
    type: list
    elements: dict
    suboptions:
      path: {description: "Key path of the list, as in O(remove).", type: raw, required: true}
      items: {description: The items., type: list, elements: raw, required: true}
  remove:
    description:
      - Key paths to remove, with everything below them. Tables that become empty are removed.
      - A key path is a list of keys, or a text with dots between the keys. Write V(\\.) for
        a dot within a key.
      - O(remove) is applied first, then O(discard), O(merge) and O(append).
    type: list
    elements: raw
  replace:
    description:
      - Whether the edits take the place of all earlier edits of this O(actor), which are undone as
        with O(state=absent). It is one edit, so O(state=previous) brings the earlier ones back.
    type: bool
    default: false
  state:
    description:
      - V(present) applies the edits.
      - V(absent) undoes all edits of this O(actor). If nothing else changed the file since then,
        the module restores it byte by byte. Otherwise the module restores the values of the edited
        keys, except of keys that were changed again since then.
      - V(absent) removes a file that this O(actor) created, unless it now has other content. It
        also removes the directories that were created for the file, if they are empty.
      - V(previous) undoes only the last edit of this O(actor), in the same way. Use it if a service
        does not start with that edit. Earlier edits stay, and V(absent) can still undo them. Only
        one edit can be undone this way.
      - V(kept) does not change the file and deletes the history of this O(actor). After that, the
        edits can no longer be undone.
    type: str
    choices: [present, absent, previous, kept]
    default: present
  actor:
    description: The role that makes the edits. The edits of each actor can be undone separately.
    type: str
    default: metal.gpu
  history_dir:
    description:
      - Directory on the node for the history of the edits.
      - Only root can read it, because configuration files can contain secrets.
    type: path
    default: /var/lib/metal-gpu/config_document
  validate:
    description:
      - Command that validates the new file before it replaces the old one. V(%s) stands for its
        path. If the command fails, the task fails and changes nothing.
      - A list of arguments, or a text that is split like a shell command. No shell runs.
      - The new file is in the directory of O(path), or in O(aside), and has another suffix.
    type: raw
  aside:
    description:
      - Directory where the new file is until it replaces the old one, on the same file system.
      - If not set, the directory of O(path). Set it where a program reads every file of that
        directory, whatever its name, as CRI-O does. It would read an unfinished file after a crash.
    type: path
  backup:
    description:
      - Keep a copy of the file from before the first edit, named RV(backup_file). It has the mode,
        the owner and the extended attributes of the file.
      - The copy is in O(history_dir), because some programs read every file in a directory.
      - A copy from earlier edits stays. Then the new copy has a number at the end of its name.
        There is no new copy while the file has edits of another O(actor).
      - The copy is removed when all edits are undone, unless it differs from the file.
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
  _write: {description: Internal. The action plugin sets it. A task cannot set it., type: str}
notes:
  - A run without a change needs one remote operation, a run with a change two.
  - Is not in the action group C(gpu), because it has none of the connection options to the cluster.
  - Keeps mode, owner, group and extended attributes of an existing file.
  - A run that is killed, as by a power failure, leaves the old or the new file. The next run
    removes what else it left, and ends what it began.
  - Fails and changes nothing if the file is invalid. The message has the line and the column. YAML
    files with several documents and repeated keys are also invalid.
  - Fails and changes nothing if a key cannot be edited without rewriting others. Examples are a
    value that is a YAML alias, and an item without keys in a list of TOML tables with headers.
  - The content of the file is not printed at C(-vvv). C(ANSIBLE_DEBUG) prints it.
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

- name: Make containerd read drop-in files, and enable its CRI plugin
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

- name: Register the NVIDIA runtime with containerd in a drop-in file
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

- name: Remove a gate that new kubelets reject, and featureGates if it becomes empty
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

- name: Undo only the last edit, because Docker did not start with it
  metal.gpu.config_document:
    path: /etc/docker/daemon.json
    state: previous
  become: true

- name: Undo all edits of Docker's configuration
  metal.gpu.config_document:
    path: /etc/docker/daemon.json
    state: absent
  become: true
"""

RETURN = r"""
path:
  description: The edited file. Differs from O(path) if that is a symbolic link.
  returned: success
  type: str
  sample: /etc/docker/daemon.json
backup_file:
  description: Copy of the file from before the first edit.
  returned: when a copy was made
  type: str
  sample: /var/lib/metal-gpu/config_document/%2Fetc%2Fdocker%2Fdaemon.json@metal.gpu.orig
"""

import base64
import contextlib
import glob
import json
import os
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils import files
from ansible_collections.metal.gpu.plugins.module_utils.probe import replaceable
from ansible_collections.metal.gpu.plugins.module_utils.read import document_history_files
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

# The options of a task. The action plugin of the same name validates them and computes the edits.
ARGUMENT_SPEC: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "format": {"type": "str", "choices": ["json", "yaml", "toml"]},
    "merge": {"type": "dict"},
    "append": _LIST_EDIT,
    "discard": _LIST_EDIT,
    "remove": {"type": "list", "elements": "raw"},
    "replace": {"type": "bool", "default": False},
    "state": {
        "type": "str",
        "choices": ["present", "absent", "previous", "kept"],
        "default": "present",
    },
    "actor": {"type": "str", "default": "metal.gpu"},
    "history_dir": {"type": "path", "default": document_history_files.DIRECTORY},
    "validate": {"type": "raw"},
    "aside": {"type": "path"},
    "backup": {"type": "bool", "default": True},
    "create": {"type": "bool", "default": True},
    "mode": {"type": "raw", "default": "0644"},
    "owner": {"type": "str"},
    "group": {"type": "str"},
}

# The request of the action plugin; without it the module only reads. It is a JSON text, so that
# no_log hides all of it: configuration files can contain secrets. Its keys:
#   expected         SHA-256 of the file that was read, null for no file
#   content          the new file in Base64, null for no file
#   history_during   the history while the file is replaced
#   history_after    the history after that, null for none
#   directories      to create for the file, or to remove after it; outermost first
#   validate         command, null for none
#   backup           whether to copy the file first
#   mode, owner, group   of a new file
_WRITE: dict[str, Any] = {"type": "str", "no_log": True}

_DIRECTORY_MODE = 0o755
_HISTORY_DIRECTORY_MODE = 0o700


class Place:
    """The paths of the file, of its history and of its backup."""

    def __init__(self, path: str, actor: str, history_dir: str) -> None:
        self.path = os.path.realpath(path)  # links stay
        self.history_dir = history_dir
        self.history = os.path.join(history_dir, document_history_files.file_name(self.path, actor))
        name = document_history_files.backup_name(self.path, actor)
        self.backup = os.path.join(history_dir, name)


def read(place: Place) -> dict[str, Any]:
    """Return what the action plugin needs; `content` is Base64. Raises Refused."""
    content, history = files.content(place.path), files.content(place.history)
    return {
        "changed": False,
        "file": place.path,  # for a key `path`, AnsibleModule would add mode, owner and so on
        "content": None if content is None else base64.b64encode(content).decode(),
        "history": None if history is None else history.decode(errors="replace"),
        "missing_directories": list(files.missing_directories(place.path)),
        "obstacle": _obstacle(place),
    }


def sweep(place: Place, aside: str | None) -> None:
    """Remove what a killed run of this module left beside its files."""
    files.sweep(place.path, aside)
    for path in (place.history, place.backup):
        files.sweep(path)


def write(place: Place, request: dict[str, Any], module: Any) -> dict[str, Any]:
    """Replace or remove the file, and write the history. Raises Refused.

    The history is written before the file and its directories, and again after them. So it covers
    them even if the process is killed in between, and the next run ends what this one began.
    """
    if obstacle := _obstacle(place):
        raise files.Refused(obstacle)
    content = None if request["content"] is None else base64.b64decode(request["content"])
    result: dict[str, Any] = {"changed": False}
    if files.sha256(content) != request["expected"]:
        result.update(_replace(place, content, request, module), changed=True)
    if content is None:
        for directory in reversed(request["directories"]):
            with contextlib.suppress(OSError):  # it now has other files
                os.rmdir(directory)
    if request["history_after"] is not None:
        _save(place, request["history_after"])
    else:
        _forget(place, content)
    return result


def _obstacle(place: Place) -> str | None:
    paths = (place.path, place.history)
    return next(filter(None, map(replaceable.find_obstacle, paths)), None)


def _replace(
    place: Place, content: bytes | None, request: dict[str, Any], module: Any
) -> dict[str, Any]:
    result = {}
    directories = [] if content is None else request["directories"]
    with (
        _history_during(place, request["history_during"])
        if directories
        else contextlib.nullcontext(),
        files.directories(directories, _DIRECTORY_MODE),
        files.candidate(place.path, content, module.params["aside"]) as candidate,
    ):
        if candidate and request["validate"]:
            _validate(place.path, request["validate"], candidate, module.run_command)
        with files.locked(place.path), contextlib.ExitStack() as stack:
            current = files.content(place.path)
            if files.sha256(current) != request["expected"]:
                raise files.Refused(
                    f"another process changed {place.path} while this task edited it. "
                    "Run the task again"
                )
            if candidate:
                with files.writing(place.path):
                    _set_attributes(candidate, place.path, request, module, is_new=current is None)
            stack.enter_context(_history_directories(place))
            if request["backup"] and current is not None and not _has_earlier_copy(place):
                result["backup_file"] = stack.enter_context(_backup(place, current, module))
            stack.enter_context(_history_during(place, request["history_during"]))
            with files.writing(place.path):
                if candidate:
                    os.rename(candidate, place.path)
                else:
                    os.unlink(place.path)
        files.sync(os.path.dirname(place.path))
    return result


def _set_attributes(
    candidate: str, path: str, request: dict[str, Any], module: Any, *, is_new: bool
) -> None:
    """Set owner, mode and so on to those of the replaced file, or of the request.

    Until then only root can read the candidate. So no other user can ever read it without
    permission.
    """
    if not is_new:
        files.copy_attributes(candidate, path, module)
        os.utime(candidate)
        return
    module.set_context_if_different(candidate, module.selinux_default_context(path), False)
    module.set_owner_if_different(candidate, request["owner"], False)
    module.set_group_if_different(candidate, request["group"], False)
    module.set_mode_if_different(candidate, request["mode"], False)


def _validate(path: str, command: list[str], candidate: str, run_command: Any) -> None:
    argv = [argument.replace("%s", candidate) for argument in command]
    code, out, err = run_command(argv)
    if code:
        output = redact((err.strip() or out.strip()).replace(candidate, path))
        raise files.Refused(f"{command[0]} rejects the new {path} (exit code {code}): {output}")


def _save(place: Place, history: str) -> None:
    with files.writing(place.history):
        for directory in files.missing_directories(place.history):
            with contextlib.suppress(FileExistsError):  # another run created it
                os.mkdir(directory, mode=_HISTORY_DIRECTORY_MODE)
        with files.written_aside(place.history, history.encode()) as temporary:
            os.replace(temporary, place.history)
    files.sync(place.history_dir)


@contextlib.contextmanager
def _history_during(place: Place, history: str) -> Iterator[None]:
    """Save a history, and restore the former one if the block raises Refused."""
    former = files.content(place.history)
    with _history_directories(place):
        _save(place, history)
        try:
            yield
        except files.Refused:
            if former is None:
                _forget(place, None)
            else:
                _save(place, former.decode())
            raise


def _history_directories(place: Place) -> contextlib.AbstractContextManager[None]:
    missing = list(files.missing_directories(place.history))
    return files.directories(missing, _HISTORY_DIRECTORY_MODE)


def _forget(place: Place, content: bytes | None) -> None:
    """Remove the history, backups that equal the file, and the directory if it is empty then."""
    for backup in glob.glob(f"{glob.escape(place.backup)}*"):
        if content is not None and files.content(backup) == content:
            with files.writing(backup):
                os.unlink(backup)
    # Last: without it, no later run would look for the backups.
    with files.writing(place.history), contextlib.suppress(FileNotFoundError):
        os.unlink(place.history)
    with contextlib.suppress(OSError):  # it has other histories
        os.rmdir(place.history_dir)
        if place.history_dir == document_history_files.DIRECTORY:
            os.rmdir(os.path.dirname(place.history_dir))  # the collection's own directory


def _has_earlier_copy(place: Place) -> bool:
    """Is there a copy, and has the file edits of another actor? Then it is nobody's former file."""
    pattern = glob.escape(os.path.join(place.history_dir, "")) + "*.json"
    others = {one for one in glob.glob(pattern) if _edits(one, place.path)} - {place.history}
    return bool(others) and os.path.lexists(place.backup)


def _edits(history: str, path: str) -> bool:
    return document_history_files.parse_file_name(history).path == path


@contextlib.contextmanager
def _backup(place: Place, content: bytes, module: Any) -> Iterator[str]:
    """Copy the file, and yield the copy. Remove it if the block, or the copying itself, fails.

    An earlier copy with content that the file no longer has is never replaced. One with the same
    content is of a run that was killed.
    """
    backup, number = place.backup, 1
    while os.path.lexists(backup):
        if os.path.isfile(backup) and files.content(backup) == content:
            yield backup
            return
        number += 1
        backup = f"{place.backup}-{number}"
    with files.written_aside(place.backup, content) as copy, files.writing(backup):
        files.copy_attributes(copy, place.path, module)
        os.rename(copy, backup)
    try:
        yield backup
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(backup)
        raise


def main() -> None:
    module = AnsibleModule(
        argument_spec={**ARGUMENT_SPEC, "_write": _WRITE}, supports_check_mode=True
    )
    place = Place(*(module.params[name] for name in ("path", "actor", "history_dir")))
    request = module.params["_write"]
    try:
        if not request and not module.check_mode:
            sweep(place, module.params["aside"])
        result = write(place, json.loads(request), module) if request else read(place)
    except files.Refused as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of metal.gpu.config_document: edits the text that the module reads.

The module replaces the file only if something changes.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import json
import shlex
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from ansible_collections.metal.gpu.plugins.modules.config_document import ARGUMENT_SPEC
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import history as document_history
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.edit import (
    Edits,
    Language,
    ListEdit,
    key_path,
    language_of,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import (
    DocumentError,
    Malformed,
    position,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.quiet import (
    discovered_interpreter,
    execute_quietly,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_EDITS = ("merge", "append", "discard", "remove")
_NO_LANGUAGE = "the suffix of the file does not determine its language: set format"
_PASSED_ON = ("mode", "owner", "group")


class ActionModule(ActionBase):
    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(
            ARGUMENT_SPEC, required_if=[("state", "present", _EDITS, True)]
        )
        # Unexpanded: `~` and variables in paths are the node's, not the controller's.
        node_args = {
            name: self._task.args.get(name, args[name])
            for name in ("path", "actor", "history_dir", "aside")
        }
        try:
            edits, validate = _edits(args), _argv(args["validate"])
            language = _language(args, required=edits is not None)
        except DocumentError as error:
            raise AnsibleActionFail(str(error)) from None

        observed = self._call(node_args, task_vars)
        if observed.get("failed"):
            return observed
        try:
            content = _decode(observed["content"])
            after, request = _plan(observed, content, language, edits, args)
        except DocumentError as error:
            raise AnsibleActionFail(f"{args['path']}: {error}") from None
        if request and observed["obstacle"]:
            raise AnsibleActionFail(f"cannot change {observed['file']}: {observed['obstacle']}")
        result = {
            "changed": after != content,
            "path": observed["file"],
            **discovered_interpreter(self),
        }
        if self._task.diff:
            result["diff"] = {
                "before_header": observed["file"],
                "after_header": observed["file"],
                "before": redact(content or ""),
                "after": redact(after or ""),
            }
        if request and not self._task.check_mode:
            request |= {"validate": validate, **{name: args[name] for name in _PASSED_ON}}
            written = self._call({**node_args, "_write": json.dumps(request)}, task_vars)
            if written.get("failed"):
                return written
            if "backup_file" in written:
                result["backup_file"] = written["backup_file"]
        return result

    def _call(self, args: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        return execute_quietly(self, "metal.gpu.config_document", args, task_vars)


def _plan(
    observed: Mapping[str, Any],
    content: str | None,
    language: Language | None,
    edits: Edits | None,
    args: Mapping[str, Any],
) -> tuple[str | None, dict[str, Any] | None]:
    """Return the desired content, and the request to the node; None: nothing to do.

    Without edits, `state` selects what to restore. Raises DocumentError.
    """
    history = document_history.recall(observed["history"], content)
    new_history: document_history.History | None
    if edits is None or language is None:
        if history is None:
            return content, None
        after, new_history = _restore(args["state"], content, history.language or language, history)
        if new_history == history:
            return after, None
        directories = history.directories
    else:
        if content is None and not args["create"]:
            raise DocumentError("the file does not exist, and create is false")
        base = content
        if args["replace"]:
            base = document_history.restore(content, language, history)
        after = document_history.change(base, language, edits)
        if after == content:
            return after, None
        directories = tuple(observed["missing_directories"])
        new_history = None
        if after is not None:
            new_history = document_history.extend(
                history, content, language, written=after, created=directories
            )
    histories = [one for one in (new_history, history) if one]
    return after, {
        "expected": _sha256(content),
        "content": None if after is None else base64.b64encode(after.encode()).decode(),
        "history_during": document_history.remember(*histories),
        "history_after": document_history.remember(new_history) if new_history else None,
        "directories": list(directories),
        "backup": args["backup"] and history is None,
    }


def _restore(
    state: str, content: str | None, language: Language | None, history: document_history.History
) -> tuple[str | None, document_history.History | None]:
    """Return the desired content and its history. Raises DocumentError."""
    if state == "kept":
        return content, None
    if language is None:
        raise DocumentError(_NO_LANGUAGE)
    if state == "previous":
        return document_history.undo(content, language, history)
    return document_history.restore(content, language, history), None


def _language(args: Mapping[str, Any], *, required: bool) -> Language | None:
    """Return the language of the file. To restore a file, its history has the language."""
    language: Language | None = args["format"] or language_of(args["path"])
    if required and language is None:
        raise DocumentError(f"{args['path']}: {_NO_LANGUAGE}")
    return language


def _edits(args: Mapping[str, Any]) -> Edits | None:
    """Return the edits of the task as plain data; None for a state without edits."""
    if args["state"] != "present":
        given = [name for name in _EDITS if args[name] is not None]
        if given:
            raise DocumentError(f"state: {args['state']} does not accept {given[0]}")
        return None
    merge, append, discard, remove = (_plain(args[name]) for name in _EDITS)
    return Edits(
        merge=merge or {},
        append=_list_edits(append),
        discard=_list_edits(discard),
        remove=tuple(map(key_path, remove or [])),
    )


def _list_edits(edits: list[dict[str, Any]] | None) -> tuple[ListEdit, ...]:
    return tuple(ListEdit(key_path(edit["path"]), edit["items"]) for edit in edits or [])


def _plain(value: Any) -> Any:
    """Return a copy without Ansible's annotations of values, such as their origin."""
    return json.loads(json.dumps(value, default=str))


def _argv(command: Any) -> list[str] | None:
    if command is None:
        return None
    argv = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    if not any("%s" in word for word in argv):
        raise DocumentError("validate must contain %s, which stands for the path of the new file")
    return argv


def _decode(content: str | None) -> str | None:
    if content is None:
        return None
    raw = base64.b64decode(content)
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Malformed("the file is in UTF-16. Convert it: iconv -f UTF-16 -t UTF-8", 1, 1)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode()
        raise Malformed("not UTF-8", *position(before, len(before))) from None


def _sha256(content: str | None) -> str | None:
    return None if content is None else hashlib.sha256(content.encode()).hexdigest()

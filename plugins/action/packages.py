# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of metal.gpu.packages: run Ansible's own modules, wait, explain, take back.

What an operation runs is in plugin_utils/packages/operations.py, when it is tried again in
attempts.py, what an answer in check mode means in rehearsal_verdict.py, and what a failure means in
failure.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.utils.display import Display

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from ansible_collections.metal.gpu.plugins.modules.packages import ARGUMENT_SPEC, REQUIRED_IF
from ansible_collections.metal.gpu.plugins.plugin_utils.module_runner import ModuleRunner, Stopped
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import (
    dnf,
    failure,
    follow,
    operations,
    rehearsal,
    runfile_check,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.apt import KEEP_KERNEL
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.attempts import (
    Failed,
    Lock,
    attempt,
    wait_for_lock,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import (
    APT_CONF,
    Call,
    Request,
    Steps,
    completed_record,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.operations import (
    OperationUnknown,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.rehearsal_verdict import judge
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repository_key import (
    KeyUnavailable,
    read_signing_key,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.results import (
    error_of,
    printed_by,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.runfile import (
    question,
    telling,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.unusable import (
    unusable_repositories,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plain_types import plain
from ansible_collections.metal.gpu.plugins.plugin_utils.quiet import (
    discovered_interpreter,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import explain

_LOCK_TIMEOUT_S = 300
_REPOSITORIES = ("ansible.builtin.deb822_repository", "ansible.builtin.yum_repository")


class ActionModule(ModuleRunner):
    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(ARGUMENT_SPEC, required_if=REQUIRED_IF)
        # The other operations have nothing to ask: a plan has a step only if it changes the node.
        is_check = self._task.check_mode
        if is_check and options["operation"] not in ("install", "remove", "fetch_runfile"):
            return {"changed": True}
        self._variables = task_vars or {}
        node = self._variable("metal_gpu")["node"]
        if is_check and _has_to_be_repaired(node["package_manager"]):
            return {"changed": True}
        self._node = node
        self._family: str = node["os"]["family"]
        self._operation: str = options["operation"]
        held = [name for name, one in node["packages"].items() if one["held"]]
        # Without its plugin, dnf has no holds.
        options["may_remove"] += _listed(self._variable("metal_gpu_removable_packages", []))
        self._request = Request(
            plain(options), held=held if dnf.VERSIONLOCK in node["packages"] else ()
        )
        self._key = ""
        self._answers: dict[str, str] = {}  # of a package manager that was only asked
        self._lock_timeout = int(self._variable("metal_gpu_lock_timeout", _LOCK_TIMEOUT_S))
        self._host = str(self._variables["inventory_hostname"])
        self._result: dict[str, Any] = {"changed": False, "output": []}
        try:
            if is_check and self._operation == "fetch_runfile":
                self._ask_for_runfile()
            elif is_check:
                self._rehearse()
            elif self._operation == "follow_kernel":
                self._follow_kernel()
            elif self._operation == "await_lock":
                if holder := wait_for_lock(self, self._host, self._lock_timeout):
                    wrong = failure.locked(self._host, holder, self._lock_timeout)
                    raise Stopped("\n".join(explain([wrong])))
            else:
                self._add_alike()
                self._operate()
        except Stopped as stopped:
            self._result |= {"failed": True, "msg": str(stopped)}
            if not Display().verbosity:
                # The default callback would print it once more, on one line.
                del self._result["output"]
        return self._result | discovered_interpreter(self)

    # --- the operation ---------------------------------------------------------------------------

    def _operate(self) -> None:
        steps = self._steps(self._operation)
        answers = self._do_all(steps.first)
        if any(APT_CONF in str(call.options) for call in steps.first):
            before = self._task.environment or []
            self._task.environment = [*before, {"APT_CONFIG": APT_CONF}]
        has_index = steps != self._steps(self._operation, is_fresh=True)
        is_fresh = has_index and any(answer.get("has_index") is False for answer in answers)
        try:
            needs = {"has_index": has_index, "is_fresh": is_fresh}
            failed = attempt(self, self._host, self._lock_timeout, **needs)
        except AnsibleError:
            self._clear_up(steps)
            raise
        if failed is not None:
            lines, is_repository = self._explanation(failed)
            # The operation `repository` takes it back in any case.
            if is_repository and self._operation != "repository":
                more = self._steps("no_repository").work if self._request.repository["new"] else ()
                steps = steps._replace(undo=(*steps.undo, *more))
            if failed.began:
                lines += explain(self._clear_up(steps))
            raise Stopped("\n".join(lines))
        self._do_all(steps.last)
        if steps.first:
            self._do_all(completed_record(self._request))

    def _add_alike(self) -> None:
        """Add the installed packages to hold that no plan can name."""
        patterns = self._request.options["alike"]
        if patterns and self._operation == "hold":
            listed = str(self._do(dnf.installed()).get("stdout", ""))
            names = dnf.alike(self._request.names, patterns, listed)
            options = {**self._request.options, "names": names}
            self._request = self._request._replace(options=options)

    def _rehearse(self) -> None:
        """Let the package manager say what an installation or a removal would do."""
        failed = attempt(self, self._host, self._lock_timeout, has_index=True)
        if failed is not None:
            raise Stopped("\n".join(self._explanation(failed)[0]))
        self._result["changed"] = True

    def _ask_for_runfile(self) -> None:
        """Ask whether the file is there, and check one that the controller has."""
        url, checksum = self._request.options["url"], self._request.options["checksum"]
        failed = None
        if "://" in url:
            result = self._call(question(url))
            if runfile_check.is_unavailable(result):
                failed = Failed(error_of(result), code=runfile_check.UNAVAILABLE)
        elif not (path := self._find_file(url)):
            failed = Failed(f"the controller has no {url}", code=runfile_check.UNAVAILABLE)
        elif wrong := runfile_check.wrong_checksum(path, checksum):
            failed = Failed(wrong, code=runfile_check.CHECKSUM)
        if failed:
            raise Stopped("\n".join(self._explanation(failed)[0]))
        self._result["changed"] = True

    def _follow_kernel(self) -> None:
        """Install what belongs to the kernel, as far as the repositories have it."""
        names = self._request.names
        calls = dict(zip(names, self._steps(self._operation).work, strict=True))
        found = follow.decide(names, lambda name: self._answer(calls[name]))
        if found.names:
            self._operation = "install"
            options = {**self._request.options, "names": found.names, KEEP_KERNEL: True}
            self._request = self._request._replace(options=options)
            self._operate()
        self._warn(follow.findings(self._host, found))

    def _warn(self, findings: list[dict[str, str]]) -> None:
        if findings:
            self._result["warnings"] = [*self._result.get("warnings", []), *explain(findings)]

    def _answer(self, call: Call) -> follow.Answer:
        result = self._call(call)
        return follow.Answer(
            not result.get("failed"), str(result.get("stdout", "")), error_of(result)
        )

    def _clear_up(self, steps: Steps) -> list[dict[str, str]]:
        """Delete and take back what a failed operation leaves, whatever the reason.

        Return findings about that. No second failure hides the first one.
        """
        findings = []
        for call in (*steps.last, *steps.undo):
            try:
                result = self._do(call)
            except Stopped as stopped:
                findings.append(failure.failed(self._host, str(stopped)))
                continue
            except AnsibleError as error:  # so the node does not answer any more
                return [*findings, failure.failed(self._host, redact(str(error)))]
            if call.module in _REPOSITORIES and result.get("changed"):
                name = call.options["name"]
                findings.append(finding("REPOSITORY_REMOVED", self._host, name=name))
        return findings

    def _steps(self, operation: str, **more: Any) -> Steps:
        try:
            return operations.steps(operation, self._family, self._request._replace(**more))
        except OperationUnknown as error:
            raise AnsibleActionFail(str(error)) from None

    # --- what an attempt needs -------------------------------------------------------------------

    def work(self, *, is_fresh: bool) -> Failed | None:
        is_check = bool(self._task.check_mode)
        repository = self._request.repository
        is_read = self._operation == "repository" or (is_check and repository.get("new"))
        try:
            if is_read and repository.get("signed_by") is None and not self._key:
                self._key = self._signing_key()
        except KeyUnavailable as error:
            return Failed(str(error), explains=False, began=False)
        if is_check:
            request = self._request._replace(key=self._key, is_fresh=is_fresh)
            return self._asked(self._call(rehearsal.in_check_mode(request, self._family)))
        for call in self._steps(self._operation, key=self._key, is_fresh=is_fresh).work:
            result = self._call(call)
            if rehearsal.is_one(call):
                if failed := self._asked(result):
                    return failed
            elif result.get("failed"):
                printed = str(result.get("stdout", ""))
                if call.enough and call.enough in f"{printed}\n{error_of(result)}":
                    return None
                return Failed(error_of(result), printed, call.explains, code=call.finding)
        return None

    def _asked(self, result: dict[str, Any]) -> Failed | None:
        """Return why the package manager would fail, or what it would remove besides."""
        printed = str(result.get("printed", ""))
        if result.get("failed") or result["error"] is not None:
            self._answers = result.get("answers", {})
            error = error_of(result) if result.get("failed") else result["error"]
            # A package manager that is only asked needs no lock.
            return Failed(error, printed, explains=not self._task.check_mode)
        judged = judge(self._host, self._request, self._node, printed, result.get("answers", {}))
        if judged.competing:
            self.show("\n".join(explain(judged.competing)))
        if judged.wrong:
            return Failed("", printed, explains=False, finding=judged.wrong)
        self._warn(judged.left)
        return None

    def wait(self, seconds: int) -> Lock | None:
        options = {"operation": self._operation, "_wait": seconds}
        try:
            lock: Lock | None = self._do(Call("metal.gpu.packages", options))["lock"]
        except (Stopped, AnsibleError):
            return None  # the failure of the operation says more than that of the question
        return lock

    def pause(self, seconds: int) -> None:
        time.sleep(seconds)

    def clock(self) -> float:
        return time.monotonic()

    def show(self, line: str) -> None:
        # Python does not buffer stderr by the block, so the line appears now. The result of the
        # task stays alone on stdout.
        Display().display(line, stderr=True)

    def _signing_key(self) -> str:
        repository = self._request.repository
        now = datetime.now(UTC)
        return read_signing_key(repository["key"], repository["fingerprint"], self._find_file, now)

    def _find_file(self, name: str) -> str | None:
        try:
            return str(self._find_needle("files", name))
        except AnsibleError:
            return None

    # --- failures --------------------------------------------------------------------------------

    def _explanation(self, failed: Failed) -> tuple[list[str], bool]:
        """Return the lines, and whether the repository of the packages cannot be used."""
        if not failed.began:  # without the key
            found = unusable_repositories(self._host, failed.error, self._request.repository)
            return explain([*found.values()] or [failure.failed(self._host, failed.error)]), False
        if failed.code:
            words = telling(f"{failed.error}\n{failed.printed}")
            return explain([finding(failed.code, self._host, error=words)]), False
        if failed.finding is not None and not failed.explains:
            return explain([failed.finding]), False
        if not failed.explains and not self._task.check_mode:
            return [failed.error], False
        if failed.finding is None:
            explanation = self._explained(failed)
            return explain(explanation.findings), explanation.is_repository
        findings = [failed.finding]
        if failed.explains and not failure.is_locked(failed.error):
            findings.append(failure.failed(self._host, failed.error, failed.printed))
        return explain(findings), False

    def _explained(self, failed: Failed) -> failure.Explanation:
        node, answers = self._node, self._answers
        names = rehearsal.names(self._request) if self._operation == "install" else []
        try:
            if not self._task.check_mode:
                node = self._do(Call("metal.gpu.node_info", {}))["gpu_node"]
                for about, question in operations.questions(self._family, names).items():
                    answers[about] = printed_by(self._call(question))
        except (Stopped, AnsibleError):
            pass  # what the node answers no more is not as important as the failure
        desired = {
            "host": self._host,
            "names": names,
            "lock_timeout": self._lock_timeout,
            "repository": self._request.repository,
        }
        return failure.explain(failed.error, answers, node, desired, failed.printed)


def _listed(value: Any) -> list[str]:
    """Return the elements of a list, which `-e` and YAML also give as text or as nothing."""
    words = value.split(",") if isinstance(value, str) else value or []
    return [name for word in words if (name := str(word or "").strip())]


def _has_to_be_repaired(manager: Mapping[str, Any]) -> bool:
    """Whether dpkg can answer only after a step that check mode does not carry out."""
    return bool(manager["interrupted"] or manager["unfinished"])

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The packages that a role installs, the repository that has them, and the steps about both."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read.packages import RECORDS
from ansible_collections.metal.gpu.plugins.module_utils.read.version import upstream_version
from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import Circumstances
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import archive, login
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.own_sources import (
    notice_kept,
    notice_unused,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import (
    arguments,
    failed,
    held_by_admin,
    hold_arguments,
    hold_reason,
    refuse_dependants,
    refuse_url,
    unfinished_evidence,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.record import Record
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    FILES,
    KEY_FILE,
    Repository,
    RepositoryVariables,
    file_problem,
    is_ours,
    repository_reason,
    unsigned_sources,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import is_redhat
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan, Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from ansible_collections.metal.gpu.plugins.module_utils.observed.machine import Entry
    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import Source, System

# Roles with one file of their repository.
_SHARED = {"metal-gpu-docker": ("containerd", "docker_ce")}
REPAIR = Step("repair", "Finish the interrupted package operation")


# pylint counts TypedDict once for each of the two and reports duplicate bases in each class below.
class RepositoryDesired(Circumstances, RepositoryVariables):
    """What is asked of a role with a repository."""


class PackagesRecord(TypedDict, total=False):
    """The file about a role's packages, and the entries to write into it."""

    path: str
    packages: dict[str, Entry]
    created: dict[str, str]  # files that packages create, keyed by package


class PackageData(TypedDict, total=False):
    """What the tasks of a role with packages need to know: arguments of metal.gpu.packages."""

    repository: Mapping[str, object]
    packages: list[str]
    may_remove: list[str]  # what the installation may remove
    packages_record: PackagesRecord | None
    hold: list[str]
    release: list[str]


class RolePackages:
    """What a role installs, holds and removes.

    `file` is the name of its repository's file. `packages`, `source` and `entries` are what the
    titles of its steps call the packages, the repository and their record. `short` is a short name
    of a repository with a long one.
    """

    def __init__(
        self, role: str, file: str, packages: str, source: str, entries: str, *, short: str = ""
    ) -> None:
        self.role = role
        self._file = file
        self.python_debian = Step("python_debian", f"Install python3-debian for {short or source}")
        self.repository = Step("repository", f"Add {source}")
        self.install = Step("install", f"Install {packages}")
        self.hold = Step("hold", f"Hold {packages}")
        self.remove = Step("remove", f"Remove {packages}")
        self.release = Step("release", f"Release the hold on {packages}")
        self.forget = Step("forget", f"Delete the record of {entries}")
        self.remove_repository = Step("remove_repository", f"Remove {source}")
        self._transactions = (
            self.python_debian,
            self.install,
            self.hold,
            self.remove,
            self.release,
        )
        self.steps = (
            *(REPAIR, self.repository, *self._transactions, self.remove_repository, self.forget),
        )

    def of_role(self, node: Node) -> list[str]:
        """Return the packages that the role installed, new or in another version."""
        return list(Record.of(node, self.role).ours)

    def added(self, node: Node) -> list[str]:
        """Return the packages that `state: absent` removes."""
        return Record.of(node, self.role).added

    def refuse_record(
        self,
        plan: Plan[NoData],
        node: Node,
        packages: Iterable[str],
        marks: Iterable[str] = (),
        drop_ins: Iterable[str] = (),
        left: Iterable[str] = (),
    ) -> None:
        """Refuse a record that does not show which packages are the role's, or that is gone.

        `packages` are installed. `marks` are files that the role writes only beside a record,
        `drop_ins` are files of ours without a history, and `left` is what else a history could
        restore. From the repository alone, an admin may have installed packages. The role holds
        what it installs from there.
        """
        records, packages = node["ours"]["packages"], [*packages]
        found = records.get(self.role)
        if found and found["error"]:
            plan.refuse("PACKAGE_RECORD_INVALID", path=found["path"], error=found["error"])
        files = [path for path in marks if path in node["ours"]["files"]]
        held = held_by_admin(node, packages, ())
        if is_ours(node, self._file) and (files or held):
            files.insert(0, node["repositories"][self._file]["path"])
        if not packages or any(role in records for role in _SHARED.get(self._file, (self.role,))):
            files = []
        files += drop_ins
        if not files:
            return
        what = [*left, *([f"the hold on {', '.join(held)}"] if held else [])]
        command = f"rm -f {' '.join(files)}"
        if held:
            release = "dnf versionlock delete" if is_redhat(node) else "apt-mark unhold"
            command = f"{command}; {' '.join((release, *held))}"
        plan.refuse(
            "RECORD_MISSING",
            files=", ".join(files),
            left=f"; nothing can take back {', and '.join(what)}" if what else "",
            command=command,
        )

    def plan_repository(
        self, plan: Plan[PackageData], node: Node, variables: RepositoryDesired, source: Source
    ) -> None:
        """Plan the repository, unless the admin's sources have its address, or are to be used."""
        if not variables["repository"]:
            plan.data["repository"] = {}
            return
        desired = Repository.desired(self._file, variables, source)
        urls = {f"the repository {desired.name}": desired.url, "its signing key": desired.key}
        if not any(refuse_url(plan, what, url) for what, url in urls.items()):
            self._plan_file(plan, node, desired, variables["now"])

    def notice_sources(
        self,
        plan: Plan[NoData],
        node: Node,
        variables: RepositoryVariables,
        beside: Iterable[str] = (),
    ) -> None:
        """Report, in every run, what follows if the role shall add no repository.

        `beside` are names of further files of the role.
        """
        if variables["repository"]:
            return
        notice_unused(plan, self.role, variables)
        if not plan.has_step(self.remove_repository):
            notice_kept(plan, node, self.role, (self._file, *beside))

    def plan_components(
        self,
        plan: Plan[PackageData],
        node: Node,
        system: System,
        components: Iterable[str],
        now: datetime,
    ) -> None:
        """Plan a source of our own for those components of the archive that no source has."""
        lacking = archive.lacking(node, system, components, FILES[system.family].format(self._file))
        if not lacking:
            return
        found = archive.own(node, system)
        words = " ".join(lacking)
        if isinstance(found, archive.Unclear):
            url = ", ".join(found.urls) or f"the suite {system.codename} (there is none)"
            error = f"nothing shows that one of them is the archive of {system.name}"
            path = "your file of the archive"
            plan.refuse("COMPONENTS_MISSING", url=url, components=words, path=path, error=error)
            return
        if problem := archive.problem(found):
            path, url = found["path"], found["url"]
            plan.refuse("COMPONENTS_MISSING", url=url, components=words, path=path, error=problem)
            return
        desired = archive.repository(self._file, found, archive.suites(system), lacking)
        self._plan_file(plan, node, desired, now)

    def _plan_file(
        self, plan: Plan[PackageData], node: Node, desired: Repository, now: datetime
    ) -> None:
        reason = repository_reason(node, desired, now)
        plan.data["repository"] = {**desired._asdict(), "new": reason is not None}
        unsigned = unsigned_sources(node, desired)
        if unsigned:
            files = ", ".join(f"{file} ({option})" for file, option in unsigned.items())
            plan.refuse("REPOSITORY_UNSIGNED", url=desired.url, files=files)
        if reason is None:
            return
        if is_redhat(node) and (problem := login.problem(desired.url)):
            what = f"the repository {desired.name}"
            plan.refuse("URL_INVALID", what=what, error=problem)
            return
        self._refuse_file(plan, node)
        if not desired.fingerprint and desired.signed_by is None:
            plan.refuse("KEY_UNKNOWN", key=desired.key)
        if not is_redhat(node) and "python3-debian" not in node["packages"]:
            plan.step(self.python_debian, "deb822_repository needs it on the node")
        plan.step(self.repository, reason)

    def _refuse_file(self, plan: Plan[NoData], node: Node) -> None:
        problem = file_problem(node, self._file)
        if problem:
            path = FILES[node["os"]["family"]].format(self._file)
            plan.refuse("REPOSITORY_FILE_FOREIGN", path=path, error=problem)

    def record(
        self,
        plan: Plan[PackageData],
        node: Node,
        packages: Mapping[str, str],
        created: dict[str, str] | None = None,
    ) -> dict[str, str]:
        """Let the installing step record its packages.

        `created` has the files that packages create and the package manager does not know.
        Return the packages that are the role's or become the role's, with their versions.
        """
        found = Record.of(node, self.role)
        entries = found.to_write(node, packages)
        earlier = plan.data.get("packages_record")
        row: PackagesRecord = {
            "path": RECORDS.replace("*", self.role),
            "packages": {**(earlier["packages"] if earlier else {}), **entries},
        }
        if created:
            row["created"] = created
        plan.data["packages_record"] = row
        plan.data["may_remove"] = [name for name in found.ours if name not in row["packages"]]
        return {name: packages[name] for name in entries}

    def plan_install(
        self,
        plan: Plan[PackageData],
        node: Node,
        packages: Mapping[str, str],
        reason: str,
        created: dict[str, str] | None = None,
    ) -> dict[str, str]:
        """Plan the installation. Return the packages to hold."""
        plan.data["packages"] = arguments(node, packages)
        plan.step(self.install, reason)
        return self.record(plan, node, packages, created)

    def plan_hold(
        self,
        plan: Plan[PackageData],
        node: Node,
        packages: Mapping[str, str],
        reason: str | None = None,
    ) -> None:
        """Plan to hold packages if they are not held, or for another reason."""
        plan.data["hold"] = hold_arguments(node, packages)
        plan.step(self.hold, hold_reason(node, packages) or reason)

    def notice_kept(
        self, plan: Plan[NoData], node: Node, package: str, variable: str, expected: str
    ) -> None:
        """Report a package of the role that has another version than the variable asks for."""
        version = node["packages"][package]["version"] if package in self.of_role(node) else ""
        found = upstream_version(version)
        if found and found != upstream_version(expected):
            plan.notice(
                "ENGINE_KEPT", found=f"{package} {found}", variable=variable, expected=expected
            )

    def plan_remove(self, plan: Plan[PackageData], node: Node, packages: list[str]) -> None:
        """Plan the removal of packages, and refuse it if packages of the admin need them."""
        plan.data["packages"] = packages
        refuse_dependants(plan, node, packages)
        plan.step(self.remove, f"installed: {', '.join(packages)}" if packages else None)

    def plan_cleanup(self, plan: Plan[PackageData], node: Node, beside: Iterable[str] = ()) -> None:
        """Plan the removal of what is left after the packages: holds, record and repository.

        `beside` are packages that the role holds, and did not ask for.
        """
        record = Record.of(node, self.role)
        staying = [name for name in record.unchanged if name not in record.added]
        if record.changed and staying:
            versions = {name: node["packages"][name]["version"] for name in record.changed}
            observed = ", ".join(f"{name} {version}" for name, version in versions.items())
            plan.notice("PACKAGES_EXCHANGED", packages=observed, staying=", ".join(staying))
        held = [name for name in (*staying, *beside) if node["packages"][name]["held"]]
        plan.data["release"] = held
        plan.step(
            self.release, f"packages that stay installed: {', '.join(held)}" if held else None
        )
        name = self._file
        plan.data["repository"] = {"name": name, "key_file": KEY_FILE.format(name)}
        if is_ours(node, name):
            self._refuse_file(plan, node)
            path = node["repositories"][name]["path"]
            plan.step(self.remove_repository, f"this collection wrote {path}")
        found = node["ours"]["packages"].get(self.role)
        plan.data["packages_record"] = {"path": found["path"]} if found else None
        plan.step(self.forget, f"this role wrote {found['path']}" if found else None)

    def has_repository(self, node: Node) -> bool:
        """Tell whether this collection wrote the file of the role's repository."""
        return is_ours(node, self._file)

    def plan_repair(self, plan: Plan[NoData], node: Node, *others: Step) -> None:
        """Let dpkg finish its interrupted work before the first step that needs dpkg.

        A package that dpkg failed to configure would fail again, and with it every other step.
        `others` are steps that need it, too.
        """
        if not plan.has_step(*self._transactions, *others):
            return
        unfinished = node["package_manager"]["unfinished"]
        if node["package_manager"]["interrupted"]:
            reason = "dpkg was interrupted: it recorded changes that it did not make"
        elif failed(node):
            plan.refuse("PACKAGES_UNFINISHED", **unfinished_evidence(node))
            return
        elif unfinished:
            reason = f"dpkg unpacked packages but did not configure them: {', '.join(unfinished)}"
        else:
            return
        plan.steps = {REPAIR: reason, **plan.steps}

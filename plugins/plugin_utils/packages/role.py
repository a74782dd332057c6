# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The packages that a role installs, the repository that has them, and the steps about both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import Circumstances
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import record
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import (
    REPAIR,
    PackageData,
    arguments,
    hold_arguments,
    hold_reason,
    plan_no_repository,
    plan_repair,
    plan_repository,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    Repository,
    RepositoryVariables,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan, Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
    from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import Source


class RepositoryDesired(Circumstances, RepositoryVariables):
    """What is asked of a role with a repository."""


class RolePackages:
    """What a role installs, holds and removes, and as what its steps call that.

    `repository` is the name of its file. The other arguments are parts of the steps' titles.
    """

    def __init__(
        self,
        role: str,
        repository: str,
        *,
        packages: str,
        source: str,
        record: str,
        short: str = "",
    ) -> None:
        self.role = role
        self._repository = repository
        self.python_debian = Step("python_debian", f"Install python3-debian for {short or source}")
        self.repository = Step("repository", f"Add {source}")
        self.install = Step("install", f"Install {packages}")
        self.hold = Step("hold", f"Hold {packages}")
        self.remove = Step("remove", f"Remove {packages}")
        self.release = Step("release", f"Release the hold on {packages}")
        self.forget = Step("forget", f"Delete the record of {record}")
        self.remove_repository = Step("remove_repository", f"Remove {source}")
        self._transactions = (
            self.python_debian,
            self.install,
            self.hold,
            self.remove,
            self.release,
        )
        self.steps = (
            *(REPAIR, self.repository, *self._transactions, self.forget, self.remove_repository),
        )

    def of_role(self, node: Node) -> list[str]:
        """Return the packages that the role installed, new or in another version."""
        return record.of_role(node, self.role)

    def added(self, node: Node) -> list[str]:
        """Return the packages that `state: absent` removes."""
        return record.added(node, self.role)

    def refuse_record(self, plan: Plan[NoData], node: Node) -> None:
        """Refuse an unreadable record: it does not show which packages are the role's."""
        record.refuse_record(plan, node, self.role)

    def plan_repository(
        self, plan: Plan[PackageData], node: Node, desired: RepositoryDesired, source: Source
    ) -> None:
        """Plan the repository, if no file has its address yet."""
        plan_repository(
            plan,
            node,
            Repository.desired(self._repository, desired, source),
            desired["now"],
            prepare=self.python_debian,
            add=self.repository,
        )

    def plan_install(
        self, plan: Plan[PackageData], node: Node, packages: Mapping[str, str], reason: str
    ) -> list[str]:
        """Plan the installation. Return the packages to hold."""
        plan.data["packages"] = arguments(node, packages)
        ours = record.record(plan, node, self.role, packages)
        plan.data["hold"] = hold_arguments(node, ours)
        plan.step(self.install, reason)
        return list(ours)

    def plan_hold(self, plan: Plan[NoData], node: Node, names: Iterable[str]) -> None:
        """Plan to hold packages that are not held."""
        plan.step(self.hold, hold_reason(node, names))

    def plan_leftovers(self, plan: Plan[PackageData], node: Node) -> None:
        """Plan the removal of what is left after the packages: holds, record and repository."""
        record.plan_forget(plan, node, self.role, release=self.release, forget=self.forget)
        plan_no_repository(plan, node, self._repository, remove=self.remove_repository)

    def plan_repair(self, plan: Plan[NoData], node: Node, *others: Step) -> None:
        """Let dpkg finish its work first, if these steps or those of the packages need dpkg."""
        plan_repair(plan, node, *self._transactions, *others)

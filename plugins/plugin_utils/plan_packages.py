# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is missing in a node's apt sources and packages? Used by every plan that installs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.plugin_utils.pinned_key import KeyRefused, fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan


REPAIR = "Finish what the package manager was cut off from"


class Repository(NamedTuple):
    """An apt source as a role wants it."""

    name: str
    url: str
    suite: str
    components: str  # empty for a flat repository, whose suite is "/"
    key: str  # URL, file on the controller, or the armoured key itself
    fingerprint: str

    @classmethod
    def wished(cls, name: str, wishes: Mapping[str, Any], components: str = "") -> Repository:
        """Return the repository that a role's wishes describe."""
        return cls(
            name,
            wishes["repository_url"],
            wishes["repository_suite"],
            components,
            wishes["repository_key"],
            wishes["repository_fingerprint"],
        )


def plan_repository(
    made: Plan, node: Mapping[str, Any], wanted: Repository, *, prepare: str, add: str
) -> None:
    """Plan the steps `prepare` and `add`, by which the repository gets onto the node.

    The tasks find the repository in the plan's data.
    """
    gap = repository_gap(node, wanted)
    made.data["repository"] = {**wanted._asdict(), "new": gap is not None}
    if gap and "python3-debian" not in node["packages"]:
        made.step(prepare, "deb822_repository needs it on the node")
    made.step(add, gap)


def repository_gap(node: Mapping[str, Any], wanted: Repository) -> str | None:
    """Return why the repository has to be written, or None where it is as wanted.

    A source of somebody else's with the same address serves as well and stays alone: a second one
    with another key would make apt refuse both.
    """
    sources = node["repositories"]
    if any(
        _address(wanted.url) in _addresses(source)
        for name, source in sources.items()
        if name != wanted.name
    ):
        return None
    found = sources.get(wanted.name)
    if found is None:
        return f"/etc/apt/sources.list.d/{wanted.name}.sources does not exist"
    fields = parse_deb822(found["text"])
    expected = {
        "types": "deb",
        "uris": wanted.url,
        "suites": wanted.suite,
        "components": wanted.components,
        "enabled": "yes",
    }
    defaults = {"enabled": "yes"}
    for field, value in expected.items():
        have = fields.get(field, defaults.get(field, ""))
        if have.strip().rstrip("/") != value.strip().rstrip("/"):
            return f"{found['path']} has {field.capitalize()} {have or 'empty'}, not {value}"
    try:
        key = fingerprint(fields.get("signed-by", "").encode())
    except KeyRefused as error:
        return f"{found['path']} holds no usable key: {error}"
    if key != "".join(wanted.fingerprint.split()).upper():
        return f"{found['path']} trusts the key {key}, not {wanted.fingerprint}"
    return None


def _addresses(source: Mapping[str, Any]) -> set[str]:
    """Return the addresses that a file of sources.list.d has in force, in either form."""
    if source["path"].endswith(".list"):
        words = (line.partition("#")[0].split() for line in source["text"].splitlines())
        return {_address(word) for line in words for word in line if "://" in word}
    fields = parse_deb822(source["text"])
    if fields.get("enabled", "yes").lower() in ("no", "false", "0", "off"):
        return set()
    return {_address(word) for word in fields.get("uris", "").split()}


def _address(url: str) -> str:
    return url.replace("$(ARCH)", "amd64").rstrip("/")


def parse_deb822(text: str) -> dict[str, str]:
    """Parse the first stanza of a .sources file: values keyed by lower-case field name.

    Continuation lines are joined; a line of one full stop stands for an empty one.
    """
    fields: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                break
        elif line[0] in " \t":
            word = line.strip()
            fields[name] += "\n" + ("" if word == "." else word)
        else:
            name, _colon, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields


def packages_gap(node: Mapping[str, Any], wanted: Mapping[str, str]) -> str | None:
    """Return why packages have to be installed, or None where each has the wanted version."""
    missing = [name for name in wanted if name not in node["packages"]]
    others = [
        f"{name} is {found['version']}, not {version}"
        for name, version in wanted.items()
        if (found := node["packages"].get(name)) and found["version"] != version
    ]
    if missing:
        others.append(f"not installed: {', '.join(missing)}")
    return "; ".join(others) or None


def hold_gap(node: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """Return why packages have to be held, or None where all of them are."""
    loose = [name for name in names if not node["packages"].get(name, {}).get("held")]
    return f"{', '.join(loose)} can be upgraded by anyone" if loose else None


def plan_repair(made: Plan, node: Mapping[str, Any], *using: str) -> None:
    """Plan to let dpkg finish, before the first step, where a step needs it and it was cut off."""
    if node["package_manager"]["interrupted"] and any(step["name"] in using for step in made.steps):
        made.step(REPAIR, "dpkg has changes that it noted and did not make")
        made.steps.insert(0, made.steps.pop())


def plan_no_repository(made: Plan, node: Mapping[str, Any], name: str, *, remove: str) -> None:
    """Plan the step `remove`, by which the repository goes from the node."""
    made.data["repository"] = {"name": name}
    if name in node["repositories"]:
        made.step(remove, "it is there")


def installed(node: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return those of the packages that are installed."""
    return [name for name in names if name in node["packages"]]

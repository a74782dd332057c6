# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which driver does a node get, and from where? Pure: known.py has the facts.

One choice serves all GPUs of a node. A choice that cannot be made is refused with all reasons and
all ways out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.read import gpu_models
from ansible_collections.metal.gpu.plugins.module_utils.read.gpu_models import PROPRIETARY
from ansible_collections.metal.gpu.plugins.module_utils.read.version import is_newer
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    fit,
    kernels,
    known,
    packages,
    runfile,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.fit import (
    AUTO,
    DISTRIBUTION,
    NVIDIA,
    PRESENT,
    RUNFILE,
    Machine,
    Reason,
    Wish,
    Wished,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import SYSTEMS, System

_BY_PREFERENCE = (NVIDIA, DISTRIBUTION)
MIRROR, OWN_SOURCE = "your mirror", "your own source"

_MISSING, _UNKNOWN, _BOOT = "DRIVER_BRANCH_MISSING", "DRIVER_PACKAGES_UNKNOWN", "SECURE_BOOT_ON"
_UNCLEAR = "DRIVER_SOURCE_UNCLEAR"


class Choice(NamedTuple):
    """The driver to install."""

    source: Wished
    branch: int
    version: str  # or a pattern, where the source has one version of the branch at a time
    flavour: str
    why: str  # one sentence

    @property
    def driver(self) -> str:
        """Return the version for a message: "driver of branch 550"."""
        return f"of branch {self.branch}" if "*" in self.version else self.version

    def fits(self, version: str | None) -> bool:
        """Tell whether a driver has the chosen version."""
        return version is not None and fnmatchcase(version, self.version)


class Refused(NamedTuple):
    """No choice, for all these reasons."""

    reasons: tuple[Reason, ...]


class _Problem(NamedTuple):
    """Why a source has no driver for the machine: the code of a finding, and a sentence."""

    code: str
    text: str


def choose_source(machine: Machine, wish: Wish) -> Choice | Refused:
    """Return the driver for all GPUs of a machine, or every reason why there is none."""
    if wish.source == PRESENT:
        return Refused((Reason("DRIVER_NOT_PRESENT", {}),))
    wrong = (*fit.unfit_gpus(machine, wish), *fit.unfit_flavours(machine, wish))
    if wrong:
        return Refused(wrong)
    if wish.source == RUNFILE:
        if machine.has_secure_boot:
            unsigned = _Problem(_BOOT, "the .run installer builds its module on the node")
            return Refused(tuple(_reasons([unsigned], machine, wish)))
        number = wish.number or fit.newest(machine)
        flavour = fit.flavour(machine, wish, number, known.flavours(number)) or PROPRIETARY
        return Choice(RUNFILE, number, wish.version or f"{number}.*", flavour, "as you ask for it")
    if wish.source == AUTO and wish.mirror == OWN_SOURCE:
        offers = [_offer(one, machine, wish) for one in _BY_PREFERENCE]
        choices = [one for one in offers if isinstance(one, Choice)]
        if len(choices) > 1:
            return Refused((_unclear(machine, wish, choices),))
    sources = _BY_PREFERENCE if wish.source == AUTO else (wish.source,)
    problems: list[_Problem] = []
    for source in sources:
        found = _offer(source, machine, wish)
        if isinstance(found, Choice):
            is_about_gpus = any(one.code == _MISSING for one in problems) and not wish.number
            needs = fit.needs(machine) if is_about_gpus else ""
            texts = [one.text for one in problems]
            return found._replace(why=_sentence(needs, [*texts, found.why]))
        problems.append(found)
    return Refused(tuple(_reasons(problems, machine, wish)))


def is_unclear(answer: Choice | Refused) -> bool:
    """Whether nothing shows which drivers the node's own sources have."""
    return isinstance(answer, Refused) and any(one.code == _UNCLEAR for one in answer.reasons)


def _unclear(machine: Machine, wish: Wish, choices: Sequence[Choice]) -> Reason:
    """Return why auto cannot choose: nothing shows which of these the node's own sources have."""
    name = machine.system.name
    ways = []
    for one in choices:
        other = one.source == NVIDIA and not wish.version
        more = "; nvidia_driver_version names another one" if other else ""
        whose = "with NVIDIA's packages" if one.source == NVIDIA else f"with those of {name}"
        what = f"driver {one.driver} ({one.flavour}) {whose}{more}"
        ways.append(f"set `nvidia_driver_source: {one.source}`, for {what}")
    return Reason(_UNCLEAR, {"found": name, "alternatives": "; or ".join(ways)})


def _reasons(problems: list[_Problem], machine: Machine, wish: Wish) -> Iterator[Reason]:
    """Yield a reason for each kind of problem. One source is enough, so if only Secure Boot is in
    the way of one, nothing else matters, but a source with unknown packages may be another way.
    """
    codes = list(dict.fromkeys(one.code for one in problems))
    for code in [_BOOT] if _BOOT in codes else codes:
        shown = (_BOOT, _UNKNOWN) if code == _BOOT else (code,)
        texts = [one.text for one in problems if one.code in shown]
        needs = fit.needs(machine) if code == _MISSING and not wish.number else ""
        # A signed module is the easiest way, and so before the steps for the key.
        signed = _ways(machine, wish) if code == _BOOT else ()
        yield Reason(
            code,
            {
                "found": machine.system.name,
                "driver": f"driver {wish.driver}"
                if wish.number
                else f"a driver for {fit.names(machine)} GPUs",
                "reasons": _sentence(needs, texts),
                "signed": "".join(f"{one}; or " for one in signed),
                "alternatives": "; or ".join(_alternatives(machine, wish, code)),
            },
        )


def _sentence(needs: str, texts: list[str]) -> str:
    """Return reasons as one text, after what the GPUs need."""
    return ": ".join(filter(None, (needs, "; ".join(texts))))


def _alternatives(machine: Machine, wish: Wish, code: str) -> Iterator[str]:
    """Yield every other way to a driver, as what to do.

    The words of SECURE_BOOT_ON have the signed modules and the steps for the key before these.
    """
    now = [*_ways(machine, wish)]
    if code != _BOOT:
        yield from now
    how = ", with a signed module" if machine.has_secure_boot else ""
    yield f"install a driver yourself{how}: the role keeps a driver that works"
    if machine.has_secure_boot and code != _BOOT:
        later = _ways(machine._replace(has_secure_boot=False), wish)
        if more := [one for one in later if one not in now]:
            first = "enrol the key of DKMS in the firmware, or turn Secure Boot off, and then: "
            yield first + "; or ".join(more)


def _ways(machine: Machine, wish: Wish) -> Iterator[str]:
    """Yield the ways in which the role installs a driver."""
    asked = {"nvidia_driver_version": wish.version, "nvidia_driver_branch": wish.branch}
    if wish.flavour != "auto":
        asked["nvidia_driver_flavour"] = wish.flavour
    unset = " and ".join(name for name, value in asked.items() if value)
    for source in _BY_PREFERENCE:
        found = _offer(source, machine, Wish(source, mirror=wish.mirror))
        if isinstance(found, Choice):
            also = f" and remove {unset}" if unset else ""
            where = (source == NVIDIA and wish.mirror) or _place(source, machine.system)
            yield (
                f"set `nvidia_driver_source: {source}`{also}, for driver {found.driver} "
                f"({found.flavour}) from {where}"
            )
    number = wish.number or fit.newest(machine)
    also = " and set `nvidia_driver_source: nvidia`" if wish.source == DISTRIBUTION else ""
    if wish.branch and not wish.version and not wish.mirror:
        any_version = wish._replace(source=NVIDIA, version=f"{number}.0")
        if isinstance(_offer(NVIDIA, machine, any_version), Choice):
            yield (
                f"set nvidia_driver_version to the version of branch {number} that "
                f"{_place(NVIDIA, machine.system)} has{also}: nobody has recorded one"
            )
    of_mirror = Wish(NVIDIA, version=f"{number}.0", mirror=MIRROR)
    is_known = number >= min(known.mirrored())  # the names of older packages are not recorded
    if is_known and not wish.mirror and isinstance(_offer(NVIDIA, machine, of_mirror), Choice):
        yield (
            f"set nvidia_driver_repository_url to a mirror that has branch {number} and "
            f"nvidia_driver_version to the version there{also}"
        )
    if not machine.has_secure_boot and number >= runfile.FIRST_BRANCH:
        legacy = ""
        if number < min(one.branch for rows in map(known.archives, SYSTEMS) for one in rows):
            legacy = ", whose module may not build for the kernel"
        yield (
            "set `nvidia_driver_source: runfile`, and nvidia_driver_runfile_url to NVIDIA's .run "
            f"file, for example of branch {number}{legacy}"
        )


def _offer(source: Wished, machine: Machine, wish: Wish) -> Choice | _Problem:
    return (_from_nvidia if source == NVIDIA else _from_archive)(machine, wish)


def _from_nvidia(machine: Machine, wish: Wish) -> Choice | _Problem:
    """Return what NVIDIA's repository, or the user's mirror of it, has for the machine."""
    system = machine.system
    first, original = known.repository(system)
    # A mirror can have any branch. Most are copies of NVIDIA's repository for this system.
    seen = {**known.mirrored(), **original} if wish.mirror else original
    first = 0 if wish.mirror else first
    place = wish.mirror or _place(NVIDIA, system)
    start = f"{place} starts with branch {first}"
    if wish.number and wish.number < first:
        return _Problem(_MISSING, start)
    if wish.branch and not wish.version and wish.branch not in seen:
        versions = ", ".join(seen.values())
        text = f"no version of branch {wish.branch} is recorded for {place} (recorded: {versions})"
        return _Problem(_MISSING, text)
    numbers: tuple[int, ...] = (wish.number,) if wish.number else known.DEFAULT_BRANCHES
    if not wish.number and gpu_models.NEWER in machine.gpus:
        numbers = tuple(sorted(seen, reverse=True))
    fitting = [one for one in numbers if fit.fits(machine, one) and (wish.version or one in seen)]
    fitting.sort(key=lambda one: one not in original)
    if not fitting:
        text = start if first else f"no branch that fits is recorded for {place}"
        return _Problem(_MISSING, text)
    for number in fitting:
        flavour = fit.flavour(machine, wish, number, known.flavours(number))
        version = wish.version or seen[number]
        if flavour is None or packages.choose(system, version, flavour) is None:
            continue
        if machine.has_secure_boot:
            return _Problem(_BOOT, f"{place} has only modules that are built on the node")
        why = f"{place} has branch {number}"
        if wish.mirror == OWN_SOURCE:
            why = f"{OWN_SOURCE} must have branch {number}"
        return Choice(NVIDIA, number, version, flavour, why)
    branches = " and ".join(map(str, fitting))
    return _Problem(_UNKNOWN, f"{place}: the package names of branch {branches} are not recorded")


def _from_archive(machine: Machine, wish: Wish) -> Choice | _Problem:
    """Return what the distribution itself has for the machine."""
    system = machine.system
    rows = known.archives(system)
    place = _place(DISTRIBUTION, system)
    if not rows:
        text = f"{system.name} has no driver of its own"
        return _Problem(_MISSING, f"{text}, and {known.OTHER_SOURCES} are not used")
    why_not = []
    for row in rows:
        if wish.number not in (0, row.branch) or not fit.fits(machine, row.branch):
            continue
        if wish.version and is_newer(row.version, wish.version):
            why_not.append(f"it has replaced {wish.version} by {row.version}")
            continue
        flavour = fit.flavour(machine, wish, row.branch, row.flavours)
        if flavour is None:
            flavours = " and ".join(row.flavours)
            why_not.append(f"of {row.version}, only the {flavours} module can be used")
            continue
        if row.is_signed and kernels.flavour(machine.kernel) not in known.signed_kernels(system):
            text = f"{place} is not known to have signed modules for the kernel {machine.kernel}"
            return _Problem(_UNKNOWN, text)
        if machine.has_secure_boot and not row.is_signed:
            return _Problem(_BOOT, f"{place} has only modules that are built on the node")
        version = wish.version or f"{row.branch}.*"
        what = " with signed modules" if row.is_signed else ""
        return Choice(
            DISTRIBUTION, row.branch, version, flavour, f"{place} has branch {row.branch}{what}"
        )
    versions = ", ".join(one.version for one in rows)
    return _Problem(_MISSING, "; ".join([f"{place} has {versions}", *why_not]))


def _place(source: Wished, system: System) -> str:
    if source == NVIDIA:
        return f"NVIDIA's repository for {system.name}"
    return f"the archive of {system.name}"

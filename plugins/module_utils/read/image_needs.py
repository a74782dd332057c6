# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Does an image with CUDA programs run on a machine? Decide before it is started.

An image says which machines it is for: by its architecture, by the variables of its environment
that NVIDIA's runtime compares with the driver (NVIDIA_REQUIRE_CUDA and others), and by its version
of CUDA. No image says for which GPUs it has code. The images of cuda_images are known; of other
ones, the admin says it.

A program of CUDA also runs with an older driver of the same major version, within limits. So this
is no misfit, unless a runtime compares the versions and starts no container (image_runtime).

What cannot be known is no misfit: then only the container shows it. That holds for an image that
names older drivers by a brand of GPUs, on a machine whose brand is unknown.

Source: tests/recorded/image_needs.yml
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.read import cuda_images, image_cuda
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Of Docker, by the name that the kernel has for it.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
ARCHITECTURE, DRIVER, GPU = "IMAGE_PLATFORM_MISSING", "IMAGE_NEEDS_DRIVER", "IMAGE_NEEDS_GPU"
LIMITED = "IMAGE_CUDA_NEWER"

# Since this major version, programs of a later minor version run with a driver of an earlier one.
_MINOR_SINCE = 11
# The first driver that does so, where an older one has this major version, too.
_FIRST_DRIVERS = {11: "450.80.02"}

_REQUIRE, _JETPACK = "NVIDIA_REQUIRE_", "NVIDIA_REQUIRE_JETPACK"
_DISABLE = "NVIDIA_DISABLE_REQUIRE"
_CUDA, _TRUE = image_cuda.VERSION, ("1", "t", "T", "TRUE", "true", "True")
_FACTOR = re.compile(r"(?P<name>[^<>=!]+)(?P<sign>!=|<=|>=|=|<|>)(?P<value>.+)")
_SIGNS = {"=": (0,), "!=": (-1, 1), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}
# Such as 7.5, 9.0+PTX and 9.0a.
CAPABILITY = re.compile(
    r"(?P<major>[0-9]{1,2})\.(?P<minor>[0-9])(?P<kind>[af]?)(?P<ptx>\+PTX)?", re.ASCII
)
_PTX = "+PTX"
AT, _KIND = "@", "sha256:"  # before the digest of an image; at its begin
_LENGTH = 60  # of a quoted requirement; those of NVIDIA's images have a part for each brand


class Image(NamedTuple):
    """What Docker says about an image."""

    name: str
    architecture: str  # as Docker names it
    digests: tuple[str, ...] = ()  # NAME@sha256:…; empty if no registry has served it
    layers: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}  # only what NVIDIA's runtime and this module read


class Gpu(NamedTuple):
    """A GPU as far as code must fit it."""

    name: str  # for people
    generation: str
    capability: str | None = None  # such as 7.5; None: unknown


class Machine(NamedTuple):
    """What an image has to fit."""

    architecture: str  # as the kernel names it
    driver: str | None = None
    cuda: str | None = None  # the newest version that the driver supports
    gpus: Sequence[Gpu] = ()
    brand: str = ""  # in nvidia-smi's words; empty: unknown
    compares: bool = True  # whether the runtime compares NVIDIA_REQUIRE_CUDA


class Misfit(NamedTuple):
    """Why an image does not run on a machine: a finding, less its host and the variable."""

    code: str
    evidence: Mapping[str, str]


def misfits(image: Image, machine: Machine, capabilities: Sequence[str] = ()) -> list[Misfit]:
    """Return why an image does not run on a machine. `capabilities` is what it has code for."""
    expected = ARCHITECTURES.get(machine.architecture, machine.architecture)
    if image.architecture and image.architecture != expected:
        error = f"it is for {image.architecture}, and the node is {expected}"
        return [Misfit(ARCHITECTURE, {"what": image.name, "error": error})]
    found = []
    of_driver = [*_of_driver(image, machine)]
    if of_driver:
        evidence = {
            "image": image.name,
            "need": "; ".join(of_driver),
            "driver": machine.driver or "an unknown version",
            "cuda": machine.cuda or "an unknown version",
            "instead": f"an image for {older(machine.cuda)}",
        }
        found.append(Misfit(DRIVER, evidence))
    of_gpus = [*_of_gpus(image, machine, capabilities)]
    if of_gpus:
        found.append(Misfit(GPU, {"image": image.name, "need": "; ".join(of_gpus)}))
    return found


def limits(image: Image, machine: Machine, capabilities: Sequence[str] = ()) -> list[Misfit]:
    """Return why only a part of the programs of an image may run on a machine.

    The image is for a newer minor version of CUDA than the driver. Machine code runs. PTX of the
    newer version does not: the driver would have to compile it. Neither do functions that came with
    the newer version. If the image has cuda-compat, programs get a newer libcuda, which does not
    support every GPU.
    """
    cuda = _newer(image, machine)
    if not cuda or not _is_minor(cuda, machine) or misfits(image, machine, capabilities):
        return []
    names = [
        gpu.name
        for gpu in dict.fromkeys(machine.gpus)
        if capabilities and gpu.capability and _needs_ptx(capabilities, gpu.capability)
    ]
    evidence = {
        "image": image.name,
        "expected": str(cuda),
        "driver": machine.driver or "an unknown version",
        "cuda": machine.cuda or "",
        "ptx": f" (verify_docker_capabilities has nothing else for {', '.join(names)})"
        if names
        else "",
    }
    return [Misfit(LIMITED, evidence)]


def supports(image: Image, machine: Machine) -> bool | None:
    """Tell whether the driver supports the version of CUDA that an image is for; None: unknown."""
    cuda = image_cuda.of_image(image.environment, machine.brand)
    return None if cuda is None or not machine.cuda else not cuda.is_newer(machine.cuda)


def older(cuda: str | None) -> str:
    """Name the versions of CUDA that a driver supports, given the newest of them."""
    return f"CUDA {cuda} or older" if cuda else "an older CUDA"


def is_same(image: Image, other: Image) -> bool:
    """Tell whether two hosts have the same image.

    Docker's id of an image depends on how Docker stores it, so digests decide. An image that was
    loaded from a file can have none: then the layers decide. They are less, because images with the
    same layers can have another environment and start another program.
    """
    one, two = ({name.rpartition("@")[2] for name in each.digests} for each in (image, other))
    if one and two:
        return not one.isdisjoint(two)
    return bool(image.layers and image.layers == other.layers)


def digest(image: Image) -> str:
    """Return the digest of an image; without one, that of its last layer, in these words.

    An image with several names has several of them.
    """
    if image.digests:
        return min(image.digests, key=lambda one: _distance(one, image.name)).rpartition(AT)[2]
    return f"layer {image.layers[-1][len(_KIND) :]}" if image.layers else "no layers"


def _distance(name: str, other: str) -> tuple[bool, bool]:
    """Tell whether the digests and the repositories of two names differ."""
    has_other_digest = not other.endswith(name.rpartition(AT)[2])
    return has_other_digest, _repository(name) != _repository(other)


def _repository(name: str) -> str:
    """Return the name of an image without its tag and digest, as Docker shortens it."""
    folder, slash, last = name.partition(AT)[0].rpartition("/")
    return re.sub(r"^docker\.io/(library/)?", "", f"{folder}{slash}{last.partition(':')[0]}")


def _of_driver(image: Image, machine: Machine) -> Iterator[str]:
    known = cuda_images.find(image.name)
    if known and machine.driver and not cuda_images.runs_with(image.name, machine.driver):
        yield f"driver {known.first_driver} or newer"
        return
    has_failed = False
    for text in _requirements(image):
        if machine.compares and meets(text, machine._replace(gpus=())) is False:
            has_failed = True
            yield f"`{_short(text)}`, which NVIDIA's runtime compares"
    cuda = _newer(image, machine)
    if has_failed or not cuda or meets(_asked(image), machine) is None:
        return
    first = _FIRST_DRIVERS.get(cuda.version[0])
    if not _is_minor(cuda, machine):
        yield f"a driver for CUDA {cuda}"
    elif machine.driver and first and _compare(machine.driver, first) < 0:
        yield f"driver {first} or newer"


def _newer(image: Image, machine: Machine) -> image_cuda.Cuda | None:
    """Return the version of CUDA of an image that is newer than the driver's; else None."""
    # Who says which drivers are enough knows more, such as that the image has cuda-compat.
    is_enough = bool(_asked(image)) and meets(_asked(image), machine) is True
    if _is_disabled(image) or is_enough or supports(image, machine) is not False:
        return None
    return image_cuda.of_image(image.environment, machine.brand)


def _asked(image: Image) -> str:
    return image.environment.get(image_cuda.REQUIRE, "")


def _is_minor(cuda: image_cuda.Cuda, machine: Machine) -> bool:
    """Tell whether programs for this newer version of CUDA run with the driver, within limits."""
    return _MINOR_SINCE <= cuda.version[0] <= release(machine.cuda or "")[0]


def _needs_ptx(capabilities: Sequence[str], capability: str) -> bool:
    """Tell whether code covers a GPU only by PTX."""
    code = [text.replace(_PTX, "") for text in capabilities]
    return covers(capabilities, capability) and not covers(code, capability)


def _of_gpus(image: Image, machine: Machine, capabilities: Sequence[str]) -> Iterator[str]:
    known = cuda_images.find(image.name)
    for gpu in dict.fromkeys(machine.gpus):
        alone = machine._replace(gpus=(gpu,))
        if known and gpu.generation not in (*known.generations, *known.compiled):
            yield f"it has no code for {gpu.name} ({gpu.generation})"
        elif capabilities and gpu.capability and not covers(capabilities, gpu.capability):
            has = ", ".join(capabilities)
            yield f"it has code for {has}, and {gpu.name} has {gpu.capability}"
        elif machine.compares:
            for text in _requirements(image):
                without = meets(text, alone._replace(gpus=()))
                if without is not False and meets(text, alone) is False:
                    yield f"`{_short(text)}`, and {gpu.name} has {gpu.capability}"


def covers(capabilities: Sequence[str], capability: str) -> bool:
    """Tell whether code for some compute capabilities runs on a GPU with this one.

    Machine code runs on GPUs of the same major version, from its minor version on. PTX, which the
    driver compiles, runs on every newer GPU. Code for 9.0a runs only on 9.0, and code for 10.0f on
    its family, which has the same major version.
    """
    wanted = release(capability)
    for text in capabilities:
        match = CAPABILITY.fullmatch(text)
        if match is None:
            continue
        has = (int(match["major"]), int(match["minor"]))
        if match["kind"] == "a" and has == wanted:
            return True
        if match["kind"] != "a" and has[0] == wanted[0] and has <= wanted:
            return True
        if match["ptx"] and not match["kind"] and has <= wanted:
            return True
    return False


def meets(requirement: str, machine: Machine) -> bool | None:
    """Tell whether a machine meets a requirement of an image; None: it depends on what is unknown.

    Terms are separated by blanks, and one of them must hold. Each has factors with commas between,
    which must all hold. The runtime ignores a factor with an unknown name.
    """
    terms = [
        [found for factor in term.split(",") if (found := _FACTOR.fullmatch(factor))]
        for term in requirement.split()
    ]
    terms = [[one for one in term if one["name"] in _PROPERTIES] for term in terms]
    held = [_all(_holds(one, machine) for one in term) for term in terms if term]
    if not held or True in held:
        return True
    return None if None in held else False


def _all(held: Iterator[bool | None]) -> bool | None:
    found = [*held]
    if False in found:
        return False
    return None if None in found else True


_PROPERTIES = ("cuda", "driver", "arch", "brand")


def _holds(factor: re.Match[str], machine: Machine) -> bool | None:
    value = {
        "cuda": machine.cuda,
        "driver": machine.driver,
        "arch": machine.gpus[0].capability if machine.gpus else None,
        "brand": image_cuda.plain_brand(machine.brand),
    }[factor["name"]]
    if not value:
        return None
    if factor["name"] == "brand":
        order = 0 if value == factor["value"] else 1
    else:
        order = _compare(value, factor["value"])
    return order in _SIGNS[factor["sign"]]


def _compare(value: str, other: str) -> int:
    pairs = zip_longest(release(value), release(other), fillvalue=0)
    return next((1 if one > two else -1 for one, two in pairs if one != two), 0)


def _requirements(image: Image) -> list[str]:
    """Return what the runtime compares with the machine."""
    environment = image.environment
    if _is_disabled(image):
        return []
    found = [
        value
        for name, value in sorted(environment.items())
        if name.startswith(_REQUIRE) and not name.startswith(_JETPACK)
    ]
    # Images of before 2018 only have the version.
    if not environment.get(f"{_REQUIRE}CUDA") and environment.get(_CUDA):
        version = ".".join(map(str, release(environment[_CUDA])[:2]))
        found += [f"cuda>={version}"] if version else []
    return found


def _is_disabled(image: Image) -> bool:
    return image.environment.get(_DISABLE) in _TRUE


def _short(text: str) -> str:
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}…"

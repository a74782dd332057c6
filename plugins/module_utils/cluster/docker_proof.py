# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""The proof by `docker run`, for hosts without Kubernetes: its scripts, and what they print.

No function does I/O.

The first one pulls the image and prints what it needs, so that a host on which it would not run is
named before a container starts. The second one runs it with all GPUs. Each is one remote operation.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import smoke_output
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_output import Result
from ansible_collections.metal.gpu.plugins.module_utils.read.image_needs import Image
from ansible_collections.metal.gpu.plugins.module_utils.read.image_runtime import GPUS, RUNTIME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PART = "== "
_EXIT = re.compile(r"^exit (?P<code>\d+)(?: of at most (?P<limit>\d+) s)?$", re.MULTILINE)
_VERSIONS = re.compile(r"^versions (?P<driver>\S+) (?P<cuda>\S+)$", re.MULTILINE)
_NOT_STARTED = (125, 126, 127)  # by Docker: no container; no permission; no such program
_CAPABILITY = re.compile(r"(?P<uuid>GPU-[0-9A-Fa-f-]+), (?P<capability>[0-9]{1,2}\.[0-9])")
_USER = re.compile(
    r"^(?P<uuid>(?:GPU|MIG)-[^,\s]+), (?P<pid>[0-9]+), (?P<program>\S+)$", re.MULTILINE
)
_AT_ITS_LIMIT, _STOPPED = 124, (124, 137, 143)
QUERY_S = 60  # for a question to the driver or to Docker, which may hang
# A program that ignores SIGTERM gets SIGKILL 5 s later.
_TIMEOUT = "timeout -k 5"
PULL_S = 7200  # 30 GB at 34 Mbit/s; what is complete then is there for the next run

# Two braces would be a template for Ansible, so the shell makes them. Of the environment, which
# may have secrets, only what decides where the image runs leaves the host, and of the programs that
# use GPUs, whose arguments may have some, only the names.
_PULL = """\
o=$(printf '\\173\\173') c=$(printf '\\175\\175')
say() { printf '== %s\\n' "$1"; }
limited() { TIMEOUT QUERY "$@"; }
show() { limited docker image inspect --format "$1" "$image" 2>&1; }
has() { limited docker image inspect "$image" >/dev/null 2>&1; }
case $image in *@sha256:*) pinned=yes ;; *) pinned= ;; esac
before=$(show "${o}.Id${c}")
if [ -n "$may_pull" ] && { [ -z "$pinned" ] || ! has; }; then
  words=$(TIMEOUT PULL docker pull --quiet "$image" 2>&1)
  case $? in
    0) ;;
    124 | 137) say failure; echo 'docker pull was stopped after PULL s' ;;
    *) say failure; printf '%s\\n' "${words:-docker pull printed nothing}" ;;
  esac
fi
if has; then
  [ "$before" = "$(show "${o}.Id${c}")" ] || say pulled
  say architecture; show "${o}.Architecture${c}"
  say digests; show "${o}json .RepoDigests${c}"
  say layers; show "${o}json .RootFS.Layers${c}"
  say environment
  show "${o}range .Config.Env${c}${o}println .${c}${o}end${c}" |
    grep -E '^(NVIDIA_REQUIRE_[A-Z_]+|NVIDIA_DISABLE_REQUIRE|CUDA_VERSION)='
fi
say way; printf '%s\n' "$way"
say gpus; limited nvidia-smi --query-gpu=uuid,compute_cap --format=csv,noheader 2>&1
say users
limited nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name --format=csv,noheader 2>&1 |
  sed -n 's/^\\([^,]*, [0-9]*, [^ ]*\\).*/\\1/p'
say brand; limited nvidia-smi -q 2>/dev/null | sed -n 's/^ *Product Brand *: *//p' | head -n 1
say end
"""

_VERSIONS_SCRIPT = f"""\
{_TIMEOUT} {QUERY_S} nvidia-smi 2>/dev/null | sed -n \
's/.*Driver Version: *\\([0-9.]*\\).*CUDA Version: *\\([0-9.]*\\).*/versions \\1 \\2/p'
"""

# The errors of Docker must not be taken for what the container prints. A program can ignore that it
# is asked to end. Then only the client of Docker is stopped, and the container keeps running, with
# its name. So it is removed before the next one starts, and when the script ends early.
_RUN = """\
name=metal-gpu-proof-$$
remove() { TIMEOUT 60 docker rm --force "$name" >/dev/null 2>&1; }
trap remove EXIT
exec 3>&1
start() {
  words=$(TIMEOUT LIMIT docker run --rm --name "$name" --network none "$@" 2>&1 >&3)
  code=$?
  remove
  printf '\\n== errors\\n%s\\n== end\\nexit %s of at most LIMIT s\\n' "$words" "$code"
}
"""


class Pulled(NamedTuple):
    """What the first script found."""

    image: Image | None  # None: the host does not have it
    failure: str  # of the pull; an image can be there nevertheless. Empty: none was tried
    capabilities: Mapping[str, str]  # by UUID; empty if nvidia-smi does not say it
    brand: str
    way: str = GPUS  # how a container gets GPUs
    users: Mapping[str, Sequence[str]] = {}  # programs that use a GPU, by its UUID


class Proof(NamedTuple):
    """What the second script found."""

    results: tuple[Result, ...]
    driver: str | None  # as the container sees them
    cuda: str | None
    trouble: str = ""  # what else the container printed
    error: str = ""  # why no container computed; empty if one did
    by_uuid: bool = False  # each GPU had a container of its own


class _Ended(NamedTuple):
    """How a container came to its end."""

    said: str
    refused: str  # why Docker did not start it; empty if it did
    code: int | None  # None: the script ended before
    stopped: str  # by whom it was stopped; empty if it ended by itself


def pull_script(
    image: str, may_pull: bool = True, way: str = GPUS, pull_limit_s: int = PULL_S
) -> str:
    """Return a script that pulls the image, and prints what it needs and what the host has.

    An image by digest that is there is not pulled again: nobody can have changed it. Check mode
    pulls nothing, and looks at what is there. `way` is how a container of this host gets GPUs.
    """
    pull = "yes" if may_pull else ""
    script = _PULL.replace("TIMEOUT", _TIMEOUT).replace("QUERY", str(QUERY_S))
    script = script.replace("PULL", str(pull_limit_s))
    return f"image={shlex.quote(image)} may_pull={pull} way={shlex.quote(way)}\n{script}"


def run_script(image: str, command: Sequence[str] = (), limit_s: int = 300, way: str = GPUS) -> str:
    """Return a script that computes on all GPUs in containers of the image.

    Without a command, one container runs vectorAdd on each GPU. The command runs once for each GPU,
    in a container with this GPU only. `way` is how a container gets GPUs.
    """
    head = _RUN.replace("TIMEOUT", _TIMEOUT).replace("LIMIT", str(limit_s))
    if not command:
        _sh, _c, script = smoke_output.command(smoke_output.COMPUTE)
        script = _VERSIONS_SCRIPT + script.replace("/dev/termination-log", "/dev/null")
        words = [*_options(way, "all"), "--entrypoint", "sh", image, "-c", script]
        return f"{head}start {shlex.join(words)}\n"
    program = shlex.join(["--entrypoint", command[0], image, *command[1:]])
    options = " ".join(_options(way, '"$uuid"'))
    query = f"{_TIMEOUT} {QUERY_S} nvidia-smi --query-gpu=uuid --format=csv,noheader"
    return (
        f"{head}for uuid in $({query}); do\n"
        f"printf '{_PART}gpu %s\\n' \"$uuid\"\n"
        f"start {options} {program}\n"
        "done\n"
    )


def _options(way: str, gpu: str) -> list[str]:
    if way == RUNTIME:
        return ["--runtime", "nvidia", "--env", f"NVIDIA_VISIBLE_DEVICES={gpu}"]
    return ["--gpus", gpu if gpu == "all" else f"device={gpu}"]


def parse_pulled(name: str, output: str) -> Pulled:
    """Read what the first script printed."""
    parts = _parts(output)
    image = None
    if "layers" in parts:
        lines = parts.get("environment", "").splitlines()
        image = Image(
            name,
            parts.get("architecture", "").strip(),
            _texts(parts.get("digests", "")),
            _texts(parts["layers"]),
            dict(line.split("=", 1) for line in lines if "=" in line),
        )
    found = _CAPABILITY.finditer(parts.get("gpus", ""))
    failure = parts.get("failure", "").strip()
    if image is None and not failure and "end" not in parts:
        failure = output.strip() or "the script printed nothing"
    return Pulled(
        image,
        failure,
        {one["uuid"]: one["capability"] for one in found},
        parts.get("brand", "").strip(),
        parts.get("way", "").strip() or GPUS,
        _users(parts.get("users", "")),
    )


def _users(text: str) -> dict[str, list[str]]:
    """Read the programs that use GPUs. nvidia-smi has words in brackets for unknown names."""
    found: dict[str, list[str]] = {}
    for one in _USER.finditer(text):
        program = one["program"].rpartition("/")[2]
        name = "process" if program.startswith("[") else f"{program}, process"
        found.setdefault(one["uuid"], []).append(f"{name} {one['pid']}")
    return found


def parse_run(output: str, *, has_command: bool = False) -> Proof:
    """Read what the second script printed."""
    if has_command:
        return _parse_commands(output)
    ended = _ended(output)
    if ended.refused or ended.code is None:
        error = ended.refused or "the script ended before the container"
        return Proof((), None, None, error=error)
    versions = _VERSIONS.search(ended.said)
    computed = smoke_output.parse_computed(_VERSIONS.sub("", ended.said))
    error = "" if computed.has_program else "the image has no shell, or no vectorAdd"
    if ended.stopped and not computed.results:
        error = f"it {ended.stopped}"
    return Proof(
        computed.results,
        versions["driver"] if versions else None,
        versions["cuda"] if versions else None,
        computed.trouble,
        error,
    )


def _parse_commands(output: str) -> Proof:
    results, errors = [], []
    for part in f"\n{output}".split(f"\n{_PART}gpu ")[1:]:
        uuid, _newline, text = part.partition("\n")
        ended = _ended(text)
        if ended.refused:
            errors.append(ended.refused)
            continue
        words = ([line.strip() for line in ended.said.splitlines() if line.strip()] or [""])[-1]
        if ended.stopped:
            words = f"the program {ended.stopped}"
        is_ok = ended.code == 0
        error = "" if is_ok else words or f"it exited with code {ended.code}"
        results.append(Result(uuid, is_ok, error))
    error = errors[0] if errors and not results else ""
    if not results and not error:
        error = output.strip() or "nvidia-smi lists no GPU on the host"
    trouble = "; ".join(dict.fromkeys(errors)) if results else ""
    return Proof(tuple(results), None, None, trouble, error, by_uuid=True)


def _ended(text: str) -> _Ended:
    said, _part, rest = text.partition(f"\n{_PART}errors\n")
    errors, _part, end = rest.partition(f"\n{_PART}end\n")
    match = _EXIT.search(end)
    code = int(match["code"]) if match else None
    if code in _NOT_STARTED:
        return _Ended(said, errors.strip() or f"docker run exited with code {code}", code, "")
    # A program prints its error where Docker prints its own.
    said = f"{said}\n{errors}" if code else said
    return _Ended(said, "", code, _stopped(match) if match and code in _STOPPED else "")


def _stopped(end: re.Match[str]) -> str:
    who = "" if int(end["code"]) == _AT_ITS_LIMIT else " or by the kernel"
    limit = f"{end['limit']} s" if end["limit"] else "its time"
    return f"was stopped after {limit}{who} (exit code {end['code']})"


def _parts(output: str) -> dict[str, str]:
    found = {}
    for part in f"\n{output}".split(f"\n{_PART}")[1:]:
        name, _newline, text = part.partition("\n")
        found[name] = text
    return found


def _texts(text: str) -> tuple[str, ...]:
    """Return the texts of a JSON list; an image that was loaded from a file has null."""
    try:
        found = json.loads(text)
    except ValueError:
        return ()
    return tuple(map(str, found)) if isinstance(found, list) else ()

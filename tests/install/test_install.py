# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The built wheel installs with pip, pipx and uv, and brings the command and the collection.

usage: make dist-test

These tests need a package index. They install into folders of their own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pexpect
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
(WHEEL,) = (ROOT / "dist").glob("metal_gpu-*.whl")
VERSION = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

# Of ansible-core, only programs are called: what follows finds none of it to import.
BLOCK = """
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "ansible":
            raise ModuleNotFoundError(name, name="ansible")
sys.meta_path.insert(0, Refused())
"""
# These plan and judge.
LIBRARY = f"""{BLOCK}
from ansible_collections.metal.gpu.plugins.module_utils.findings import CATALOGUE
from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import reconcile
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import interpret
"""

# Prints the modules of the collection's library that need Ansible.
NEEDY = f"""{BLOCK}
import importlib, pathlib, ansible_collections
(home,) = map(pathlib.Path, ansible_collections.__path__)
for path in sorted(home.glob("metal/gpu/plugins/*_utils/**/*.py")):
    parts = path.relative_to(home).with_suffix("").parts
    try:
        importlib.import_module(".".join(["ansible_collections", *parts]))
    except ModuleNotFoundError as error:
        print("/".join(parts[4:]), error.name)
"""
# These speak with modules, connections and displays of Ansible.
WITH_ANSIBLE = {
    "cluster/kube_module ansible",
    "module_runner ansible",
    "packages/repository_key ansible",
    "quiet ansible",
}

# The whole package can be imported, with the requirements that pip has installed.
EVERYTHING = f"""{BLOCK}
import importlib, pkgutil, metal_gpu
for module in pkgutil.walk_packages(metal_gpu.__path__, "metal_gpu."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def run(command: list[str | Path], folder: Path, **variables: str) -> str:
    """Return the standard output of a command that has to succeed.

    It does not see this environment or checkout.
    """
    foreign = ("ANSIBLE_", "PYTHON", "VIRTUAL_ENV")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**inherited, "HOME": str(folder), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def install(home: Path, what: str) -> Path:
    """Create an environment, and return its folder of programs."""
    run([sys.executable, "-m", "venv", home], home.parent)
    run([home / "bin/pip", "install", "--quiet", "--no-compile", what], home.parent, **pip())
    return home / "bin"


def pip() -> dict[str, str]:
    """Return the settings of this user's pip, which is in another home folder here."""
    asked = [sys.executable, "-m", "pip", "config", "list"]
    listing = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    settings = re.findall(r"^(?:global|:env:)\.([\w-]+)='(.*)'$", listing, re.MULTILINE)
    return {f"PIP_{key.upper().replace('-', '_')}": value for key, value in settings}


@pytest.fixture(scope="module")
def uv(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the same settings for uv, which reads none of pip's, with one cache for all tests."""
    names = {
        "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
        "PIP_EXTRA_INDEX_URL": "UV_INDEX",
        "PIP_FIND_LINKS": "UV_FIND_LINKS",
        "PIP_CERT": "SSL_CERT_FILE",
    }
    known = {names[key]: value for key, value in pip().items() if key in names}
    cache = tmp_path_factory.mktemp("uv")
    return {"UV_CACHE_DIR": str(cache), "UV_PYTHON": sys.executable, **known}


def pythons() -> dict[str, str]:
    """Return the supported Pythons of this machine, as scripts/bootstrap finds them."""
    search = """
        eval "$(sed -n '/^find_python() {/,/^}/p' scripts/bootstrap)"
        find_python "$0"
    """
    found = {
        f"3.{minor}": subprocess.run(
            ["bash", "-c", search, str(minor)], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.strip()
        for minor in range(11, 15)
    }
    found[f"3.{sys.version_info.minor}"] = sys.executable
    return {version: path for version, path in found.items() if path}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of an environment without the extra."""
    return install(tmp_path_factory.mktemp("alone") / "venv", str(WHEEL))


@pytest.fixture(scope="module")
def with_ansible(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("with_ansible") / "venv", f"{WHEEL}[ansible]")


# --- pip -----------------------------------------------------------------------------------------


def test_pip_makes_the_same_wheel_from_a_checkout(tmp_path: Path) -> None:
    """As `pip install .` of README does. Only the dates of the files differ."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    run([*command, tmp_path, ROOT], tmp_path, **pip())
    assert contents(tmp_path / WHEEL.name) == contents(WHEEL)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_command_helps_and_tells_its_version(alone: Path, tmp_path: Path) -> None:
    assert "Usage: metal-gpu" in run([alone / "metal-gpu", "--help"], tmp_path)
    assert run([alone / "metal-gpu", "--version"], tmp_path) == f"metal-gpu {VERSION}\n"


@pytest.mark.parametrize(("name", "target"), SCRIPTS.items(), ids=lambda one: one)
def test_commands_exist(alone: Path, tmp_path: Path, name: str, target: str) -> None:
    assert (alone / name).is_file()
    module, _colon, function = target.partition(":")
    check = f"import {module}; assert callable({module}.{function})"
    run([alone / "python", "-c", check], tmp_path)


def test_library_works_without_ansible(alone: Path, tmp_path: Path) -> None:
    run([alone / "python", "-c", LIBRARY], tmp_path)
    run([alone / "python", "-c", EVERYTHING], tmp_path)


def test_library_needs_ansible_only_to_speak_with_it(alone: Path, tmp_path: Path) -> None:
    assert {*run([alone / "python", "-c", NEEDY], tmp_path).splitlines()} <= WITH_ANSIBLE


def test_requirements_are_compatible(alone: Path, tmp_path: Path) -> None:
    run([alone / "pip", "check"], tmp_path)


def test_oldest_requirements(tmp_path: Path, uv: Mapping[str, str]) -> None:
    """The package works with the oldest versions that pyproject.toml allows."""
    works(sys.executable, tmp_path / "venv", uv, "--resolution=lowest-direct")


@pytest.mark.parametrize("python", pythons().values(), ids=pythons())
def test_each_python(python: str, tmp_path: Path, uv: Mapping[str, str]) -> None:
    """The package works with each supported Python that is on this machine."""
    works(python, tmp_path / "venv", uv)


def works(python: str, home: Path, uv: Mapping[str, str], *options: str) -> None:
    """Install the wheel for a Python, import all of it, and run the command."""
    run([python, "-m", "venv", "--without-pip", home], home.parent)
    command: list[str | Path] = [sys.executable, "-m", "uv", "pip", "install", "--quiet"]
    run([*command, "--python", home / "bin/python", *options, WHEEL], home.parent, **uv)
    assert "Usage: metal-gpu" in run([home / "bin/metal-gpu", "--help"], home.parent)
    run([home / "bin/python", "-c", EVERYTHING], home.parent)


# --- completion ----------------------------------------------------------------------------------

# What is typed before the tab key, and some of the words that have to be offered then.
TYPED = {
    "metal-gpu ": {"scan", "doctor", "explain", "site", "verify", "cluster"},
    "metal-gpu doctor --": {"--inventory", "--json", "--accept-new-host-keys"},
    "metal-gpu cluster ": {"show", "verify"},
    "metal-gpu explain GPU_UN": {"GPU_UNHEALTHY", "GPU_UNRELIABLE", "GPU_UNSUPPORTED_BY_DRIVER"},
}
# Where each shell looks for them.
FILES = {
    "bash": {".bashrc", ".bash_completions/metal-gpu.sh"},
    "zsh": {".zshrc", ".zfunc/_metal-gpu"},
    "fish": {".config/fish/completions/metal-gpu.fish"},
}


def of_shell(programs: Path, home: Path) -> dict[str, str]:
    """Return the environment of a shell whose settings are in its home folder."""
    foreign = ("ANSIBLE_", "PYTHON", "VIRTUAL_ENV", "XDG_", "ZDOTDIR")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    path = f"{programs}:{os.environ['PATH']}"
    return {**kept, "HOME": str(home), "PATH": path, "TERM": "dumb", "LC_ALL": "C.UTF-8"}


def in_shell(programs: Path, home: Path, *command: str) -> str:
    done = subprocess.run(
        command, cwd=home, env=of_shell(programs, home), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module", params=FILES)
def shell(
    request: pytest.FixtureRequest, alone: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """Return a shell, and a home folder in which the completion is installed as README does."""
    name, home = request.param, tmp_path_factory.mktemp(request.param)
    own = {"bash": ".bashrc", "zsh": ".zshrc"}
    if name in own:
        (home / own[name]).write_text("export OWN=kept\nPROMPT='ready> '\n")
    # The command looks for a shell among the processes above it: `true` keeps that one there.
    said = in_shell(alone, home, name, "-c", "metal-gpu --install-completion; true")
    assert f"{name} completion installed in {home}/" in said
    if name in own:
        assert "export OWN=kept\n" in (home / own[name]).read_text()
    files = {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}
    assert files >= FILES[name]
    return name, home


@pytest.mark.parametrize("typed", TYPED)
def test_shells_complete(shell: tuple[str, Path], alone: Path, typed: str) -> None:
    """Each shell that starts offers all words at the first tab key, and nothing else."""
    name, home = shell
    words = known(alone, home, typed)
    assert words >= TYPED[typed]
    offer = {"bash": offered_by_bash, "zsh": offered_by_zsh, "fish": offered_by_fish}[name]
    assert offer(alone, home, typed) == words


def known(programs: Path, home: Path, typed: str) -> set[str]:
    """Return the words that the command knows."""
    asking = {
        "_METAL_GPU_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
    }
    environment = {**of_shell(programs, home), **asking}
    return {*subprocess.check_output([programs / "metal-gpu"], env=environment, text=True).split()}


def offered_by_bash(programs: Path, home: Path, typed: str) -> set[str]:
    """Call what bash calls at the tab key."""
    words = f"""
        . ./.bashrc
        COMP_WORDS=({typed} {"''" if typed.endswith(" ") else ""})
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        found=$(complete -p metal-gpu)
        [[ $found =~ ' -F '([^ ]+) ]]
        "${{BASH_REMATCH[1]}}" metal-gpu
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return {*in_shell(programs, home, "bash", "--norc", "-c", words).split()}


def offered_by_zsh(programs: Path, home: Path, typed: str) -> set[str]:
    """Press the tab key. zsh lists the words with their descriptions, and asks again.

    It puts words with the same description into one line.
    """
    environment = {**os.environ, **of_shell(programs, home)}
    with pexpect.spawn(
        *("zsh", ["-i"]), env=environment, dimensions=(60, 250), encoding="utf-8", timeout=120
    ) as child:
        child.expect_exact("ready> ")
        child.send(f"{typed}\t")
        child.expect_exact("ready> ")
        listing = child.before
    lines = re.findall(r"^(\S.*?) +-- ", listing, re.MULTILINE)
    return {word for line in lines for word in line.split()}


def offered_by_fish(programs: Path, home: Path, typed: str) -> set[str]:
    listing = in_shell(programs, home, "fish", "-c", f"complete --do-complete '{typed}'")
    return {line.partition("\t")[0] for line in listing.splitlines()}


# --- with Ansible --------------------------------------------------------------------------------


def ansible(programs: Path, folder: Path, *command: str, **variables: str) -> str:
    """Run a program of Ansible.

    Ansible writes the bytecode of a filter beside it, which `ansible-galaxy collection verify`
    takes for a change of the collection.
    """
    own = {"LC_ALL": "C.UTF-8", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    return run([programs / command[0], *command[1:]], folder, **own, **variables)


def test_playbooks_are_found(with_ansible: Path, tmp_path: Path) -> None:
    (tmp_path / "inventory.yml").write_text("gpu_nodes: {hosts: {gpu-1: {gpu_count: 4}}}\n")
    for playbook in sorted((ROOT / "playbooks").glob("[a-z]*.yml")):
        name = f"metal.gpu.{playbook.stem}"
        said = ansible(
            with_ansible,
            tmp_path,
            *("ansible-playbook", "-i", "inventory.yml", name, "--syntax-check"),
        )
        assert re.search(rf"^playbook: .*/metal/gpu/playbooks/{playbook.name}$", said, re.MULTILINE)


def test_ansible_knows_the_version(with_ansible: Path, tmp_path: Path) -> None:
    said = ansible(with_ansible, tmp_path, "ansible-galaxy", "collection", "list", "metal.gpu")
    assert re.search(rf"metal\.gpu +{re.escape(VERSION)}\b", said)


def test_modules_and_the_other_collection_are_there(with_ansible: Path, tmp_path: Path) -> None:
    for name in ("metal.gpu.node_info", "kubernetes.core.k8s"):
        said = ansible(with_ansible, tmp_path, "ansible-doc", "--type", "module", name)
        assert name in said


def test_files_are_those_of_the_listing(with_ansible: Path, tmp_path: Path) -> None:
    """ansible-galaxy compares each file with FILES.json."""
    (home,) = with_ansible.parent.glob("lib/python*/site-packages")
    said = ansible(
        with_ansible,
        tmp_path,
        *("ansible-galaxy", "collection", "verify", "--offline", "metal.gpu"),
        ANSIBLE_COLLECTIONS_PATH=str(home),
    )
    assert "Successfully verified" in said


# --- pipx and uv ---------------------------------------------------------------------------------


def helps(folder: Path, variables: Mapping[str, str]) -> None:
    said = run([folder / "metal-gpu", "--version"], folder, **variables)
    assert said == f"metal-gpu {VERSION}\n"


def brings_ansible(folder: Path) -> None:
    """Assert that the programs of Ansible which the documents name are there, and find ours."""
    for name in ("ansible", "ansible-doc", "ansible-galaxy", "ansible-inventory", "ansible-vault"):
        assert (folder / name).is_file()
    said = ansible(folder, folder, "ansible-playbook", "--version")
    assert said.startswith("ansible-playbook [core ")
    said = ansible(folder, folder, "ansible-doc", "--type", "module", "metal.gpu.node_info")
    assert "metal.gpu.node_info" in said


@pytest.mark.parametrize(("options", "extra"), [([], ""), (["--include-deps"], "[ansible]")])
def test_pipx(options: list[str], extra: str, tmp_path: Path) -> None:
    """With the option of README, the programs of Ansible are there."""
    homes = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    command: list[str | Path] = [sys.executable, "-m", "pipx", "install", *options]
    run([*command, f"{WHEEL}{extra}"], tmp_path, **homes, **pip())
    helps(tmp_path / "bin", homes)
    if extra:
        brings_ansible(tmp_path / "bin")


def test_uv(tmp_path: Path, uv: Mapping[str, str]) -> None:
    """With the option of README, the programs of Ansible are there."""
    homes = {"UV_TOOL_DIR": str(tmp_path / "home"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    command: list[str | Path] = [sys.executable, "-m", "uv", "tool", "install", "--quiet"]
    options = ["--with-executables-from", "ansible-core"]
    run([*command, *options, f"{WHEEL}[ansible]"], tmp_path, **homes, **uv)
    helps(tmp_path / "bin", homes)
    brings_ansible(tmp_path / "bin")

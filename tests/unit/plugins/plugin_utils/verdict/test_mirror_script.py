# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The script that fills a mirror, run with stand-ins that do what the records say."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import (
    DEBIAN,
    PACKAGES,
    REDHAT,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import mirror_script
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.mirror import (
    File,
    Listing,
    Repository,
)
from ansible_collections.metal.gpu.tests.unit.golden.nodes import ROOT
from ansible_collections.metal.gpu.tests.unit.support import records

HOSTS = ["gpu-1"]
LOGIN = r'reader:canary"\1%20@'
DOCKER = Repository(f"https://{LOGIN}d.example/deb", "bookworm", "stable", DEBIAN)
FLAT = Repository(f"https://{LOGIN}n.example/flat/", "/", "", DEBIAN)
WITH_PORT = Repository("http://p.example:8080/flat/", "/", "", DEBIAN)
SIGNED_INDEX = Repository(f"https://{LOGIN}r.example/el9/", "", "", REDHAT)
SIGNED_PACKAGES = Repository("https://s.example/el9/", "", "", REDHAT, PACKAGES)
CONTENT = b"content\n"  # of all files and packages
SHA256 = hashlib.sha256(CONTENT).hexdigest()
EVERYTHING = Listing(
    {
        DOCKER: {"a=5:2.4.1-*": HOSTS},
        FLAT: {"b": HOSTS},
        WITH_PORT: {"d=1-1": HOSTS},
        SIGNED_INDEX: {"c-3:580.1": HOSTS},
        SIGNED_PACKAGES: {"e-1-1.el9": HOSTS},
    },
    {},
    {
        File(f"https://{LOGIN}n.example/key.pub", fingerprint="F" * 40): HOSTS,
        File("https://f.example/a b.run", sha256=SHA256): HOSTS,
    },
    dict.fromkeys(
        (
            "busybox:1",
            "nvcr.io/nvidia/x:1",
            f"team/app@sha256:{'b' * 64}",
            f"registry:5000/app:2@sha256:{'b' * 64}",
        ),
        HOSTS,
    ),
    {},
)
FACTS = {
    row["what"]: row["value"]
    for row in yaml.safe_load((ROOT / "tests/recorded/mirror_programs.yml").read_text())["facts"]
}
PORT = {"host": "p.example", "port": 8080}
FETCHED, EXPECTED = FACTS["folder of wget"].format(**PORT), FACTS["folder of apt-mirror"]
# What apt-mirror fetches, by its folder: versions by package. Each package has a file of its name.
UPSTREAM = {
    "d.example/deb/dists/bookworm/stable/binary-amd64": {"a": ["5:2.4.0-9", "5:2.4.1-2"]},
    "n.example/flat": {"b": ["1.9-1", "1.10-1"], "unlisted": ["1-1"]},
    f"{FETCHED}/flat": {"d": ["1-1"]},
}
RPMS = {"r.example/el9": "x/c-580.1-1.el9.x86_64.rpm", "s.example/el9": "e-1-1.el9.x86_64.rpm"}
TOOLS = "awk cat chmod cp dirname find grep ln mkdir mktemp rm sed sha256sum sort stat tail"

# Says how it is called.
_PROGRAM = '#!/bin/sh\n{ printf "%s" "${0##*/}"; printf " <%s>" "$@"; echo; } >> calls\n'
PROGRAMS = {
    # What the test has put into upstream.
    "apt-mirror": "cp sums apt/var/SHA256; cd upstream\n"
    "for one in *; do for to in ../apt/skel ../mirror; do\n"
    'mkdir -p "$to/$one"; cp -R "$one/." "$to/$one/"; done; done\n',
    "curl": 'output=$5; read -r address; printf "%s\\n" "$address" >> read\n'
    'case $address in *"$(cat absent)") exit "$(cat error)";; esac\n'
    'mkdir -p "$(dirname "$output")"; echo content > "$output"\n',
    "dnf": "case $2 in --help) exit 0;; esac\n"
    'sources=${2#--setopt=reposdir=}; stat -c "%a" "$sources" "$sources"/* >> modes\n'
    'cat "$sources/${3#--repoid=}.repo" >> read\n'
    'place=${6#--download-path=}; mkdir -p "$place/repodata"\n'
    'echo content > "$place/repodata/repomd.xml"\n'
    'cp -R "rpms/${place#mirror/}/." "$place"\n'
    "[ ! -e broken ]\n",
    "gpg": f"echo 'fpr:::::::::{'F' * 40}:'\n",
    "skopeo": 'case $2 in --help) echo "  --preserve-digests  Preserve digests";; esac\n',
    "xz": "",
}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder in which the script runs. Its programs are in bin, and nothing else is in PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in TOOLS.split():
        (programs / name).symlink_to(str(shutil.which(name)))
    for name, text in PROGRAMS.items():
        (programs / name).write_text(_PROGRAM + text)
        (programs / name).chmod(0o755)
    for name, text in (("absent", "nothing is absent"), ("error", "22"), ("calls", "")):
        (tmp_path / name).write_text(text)
    sums = []
    for folder, packages in UPSTREAM.items():
        root = folder.partition("/dists/")[0]
        stanzas = []
        for name, versions in packages.items():
            for version in versions:
                file = f"./{name}_{version.rpartition(':')[2]}_amd64.deb"
                sums.append(f"{SHA256}  {root.replace(':8080', '')}/{file[2:]}\n")
                stanzas.append(
                    f"Package: {name}\nVersion: {version}\nDescription: x: y\n more\n"
                    f"SHA256: {SHA256}\nFilename: {file}\n"
                )
                write(tmp_path / "upstream" / root / file)
        write(tmp_path / "upstream" / folder / "Packages", "\n".join(stanzas).encode())
    # apt-mirror only fetches this one of a repository that has suites.
    write(tmp_path / "upstream/d.example/deb/dists/bookworm/InRelease")
    write(tmp_path / "sums", "".join(sums).encode())
    for place, rpm in RPMS.items():
        write(tmp_path / "rpms" / place / rpm)
    return tmp_path


def write(path: Path, content: bytes = CONTENT) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def fill(folder: Path, listing: Listing = EVERYTHING) -> subprocess.CompletedProcess[str]:
    script = "\n".join(mirror_script.commands(listing, "registry.example:5000"))
    return subprocess.run(
        ["/bin/sh", "-c", script],
        check=False,
        cwd=folder,
        env={"PATH": str(folder / "bin"), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
    )


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_script_fills_a_mirror(machine: Path) -> None:
    result = fill(machine)
    assert (result.returncode, result.stderr) == (0, "")
    curl = "curl <--fail> <--location> <--create-dirs> <--output> <mirror/{}> <--config> <->"
    options = "<--download-metadata> <--norepopath>"
    prefix = "docker://registry.example:5000/"
    found = [line for line in calls(machine) if "--help" not in line]
    (sources,) = {word for line in found for word in line.split() if "reposdir" in word}
    assert found == [
        "apt-mirror <apt-mirror.list>",
        curl.format("n.example/flat/InRelease"),
        curl.format("p.example/flat/InRelease"),
        f"dnf <reposync> {sources} <--repoid=r.example-el9> {options} "
        "<--download-path=mirror/r.example/el9>",
        curl.format("r.example/el9/repodata/repomd.xml.asc"),
        f"dnf <reposync> {sources} <--repoid=s.example-el9> {options} "
        "<--download-path=mirror/s.example/el9>",
        curl.format("n.example/key.pub"),
        "gpg <--show-keys> <--with-colons> <mirror/n.example/key.pub>",
        curl.format("f.example/a b.run"),
        *(
            f"skopeo <copy> <--all> <--preserve-digests> <docker://{source}> <{prefix}{target}>"
            for source, target in [
                ("busybox:1", "docker.io/library/busybox:1"),
                ("nvcr.io/nvidia/x:1", "nvcr.io/nvidia/x:1"),
                (f"team/app@sha256:{'b' * 64}", f"docker.io/team/app:{'b' * 12}"),
                # skopeo takes no name with both tag and digest.
                (f"registry:5000/app@sha256:{'b' * 64}", "registry/app:2"),
            ]
        ),
    ]
    assert (machine / "apt-mirror.list").read_text().splitlines() == [
        f"set base_path {machine}/apt",
        "set run_postmirror 0",
        f"deb-amd64 https://{LOGIN}d.example/deb bookworm stable",
        f"deb-amd64 https://{LOGIN}n.example/flat /",
        "deb-amd64 http://p.example:8080/flat /",
    ]
    assert (machine / "apt/mirror").resolve() == machine / "mirror"


def test_login_is_among_no_arguments(machine: Path) -> None:
    """Other users see the arguments of programs, and read files that they may read."""
    before = {*machine.iterdir()}
    assert fill(machine).returncode == 0
    assert "canary" not in (machine / "calls").read_text()
    escaped = LOGIN.replace("\\", "\\\\").replace('"', '\\"')
    text = (machine / "read").read_text().splitlines()
    assert f'url = "https://{escaped}n.example/flat/InRelease"' in text
    assert f'url = "https://{escaped}n.example/key.pub"' in text
    assert FACTS["what dnf writes into /var/log/dnf.librepo.log"] == "the address, with its login"
    options = ["baseurl=https://r.example/el9/", "username=reader", 'password=canary"\\1 ']
    assert "\n".join(options) in "\n".join(text)
    assert {*(machine / "modes").read_text().split()} == {"700", "600"}
    new = {path.name: path.stat().st_mode & 0o777 for path in {*machine.iterdir()} - before}
    assert {*new} == {"apt", "apt-mirror.list", "mirror", "modes", "read"}  # nothing of mktemp
    assert (new["apt"], new["apt-mirror.list"]) == (0o700, 0o600)


def test_mirror_has_no_ports(machine: Path) -> None:
    """apt-mirror looks for what wget has fetched where there is no port, as the variables do."""
    fill(machine)
    place = EXPECTED.format(**PORT)
    assert (machine / "apt/skel" / place / "flat/Packages").exists()
    assert (machine / "mirror" / place / "flat/Packages").exists()


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_machine_without_a_program_fetches_nothing(machine: Path, name: str) -> None:
    (machine / "bin" / name).unlink()
    result = fill(machine)
    assert result.returncode != 0
    assert f"This machine has no {name}." in result.stderr
    assert calls(machine) == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("skopeo", "skopeo is older than 1.6."),
        ("dnf", "dnf has no reposync: install dnf-plugins-core."),
    ],
)
def test_program_that_is_too_old_is_told_at_once(machine: Path, name: str, reason: str) -> None:
    assert FACTS["first version of skopeo with --preserve-digests"] == "1.6.0"
    (machine / "bin" / name).write_text(_PROGRAM + "exit 1\n")
    result = fill(machine)
    assert result.returncode != 0
    assert reason in result.stderr
    assert all("--help" in line for line in calls(machine))


def test_programs_are_only_those_that_the_list_needs(machine: Path) -> None:
    for name in ("dnf", "apt-mirror", "xz", "curl", "gpg"):
        (machine / "bin" / name).unlink()
    result = fill(machine, Listing({}, {}, {}, EVERYTHING.images, {}))
    assert (result.returncode, result.stderr) == (0, "")


INDEX = "n.example/flat/Packages"


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        ("n.example", "mirror/n.example/flat has no package b=*."),
        ("d.example/deb/dists/bookworm/stable", "mirror/d.example/deb has no package a=5:2.4.1-*."),
        (f"{FETCHED}/flat/Packages", "mirror/p.example/flat has no package d=1-1."),
        (
            "d.example/deb/dists/bookworm/InRelease",
            "mirror/d.example/deb/dists/bookworm has neither",
        ),
        ("n.example/flat/b_1.10-1_amd64.deb", "b is damaged or missing"),
    ],
)
def test_script_fails_if_something_of_the_list_is_missing(
    machine: Path, lost: str, reason: str
) -> None:
    assert FACTS["exit code of apt-mirror without an index"] == 0
    assert FACTS["exit code of apt-mirror without a package"] == 0
    path = machine / "upstream" / lost
    if path.is_dir():
        shutil.rmtree(path)
        path.mkdir()
    else:
        path.unlink()
    result = fill(machine)
    assert result.returncode != 0
    assert reason in result.stderr


def test_index_that_apt_mirror_could_not_unpack(machine: Path) -> None:
    assert FACTS["apt-mirror without xz"] == "an empty Packages, and exit code 0"
    (machine / "upstream" / INDEX).write_bytes(b"")
    result = fill(machine)
    assert result.returncode != 0
    assert "mirror/n.example/flat has no package b=*." in result.stderr


@pytest.mark.parametrize("content", [None, b"damaged"])
@pytest.mark.parametrize("name", ["unlisted_1-1", "b_1.9-1"])
def test_file_that_no_host_installs_is_named_and_fails_nothing(
    machine: Path, name: str, content: bytes | None
) -> None:
    path = machine / f"upstream/n.example/flat/{name}_amd64.deb"
    path.unlink()
    if content:
        path.write_bytes(content)
    result = fill(machine)
    assert result.returncode == 0
    assert f"n.example/flat/{path.name}: FAILED" in result.stderr
    assert "Hosts fail if their packages need one." in result.stderr


def test_repository_without_in_release(machine: Path) -> None:
    """apt would take a file of an earlier run before the new Release."""
    stale = machine / "mirror/n.example/flat/InRelease"
    write(stale)
    (machine / "absent").write_text('n.example/flat/InRelease"')
    result = fill(machine)
    assert "mirror/n.example/flat has neither InRelease, nor Release" in result.stderr
    assert result.returncode != 0
    assert not stale.exists()
    for name in ("Release", "Release.gpg"):
        write(machine / "upstream/n.example/flat" / name)
    assert fill(machine).returncode == 0


def test_script_fetches_what_the_recorded_flat_repositories_sign(machine: Path) -> None:
    """apt-mirror does not fetch InRelease, and the toolkit's repository has nothing else."""
    by_apt_mirror = {*FACTS["what apt-mirror fetches of a flat repository"]}
    assert "InRelease" not in by_apt_mirror
    found = [row for row in records.rows() if row.what == "index"]
    assert {"toolkit-deb", "debian12"} <= {name for row in found for name in row.repositories}
    fill(machine)
    by_script = by_apt_mirror | {"InRelease"}
    assert any("n.example/flat/InRelease" in line for line in calls(machine))
    for row in found:
        names = by_script & {*row.values}
        assert "InRelease" in names or {"Release", "Release.gpg"} <= names
        assert any(name.startswith("Packages.") for name in names)


def test_server_that_does_not_answer_ends_the_script(machine: Path) -> None:
    """The mirror keeps what it has."""
    write(machine / "mirror/n.example/flat/InRelease")
    (machine / "absent").write_text('n.example/flat/InRelease"')
    (machine / "error").write_text("6")
    assert fill(machine).returncode != 0
    assert "dnf" not in (machine / "calls").read_text().replace("dnf <reposync> <--help>", "")
    assert (machine / "mirror/n.example/flat/InRelease").exists()


def test_rpm_that_nobody_installs_fails_nothing(machine: Path) -> None:
    (machine / "broken").touch()
    result = fill(machine)
    assert result.returncode == 0
    assert "dnf has not fetched all of r.example/el9/." in result.stderr
    (machine / "rpms/r.example/el9" / "x/c-580.1-1.el9.x86_64.rpm").unlink()
    shutil.rmtree(machine / "mirror/r.example")
    result = fill(machine)
    assert result.returncode != 0
    assert "mirror/r.example/el9 has no c-580.1[-.]*.rpm." in result.stderr


def test_flat_repository_in_a_folder() -> None:
    repository = Repository("https://x.example/all", "deb/", "", DEBIAN)
    listing = Listing({repository: {"a=1": ["gpu-1"]}}, {}, {}, {}, {})
    lines = "\n".join(mirror_script.commands(listing, "registry.example")).splitlines()
    assert "deb-amd64 https://x.example/all deb/" in lines
    assert "fetch_in_release mirror/x.example/all/deb <<'END'" in lines
    assert 'url = "https://x.example/all/deb/InRelease"' in lines
    assert "check_signature mirror/x.example/all/deb" in lines
    assert any(line.endswith(" mirror/x.example/all/deb/Packages") for line in lines)

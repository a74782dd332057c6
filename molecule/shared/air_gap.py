# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Follow docs/air-gap.md in a laboratory, whose mirror and registry stand for the internet.

usage: air_gap.py NAME

Afterwards, the nodes reach the archive of their distribution, the mirror that the commands of the
document have filled, and a second registry. This machine stays as it is: programs and settings are
in the laboratory's folder.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

PROJECT = Path(__file__).resolve().parents[2]
os.environ.setdefault("METAL_LAB_FOLDER", str(PROJECT / ".lab"))
sys.path[:0] = [str(PROJECT / "tests" / "lab")]

from metal_lab import mirror_service, processes, registry, state  # noqa: E402 - from there

DOCUMENT = PROJECT / "docs/air-gap.md"
MIRROR_PORT, REGISTRY_PORT = 8090, 5000
USER, PASSWORD = "reader", 'of "this" $registry'
FOLDER = "air-gap"
ABSENT = 22  # how curl ends if the server answers with an error
TLS = {"certificate": "server.crt", "key": "server.key"}
# The folders of the laboratory's mirror that stand for the archive of a distribution.
ARCHIVES = {"debian": ("debian",), "rocky": ("rocky", "epel")}


class AirGap:
    """The addresses and folders of a scenario."""

    def __init__(self, name: str) -> None:
        self.state = state.load(name)
        self.lab = self.state.folder
        self.facts: dict[str, Any] = json.loads(self.state.facts.read_text())
        self.mirror = f"http://{self.state.gateway}:{MIRROR_PORT}"
        self.registry = f"{self.state.gateway}:{REGISTRY_PORT}"
        self.folder = self.lab / FOLDER
        self.home = self.lab / "home"

    @property
    def environment(self) -> dict[str, str]:
        """What the user of the commands has: the programs, and the settings of skopeo."""
        tools = Path(self.facts["mirror_tools"])
        ours = ("ANSIBLE_", "MOLECULE_", "RUN_RECORD")
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith(ours)},
            "PATH": f"{tools}/bin:{os.environ['PATH']}",
            "HOME": str(self.home),
            "REGISTRY_AUTH_FILE": str(self.home / "auth.json"),
            # Otherwise, skopeo of root has a cache in /var/lib/containers.
            "_CONTAINERS_ROOTLESS_UID": "1000",
            "ANSIBLE_COLLECTIONS_PATH": str(PROJECT / ".ansible" / "installed"),
        }

    @property
    def archives(self) -> list[str]:
        """The folders that stay: a mirror of the distributions that the admin has."""
        systems = {node["os"].rstrip("0123456789") for node in self.facts["nodes"].values()}
        return [folder for system in sorted(systems) for folder in ARCHIVES[system]]

    @property
    def inventories(self) -> tuple[str, Path]:
        """The inventories of the document's last step, in its order: an option, and a path."""
        return f"--inventory={self.state.inventory}", self.folder / "variables.yml"

    def log(self, name: str) -> str:
        return (self.lab / "logs" / f"{name}.log").read_text()

    def fetched(self, server: str, address: str) -> list[str]:
        """Return the paths that a server has given to a node."""
        asked = rf'^{re.escape(address)} .*"GET (\S+) .*" 200'
        return re.findall(asked, self.log(server), re.M)

    def asked(self, server: str, address: str) -> list[str]:
        """Return the paths that a node has asked a server for, with those that it did not get."""
        return re.findall(rf'^{re.escape(address)} .*"GET (\S+) ', self.log(server), re.M)

    def run(self, command: str, where: Path, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command in a shell, and return its output."""
        return subprocess.run(
            ["bash", "-c", command],
            check=False,
            cwd=where,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **options,
        )


def documented(text: str) -> str:
    """Return the command of the document that has this text."""
    (command,) = (line for line in DOCUMENT.read_text().splitlines() if text in line)
    return command


def _start(gap: AirGap, name: str, words: list[str | Path], address: str) -> None:
    """Start a program that ends with the laboratory."""
    log = gap.lab / "logs" / f"{name}.log"
    gap.state.processes[name] = processes.start(words, log)
    gap.state.save()
    host, _, port = address.rpartition(":")
    ready = partial(registry.listens, host, int(port))
    processes.wait_until(ready, name, gap.state.processes[name], log)


def start_registry(gap: AirGap) -> None:
    """Start an empty registry with a login of its own, and the laboratory's authority."""
    place, certificates = gap.lab / "second-registry", registry.folder(gap.state)
    place.mkdir()
    (place / "htpasswd").write_text(f"{USER}:{registry.bcrypt(PASSWORD)}\n")
    (place / "config.yml").write_text(
        registry.configuration(
            place / "storage",
            gap.registry,
            tls={key: str(certificates / name) for key, name in TLS.items()},
            htpasswd=place / "htpasswd",
        )
    )
    words = registry.command(Path(gap.state.registry), place / "config.yml")
    _start(gap, "second-registry", words, gap.registry)


def configure_skopeo(gap: AirGap) -> None:
    """Give skopeo what a user gives it: authorities, logins, and where upstream's images are."""
    upstream = gap.facts["registry"]
    settings = gap.home / ".config" / "containers"
    for host in (upstream["address"], gap.registry):
        (settings / "certs.d" / host).mkdir(parents=True)
        (settings / "certs.d" / host / "ca.crt").write_text(upstream["ca"])
    # What the package of Debian installs.
    policy = Path(gap.facts["mirror_tools"]) / "root/etc/containers/policy.json"
    shutil.copy(policy, settings / "policy.json")
    (settings / "registries.conf").write_text(
        "".join(
            f'[[registry]]\nprefix = "{host}"\nlocation = "{upstream["address"]}/{host}"\n'
            for host in upstream["hosts"]
        )
    )
    logins = (
        (upstream["address"], upstream["username"], upstream["password"]),
        (gap.registry, USER, PASSWORD),
    )
    for host, user, password in logins:
        login = f"skopeo login --username={user} --password-stdin {host}"
        _check(gap.run(login, gap.lab, input=password))


def name_registry(gap: AirGap) -> None:
    """Edit the inventory as its admin: the nodes log in to the second registry, and to no other."""
    inventory = yaml.safe_load(gap.state.inventory.read_text())
    item = {
        **{"host": gap.registry, "ca": gap.facts["registry"]["ca"]},
        **{"username": USER, "password": PASSWORD},
    }
    for host in inventory["gpu_nodes"]["hosts"].values():
        host["registries_hosts"] = [item]
    gap.state.inventory.write_text(yaml.safe_dump(inventory))


def list_downloads(gap: AirGap) -> None:
    """Run the first command of the document, with the addresses of this laboratory."""
    command = documented("metal.gpu.mirror_list ").replace("https://mirror.example", gap.mirror)
    _check(gap.run(f"{command} -e metal_gpu_registry={shlex.quote(gap.registry)}", gap.lab))


def fill(gap: AirGap) -> None:
    """Fill the mirror by the commands of the document, with each row of the list."""
    listed = yaml.safe_load((gap.folder / "list.yml").read_text())

    def run(text: str, url: str = "", allowed: int = 0, **values: str) -> None:
        url = url.rstrip("/")
        place = f"{urlsplit(url).hostname}{urlsplit(url).path}"
        values |= {"URL": url, "PLACE": place, "NAME": place.replace("/", "-")}
        words = " ".join(f"{name}={shlex.quote(value)};" for name, value in values.items())
        command = documented(text).replace("mirror.example", gap.registry)
        _check(gap.run(f"{words} {command}", gap.folder), allowed)

    run("mkdir -p mirror")
    apt = [one for one in listed["repositories"] if "suite" in one]
    for one in apt:
        address = urlsplit(one["url"])  # of the laboratory's mirror, which has a port
        for folder in (gap.folder / "skel", gap.folder / "mirror"):
            (folder / str(address.hostname)).mkdir(exist_ok=True)
            if not (folder / address.netloc).is_symlink():
                (folder / address.netloc).symlink_to(str(address.hostname))
        run('"deb-amd64 ', one["url"], SUITE=one["suite"], COMPONENTS=one.get("components", ""))
    if apt:
        run("apt-mirror apt-mirror.list")
    for one in listed["repositories"]:
        if one.get("suite") == "/":
            run('/InRelease"', one["url"], ABSENT)
        elif "suite" not in one:
            run("dnf reposync --repofrompath", one["url"])
            run('/repomd.xml.asc"', one["url"], ABSENT)
    for one in listed["files"]:
        run("--create-dirs", one["url"])
        if "sha256" in one:
            run('"$SHA256 ', one["url"], SHA256=one["sha256"])
        if "fingerprint" in one:
            run("gpg --show-keys", one["url"], FINGERPRINT=one["fingerprint"])
    for image in listed["images"]:
        run("skopeo copy", IMAGE=image)


def serve(gap: AirGap) -> None:
    words = mirror_service.command(gap.folder / "mirror", gap.state.gateway, MIRROR_PORT)
    _start(gap, "second-mirror", words, f"{gap.state.gateway}:{MIRROR_PORT}")


def lose_the_internet(gap: AirGap) -> None:
    for words in (("registry", "down"), ("mirror", "only", *gap.archives)):
        command = [PROJECT / "tests/lab/lab", "fault", f"--name={gap.state.name}", *words]
        subprocess.run(command, check=True)


def _check(result: subprocess.CompletedProcess[str], allowed: int = 0) -> None:
    print(result.stdout)
    if result.returncode not in (0, allowed):
        raise SystemExit(f"{result.args[-1]} ended with {result.returncode}")


def main(name: str) -> None:
    gap = AirGap(name)
    start_registry(gap)
    configure_skopeo(gap)
    name_registry(gap)
    list_downloads(gap)
    fill(gap)
    serve(gap)
    lose_the_internet(gap)


if __name__ == "__main__":
    main(sys.argv[1])

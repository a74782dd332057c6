# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prints the files of this node's system and its packages, as JSON.

Runs on the node. It leaves out only what changes by itself.
"""

import functools
import glob
import hashlib
import json
import os
import re
import stat
import subprocess

HAS_RPM = not os.path.exists("/var/lib/dpkg")
TREES = ("/etc", "/root", "/usr", "/var/lib", "/run/cdi")

VOLATILE = re.compile(
    "|".join(
        (
            r"/etc/ld\.so\.cache",
            r"/usr/.*/__pycache__",
            # The laboratory's hardware, with its faults, and the driver's view of it, with what is
            # loaded. A package has this one, and the packages are compared.
            r"/usr/local/lib/metal-lab",
            r"/usr/.*/libnvidia-sandboxutils\.so\..*",
            # Databases and lists of the package manager: `packages` below has their content.
            r"/var/lib/(apt|dpkg|dnf|rpm|ucf)",
            # `users` below has their content.
            r"/etc/(passwd|shadow)-?",
            r"/var/lib/systemd/(catalog|random-seed|timers)",
            # The engines' containers and the kubelet's pods and checkpoints, not its configuration
            # and its logins.
            r"/var/lib/(containerd|containers|crio|docker|cni|cri-dockerd)",
            r"/var/lib/kubelet/(?!config\.(json|yaml)|kubeadm-flags\.env).*",
            # The log of k3s' containerd. k3s keeps its configuration beside it.
            r"/var/lib/rancher/k3s/agent/containerd\.log",
            # What programs leave at root's home, not the logins.
            r"/root/(?!\.docker|\.config).*",
        )
    )
)


def files():
    """Return mode, user, group and content of each file, and the packages that own it."""
    packages = packages_by_file()
    found = {}
    for tree in TREES:
        for folder, folders, names in os.walk(tree):
            folders[:] = [name for name in folders if not VOLATILE.fullmatch(f"{folder}/{name}")]
            for path in (f"{folder}/{name}" for name in (*folders, *names)):
                if not VOLATILE.fullmatch(path):
                    of = packages.get(path, {})
                    found[path] = {"is": describe(path, of.values()), "of": list(of)}
    return found


def describe(path, installed):
    status = os.lstat(path)
    content = ""
    if stat.S_ISLNK(status.st_mode):
        content = os.readlink(path)
    elif stat.S_ISREG(status.st_mode):
        # An unmodified file of a package is older than its installation. Reading all takes 30 s.
        is_packaged = path.startswith("/usr/") and any(status.st_mtime < each for each in installed)
        content = f"{status.st_size} {status.st_mtime_ns}" if is_packaged else digest(path)
    return f"{status.st_mode:o} {status.st_uid}:{status.st_gid} {content}"


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def packages_by_file():
    """Return the packages that own each file, and when they were installed.

    Keyed by the file's path, with links in it resolved.
    """
    found = {}
    real_path = functools.lru_cache(None)(os.path.realpath)
    if HAS_RPM:
        for row in lines(
            "rpm", "-qa", "--queryformat", "[%{=NAME}\t%{=INSTALLTIME}\t%{FILENAMES}\n]"
        ):
            package, installed, path = row.split("\t")
            folder, name = os.path.split(path)
            found.setdefault(os.path.join(real_path(folder), name), {})[package] = int(installed)
        return found
    for listing in glob.glob("/var/lib/dpkg/info/*.list"):
        package = os.path.basename(listing)[: -len(".list")].partition(":")[0]
        installed = os.stat(listing).st_mtime
        with open(listing, encoding="utf-8") as file:
            for path in file.read().splitlines():
                folder, name = os.path.split(path)
                found.setdefault(os.path.join(real_path(folder), name), {})[package] = installed
    return found


def packages():
    """Return version, state and marks of each package, keyed by name."""
    if HAS_RPM:
        form = "%{NAME}\t%{EPOCH}:%{VERSION}-%{RELEASE}\n"
        return {
            name: rest for name, *rest in map(str.split, lines("rpm", "-qa", "--queryformat", form))
        }
    form = "${Package}\t${Version}\t${Status}\n"
    rows = (line.split("\t") for line in lines("dpkg-query", "-W", "-f", form))
    found = {name: rest for name, *rest in rows}
    for mark in ("showmanual", "showhold"):
        for name in lines("apt-mark", mark):
            found[name].append(mark)
    return found


def users():
    """Return what /etc/passwd and /etc/shadow say about each user, keyed by name."""
    found = {}
    for path in ("/etc/passwd", "/etc/shadow"):
        with open(path, encoding="utf-8") as file:
            for line in file.read().splitlines():
                name, _colon, rest = line.partition(":")
                found.setdefault(name, []).append(rest)
    return found


def lines(*command):
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()


if __name__ == "__main__":
    print(json.dumps({"files": files(), "packages": packages(), "users": users()}))

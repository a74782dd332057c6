# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What each finding means, and what a person does about it.

A finding is a plain dictionary, so that it travels through Ansible unchanged: code, severity,
host, message, remedy and reference. The message names the host, what was found and what was
expected; the section of docs/troubleshooting.md named after the code tells the whole story.
No function does I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact

if TYPE_CHECKING:
    from typing import Any

REFUSAL = "refusal"  # nothing is changed on this node, nor on others unless they may go on
STOP = "stop"  # this node stays as it is until somebody decides; the others go on
FAILURE = "failure"  # a layer differs: the node is not what it was declared to be
NOTICE = "notice"  # worth knowing, stops nothing

DOCUMENT = "docs/troubleshooting.md"


class UnknownCode(KeyError):
    """No finding has this code: a programming error."""


class Meaning(NamedTuple):
    """One kind of finding. The texts are `str.format` templates over the evidence."""

    severity: str
    message: str
    remedy: str


CATALOGUE: dict[str, Meaning] = {
    # --- the run ---------------------------------------------------------------------------
    "STRATEGY_UNSUPPORTED": Meaning(
        REFUSAL,
        "the play uses the strategy {strategy}, with which nodes do not wait for each other; these "
        "roles act on all nodes of a play together",
        "set `strategy: linear` in the play that uses these roles",
    ),
    "CONTROLLER_PACKAGE_MISSING": Meaning(
        REFUSAL,
        "{python} {found} the Python package {package}; this collection needs {minimum} or later",
        "run `{python} -m pip install '{package}>={minimum}'`; if another Python has the package, "
        "set ansible_python_interpreter for localhost",
    ),
    "CONTROLLER_UNUSABLE": Meaning(
        REFUSAL,
        "Ansible cannot run modules on localhost: {error}",
        "take localhost out of the inventory, or set `ansible_connection: local` and "
        "`ansible_python_interpreter: '{{{{ ansible_playbook_python }}}}'` for it",
    ),
    "VARIABLE_INVALID": Meaning(
        REFUSAL,
        "{name} is {found}, expected {expected}",
        "correct the variable; `ansible-inventory --host HOST` shows what the inventory sets, and "
        "`ansible-doc -t role metal.gpu.{role}` describes it",
    ),
    "VARIABLE_MISPLACED": Meaning(
        REFUSAL,
        "{name} is set for {hosts}; Ansible reads it from the command line only",
        "take it out of the inventory, and run `ansible-playbook -e {name}=VALUE`",
    ),
    "VARIABLE_UNKNOWN": Meaning(
        NOTICE,
        "{name} is set for {hosts}, and this collection has no such variable{hint}",
        "correct the name; if another tool uses this variable, ignore this notice",
    ),
    # --- the node as a machine -------------------------------------------------------------
    "NODE_UNREACHABLE": Meaning(
        REFUSAL,
        "cannot be reached: {error}",
        "check `ssh` to it by hand with the inventory's user, key and address; take it out of the "
        "group while it is away, or set metal_gpu_skip_refused",
    ),
    "NODE_NOT_OBSERVED": Meaning(
        REFUSAL,
        "could not be observed: {error}",
        "the node needs Python 3.9 or newer, and file systems that can be written to; try `ansible "
        "NODE -b -m metal.gpu.node_info`",
    ),
    "NODE_RESTARTED": Meaning(
        FAILURE,
        "restarted while it was verified, so what was observed before is not true any more",
        "run `ansible-playbook metal.gpu.verify` again; on the node, `last -x reboot` says when it "
        "restarted, and `journalctl --boot=-1 --pager-end` what it logged last",
    ),
    "NODES_LOST": Meaning(
        REFUSAL,
        "{hosts} failed while their reasons were collected; the errors are above",
        "mend what the errors name, take these hosts out of the group, or set "
        "metal_gpu_skip_refused",
    ),
    "SUDO_REFUSED": Meaning(
        REFUSAL,
        "the inventory's user cannot become root: {error}",
        "let the user run sudo without a password, or give the password with --ask-become-pass or "
        "ansible_become_password",
    ),
    "BECOME_REFUSED": Meaning(
        REFUSAL,
        "the inventory's user cannot become root with {method}: {error}",
        "give {whose} password with --ask-become-pass or ansible_become_password, or let {method} "
        "do without one{where}; `ansible NODE -b -m ansible.builtin.command -a id` tries it",
    ),
    "NODE_NAME_TWICE": Meaning(
        REFUSAL,
        "is the Kubernetes node {node}, and so is {other}",
        "keep one of the two in the inventory, or give each kubelet its own --hostname-override",
    ),
    "NODE_NOT_IN_CLUSTER": Meaning(
        REFUSAL,
        "is no node of the cluster: the API server does not know {node}",
        "point metal_gpu_kubeconfig and metal_gpu_context at the cluster that the kubelet uses "
        "(`grep server: /etc/kubernetes/kubelet.conf` on the node); if the node has never joined a "
        "cluster, join it first",
    ),
    "NODE_RENAMED": Meaning(
        REFUSAL,
        "the kubelet joined the cluster as {joined}, but registers as {own} when it starts the "
        "next time; its certificate does not allow that",
        "give the host its former name back with `hostnamectl set-hostname {joined}`, or start the "
        "kubelet with `--hostname-override={joined}`; or join the node again under its new name "
        "with `kubeadm reset` and `kubeadm join`",
    ),
    "DISTRIBUTION_UNSUPPORTED": Meaning(
        REFUSAL,
        "runs {name} ({unit}), which brings its own kubelet and container engine; this release "
        "supports only a kubelet with a unit of its own, kubelet.service",
        "take the node out of the group",
    ),
    "CLUSTER_UNUSABLE": Meaning(
        REFUSAL,
        "the API server gave no answer that can be used: {error}",
        "check metal_gpu_kubeconfig and metal_gpu_context with `kubectl get nodes`",
    ),
    "CLUSTER_FORBIDDEN": Meaning(
        REFUSAL,
        "the API server does not let {user} {verb} {resource} {scope}",
        "give this user the permission; docs/permissions.yml has all that this collection needs",
    ),
    "CLUSTER_UNAUTHENTICATED": Meaning(
        REFUSAL,
        "the API server does not know who is asking: {error}",
        "check the user in the kubeconfig with `kubectl auth whoami`; a token or a client "
        "certificate may be missing or expired",
    ),
    "CLUSTER_PLUGIN_FAILED": Meaning(
        REFUSAL,
        "the credential plugin {command}, which the kubeconfig names, returned no credentials: "
        "{error}",
        "install the plugin for the user that runs Ansible, and log in with it; or use a "
        "kubeconfig with a client certificate{hint}",
    ),
    "CLUSTER_CONFLICT": Meaning(
        FAILURE,
        "{manager} changed fields that this collection sets: {fields}",
        "to keep the change, set the same value in the role's variables (device_plugin_tolerations "
        "and so on); to undo it, use `kubectl edit`; then run again",
    ),
    "CLUSTER_IMMUTABLE": Meaning(
        FAILURE,
        "the API server cannot change an object that this collection created: {error}",
        "delete the object that the message names, and run again: the role creates it anew",
    ),
    "OS_UNSUPPORTED": Meaning(
        REFUSAL,
        "runs {found}; supported are, on x86_64, {expected}",
        "reinstall the node with a supported system, or take it out of the group",
    ),
    "INIT_UNSUPPORTED": Meaning(
        REFUSAL,
        "does not run systemd, which every role needs",
        "boot the node with systemd",
    ),
    "VERSION_UNKNOWN": Meaning(
        REFUSAL,
        "has a {program} whose version nobody knows: `{program} --version` answers: {error}",
        "ask it by hand on the node, and repair or remove it",
    ),
    "NO_GPU": Meaning(
        REFUSAL,
        "has no NVIDIA GPU on its PCI bus (vendor 10de, class 0300 or 0302)",
        "take the node out of the group; if it should have one, look at `lspci -d 10de:`, the "
        "seating of the card, its power, and Above 4G Decoding in the firmware",
    ),
    "GPU_COUNT_DIFFERS": Meaning(
        REFUSAL,
        "declares gpu_count {declared}, its PCI bus has {found}: {addresses}",
        "correct gpu_count in the inventory, or find the card that is missing: compare the "
        "addresses with a sibling of the node",
    ),
    "GPU_PASSED_THROUGH": Meaning(
        REFUSAL,
        "gives {addresses} to virtual machines (bound to vfio-pci)",
        "remove the binding (vfio-pci.ids on the kernel command line, or modprobe.d) and reboot, "
        "or take the node out of the group",
    ),
    # --- driver ----------------------------------------------------------------------------
    "GPU_UNSUPPORTED_BY_DRIVER": Meaning(
        REFUSAL,
        "driver {version} does not support its {generation} GPUs (device {devices}) at "
        "{addresses}; {expected} does",
        "set nvidia_driver_version for this node to a version of such a branch",
    ),
    "FLAVOUR_UNSUPPORTED": Meaning(
        REFUSAL,
        "no kernel module fits all its GPUs with nvidia_driver_flavour {flavour}: {evidence}",
        "set nvidia_driver_flavour to auto; GPUs that need different modules cannot share a node",
    ),
    "NOUVEAU_LOADED": Meaning(
        STOP,
        "has nouveau loaded, which cannot be replaced without a reboot, and nvidia_driver_reboot_ok"
        " is {reboot_ok}",
        "set nvidia_driver_reboot_ok to true for this node, or blacklist nouveau and reboot it "
        "yourself",
    ),
    "REBOOT_NEEDED": Meaning(
        STOP,
        "needs a reboot ({evidence}), and nvidia_driver_reboot_ok is {reboot_ok}",
        "set nvidia_driver_reboot_ok to true for this node, or drain and reboot it yourself",
    ),
    "REBOOT_BLOCKED": Meaning(
        STOP,
        "needs a reboot, and pods hold GPUs: {pods}",
        "wait for them, or end them yourself, and run again",
    ),
    "REBOOT_UNDRAINED": Meaning(
        STOP,
        "needs a reboot, and its pods cannot be moved to other nodes: {error}",
        "drain the node yourself, or say by nvidia_driver_reboot_drain_options what may be lost",
    ),
    "REBOOT_HALTED": Meaning(
        STOP,
        "needs a reboot, and waits, since another node has not come back from its own: {others}",
        "see what became of that one, and run again",
    ),
    "SECURE_BOOT_ON": Meaning(
        REFUSAL,
        "has Secure Boot on: the kernel would refuse the driver's module, which is built on the "
        "node and not signed",
        "turn Secure Boot off in the firmware of the node",
    ),
    "DRIVER_FROM_ELSEWHERE": Meaning(
        REFUSAL,
        "driver {found} belongs to no installed package and does not work: {error}",
        "remove it and run again; where NVIDIA's .run installer put it there, `nvidia-uninstall` "
        "removes it. Packages and the installer overwrite each other's files",
    ),
    "DRIVER_WITHOUT_PACKAGE": Meaning(
        NOTICE,
        "driver {found} works and is kept; it belongs to no installed package that the role knows",
        "nothing to do; to have the driver from packages, drain the node, remove this driver (the "
        ".run installer: `nvidia-uninstall`) and run again",
    ),
    "DRIVER_UNFINISHED": Meaning(
        NOTICE,
        "driver {found} works, but the node may come up without it at the next boot: {packages}",
        "correct what the build log names, then run `dpkg --configure -a`; or remove the packages "
        "with `apt-get purge {names}`",
    ),
    "DRIVER_NOT_YET": Meaning(
        NOTICE,
        "no driver answers yet ({error}), so there are no devices to link and to describe by CDI",
        "nothing to do; a run that finds a driver, such as the same run after its role "
        "nvidia_driver, links the devices and writes the CDI specification",
    ),
    "DRIVER_PACKAGES_UNKNOWN": Meaning(
        REFUSAL,
        "runs {found}, for which the names of the packages of driver {version} are not confirmed",
        "choose another nvidia_driver_version (docs/support.md), or install the driver in another "
        "way: one that works is kept",
    ),
    "DRIVER_BRANCH_MISSING": Meaning(
        REFUSAL,
        "is to get driver {version}; NVIDIA's repository for {found} has no branch before {branch}",
        "set nvidia_driver_version to a version of branch {branch} or newer, for Turing and newer "
        "GPUs; or set nvidia_driver_repository_url to a mirror that has {version}; or install the "
        "distribution's own driver: one that works is kept",
    ),
    "DRIVER_PIN_TAKEN": Meaning(
        REFUSAL,
        "has {packages}, which this collection did not install; {expected} would replace it",
        "if nobody needs it, run `apt-get purge {names}` and run again; or set "
        "nvidia_driver_version to the version that it pins",
    ),
    "MODULE_STREAM_TAKEN": Meaning(
        REFUSAL,
        "has the stream {found} of the module nvidia-driver enabled; driver {version} is in "
        "{expected}",
        "if nobody needs the other one, `dnf module reset nvidia-driver`",
    ),
    "DRIVER_BROKEN": Meaning(
        REFUSAL,
        "has driver {found} installed, and it does not work: {error}",
        "look at `nvidia-smi` and `dmesg | grep -i nvrm` on the node; repair the driver, or remove "
        "it and run again",
    ),
    "DRIVER_KEPT": Meaning(
        NOTICE,
        "keeps its working driver {found}; nvidia_driver_version is {expected}",
        "nothing to do; to change the version, drain the node and remove the driver first",
    ),
    "DRIVER_OF_ADMIN": Meaning(
        NOTICE,
        "keeps its driver {found}, which this collection did not install",
        "nothing to do; to remove it, drain the node and purge its packages yourself",
    ),
    "DRIVER_PACKAGES_KEPT": Meaning(
        NOTICE,
        "keeps packages of NVIDIA that this collection did not install: {packages}",
        "nothing to do; to remove them, run `{command}`",
    ),
    "PERSISTENCE_MISSING": Meaning(
        NOTICE,
        "keeps its working driver {found}, which has no nvidia-persistenced: GPUs that nobody uses "
        "forget their settings, and start slowly",
        "install nvidia-persistenced in version {found} from where the driver came from, and run "
        "again, which starts it; or leave it",
    ),
    "DRIVER_IN_USE": Meaning(
        FAILURE,
        "the driver cannot be unloaded, because it is in use: {users}",
        "end these, and run again; the driver is as it was",
    ),
    # --- container engine ------------------------------------------------------------------
    "ENGINE_UNSUPPORTED": Meaning(
        REFUSAL,
        "has a kubelet that talks to {found}; supported are containerd, and Docker by cri-dockerd",
        "point the kubelet at one of them, or take the node out of the group",
    ),
    "ENGINE_MISMATCH": Meaning(
        REFUSAL,
        "is to use {desired}, and its kubelet talks to {found}",
        "set metal_gpu_engine to auto, which follows the kubelet, or point the kubelet at "
        "{desired}",
    ),
    "CONTAINERD_CONFIG_INVALID": Meaning(
        REFUSAL,
        "containerd's configuration cannot be used: {error}",
        "correct the file and check it with `containerd config dump`; it was left untouched",
    ),
    "CRI_DISABLED": Meaning(
        REFUSAL,
        "{path} turns containerd's CRI plugin off, so that no kubelet can use it",
        "remove it from disabled_plugins; the file was written by hand, so it is left to you",
    ),
    "CONTAINERD_IN_USE": Meaning(
        REFUSAL,
        "has a kubelet or Docker that needs containerd, which therefore stays as it is",
        "drain the node and remove the kubelet and Docker first",
    ),
    "DOCKER_CONFIG_INVALID": Meaning(
        REFUSAL,
        "Docker's configuration cannot be used: {error}",
        "correct the file; it was left untouched",
    ),
    "DOCKER_RECORD_INVALID": Meaning(
        REFUSAL,
        "cannot read the list of containers that ran before Docker was replaced: {error}",
        "look at `docker ps --all`, start the containers that should run, and remove the file",
    ),
    "CONFIG_NOT_EDITABLE": Meaning(
        REFUSAL,
        "a setting in {path} has to change, and the file cannot be edited safely: {error}",
        "correct the file at that place; no setting was changed",
    ),
    "HISTORY_UNREADABLE": Meaning(
        REFUSAL,
        "the former settings of {path} cannot be given back: {error}",
        "restore the record from a backup of the node; to keep {path} as it is, delete the record",
    ),
    "DOCKER_FLAG_CLASH": Meaning(
        REFUSAL,
        "{file} gives Docker the flag {flag}, and {path} is to have the key {key}: Docker refuses "
        "to start, and to reload, with both",
        "keep one of the two; best in {path}, and the flag taken out of a drop-in's ExecStart",
    ),
    "DOCKER_SETTING_LOST": Meaning(
        REFUSAL,
        "{file} has {setting}, which docker-ce would not heed",
        "move the setting into daemon.json, which holds for both, and take it out of {file}; a "
        "program as `dockerd`, without its folder, is found by both",
    ),
    "SNAP_DOCKER": Meaning(
        REFUSAL,
        "has a Docker from snapd ({found}), which cannot use the NVIDIA runtime",
        "save what runs in it, remove it with `snap remove docker`, and run again",
    ),
    "ROOTLESS_DOCKER": Meaning(
        REFUSAL,
        "has a Docker that a user runs without root ({found}), and no other that runs",
        "a kubelet cannot use it: remove it with `dockerd-rootless-setuptool.sh uninstall` as that "
        "user, or start the system's Docker beside it",
    ),
    "NVIDIA_DOCKER_V1": Meaning(
        REFUSAL,
        "has containers ({containers}) and volumes ({volumes}) of nvidia-docker v1, which cannot "
        "be without it",
        "save what is in them, and set docker_ce_v1_removal_ok to true",
    ),
    "DOCKER_SILENT": Meaning(
        REFUSAL,
        "runs a Docker that does not answer root's `docker info` and `docker ps`, so that nobody "
        "knows what runs in it",
        "see what `docker info` says on the node; a Docker that listens elsewhere needs "
        "unix:///var/run/docker.sock, too",
    ),
    "CONTAINERS_OF_RUNTIME": Meaning(
        NOTICE,
        "has containers that were made with the runtime nvidia: {containers}; they run on, and "
        "cannot be started again once it is gone",
        "make them anew afterwards, before the next reboot",
    ),
    "CONTAINERS_EPHEMERAL": Meaning(
        REFUSAL,
        "runs {containers} with --rm: gone for good when Docker is replaced",
        "wait for their end or stop them, or set live-restore in daemon.json and reload Docker",
    ),
    "CRI_DOCKERD_MISSING": Meaning(
        REFUSAL,
        "has a kubelet that talks to {endpoint}, and no cri-dockerd, which no repository has",
        "set docker_ce_cri_dockerd_checksum to the checksum of {url}, or install cri-dockerd "
        "yourself",
    ),
    "CRI_DOCKERD_UNPACKAGED": Meaning(
        REFUSAL,
        "its kubelet talks to {endpoint}, cri-dockerd is not installed, and no release of "
        "cri-dockerd has a package for {found}",
        "install cri-dockerd yourself, for example from the .tgz file of a release, or set "
        "docker_ce_cri_dockerd_url and docker_ce_cri_dockerd_checksum to a package of yours",
    ),
    "ENGINE_KEPT": Meaning(
        NOTICE,
        "keeps its Docker, {found}; docker_ce_version is {expected}",
        "nothing to do; docker_ce_replace_distribution puts docker-ce in the place of a "
        "distribution's Docker",
    ),
    "ENGINE_OF_ADMIN": Meaning(
        NOTICE,
        "keeps its {engine}, which this collection did not install",
        "nothing to do; to remove it, drain the node and remove its packages yourself",
    ),
    "DOCKER_IN_USE": Meaning(
        REFUSAL,
        "has {evidence}, so Docker is not removed",
        "drain the node, and stop what runs in Docker",
    ),
    "ENGINE_NOT_BACK": Meaning(
        FAILURE,
        "{engine} did not take the change in {path}, and runs as before: {error}",
        "find what the message speaks of, in the configuration or in the drop-ins of its unit, and "
        "run again",
    ),
    "ENGINE_DOWN": Meaning(
        FAILURE,
        "{engine} does not start, and did not with its former configuration: {error}",
        "look at `journalctl -u {engine}` on the node; no container starts until it is mended",
    ),
    "CONTAINERD_IMPORT_REPLACES": Meaning(
        REFUSAL,
        "runs containerd {found}, for which what {files} says of the CRI plugin takes the place of "
        "all that {path} says of it",
        "move those settings into the file that imports them, or register the runtime nvidia in "
        "the imported one yourself",
    ),
    "CDI_UNSUPPORTED": Meaning(
        REFUSAL,
        "runs containerd {found}, which cannot read the CDI specifications of this toolkit; "
        "{expected} or newer can",
        "update containerd, or set device_plugin_device_list_strategy to envvar and "
        "nvidia_container_runtime_cdi to false",
    ),
    "RUNTIME_UNUSABLE": Meaning(
        REFUSAL,
        "{evidence}, although the package manager lists {packages} as installed; containers that "
        "need a GPU do not start, and those that run do not end",
        "reinstall what is missing with `{command}`",
    ),
    "CDI_FILE_INVALID": Meaning(
        NOTICE,
        "container engines skip a CDI specification that they cannot read: {error}",
        "correct the file or remove it; its devices are missing until then",
    ),
    "DOCKER_RESTART_DUE": Meaning(
        NOTICE,
        "runs a Docker {found} that may learn of {unknown} only when it starts the next time",
        "nothing to do for pods, which get their GPUs without; else restart Docker when its "
        "containers may stop, or set nvidia_container_runtime_restart_ok to true",
    ),
    "TOOLKIT_OF_ADMIN": Meaning(
        NOTICE,
        "keeps its container toolkit {found}, which this collection did not install",
        "nothing to do; to remove it, purge its packages yourself",
    ),
    "TOOLKIT_KEPT": Meaning(
        NOTICE,
        "keeps its newer container toolkit {found}; nvidia_container_runtime_version is {expected}",
        "nothing to do",
    ),
    "TOOLKIT_HELD": Meaning(
        NOTICE,
        "keeps its container toolkit {found}, since somebody else holds {packages}; "
        "nvidia_container_runtime_version is {expected}",
        "nothing to do; without the hold (`apt-mark unhold`, `dnf versionlock delete`) the next "
        "run brings the other version",
    ),
    "TOOLKIT_TOO_OLD": Meaning(
        REFUSAL,
        "has container toolkit {found}, of which somebody else holds {packages}, and needs "
        "{expected} or newer",
        "update it yourself, or take the hold away (`apt-mark unhold`, `dnf versionlock delete`), "
        "and the role does",
    ),
    # --- packages --------------------------------------------------------------------------
    "PACKAGE_MANAGER_BUSY": Meaning(
        NOTICE,
        "waits up to {seconds} s for {command} (process {pid}), which has the package manager",
        "nothing to do",
    ),
    "PACKAGE_MANAGER_LOCKED": Meaning(
        FAILURE,
        "the package manager belonged to {command} (process {pid}) for more than {seconds} s",
        "see what that process waits for, let it end and run again, or set metal_gpu_lock_timeout "
        "higher; never remove the lock",
    ),
    "DPKG_INTERRUPTED": Meaning(
        FAILURE,
        "dpkg was cut off in the middle of its work",
        "run again: the next run lets it finish with `dpkg --configure -a` first, and says so",
    ),
    "PACKAGES_UNFINISHED": Meaning(
        REFUSAL,
        "dpkg could not finish installing packages, so every further step would fail: {packages}",
        "correct what the build log names, often missing headers (`apt-get install "
        "linux-headers-$(uname -r)`), then run `dpkg --configure -a`; or remove the packages with "
        "`apt-get purge {names}`",
    ),
    "PACKAGES_NEEDED": Meaning(
        REFUSAL,
        "packages that this collection did not install need {needed}, and apt would remove them "
        "too: {packages}",
        "if nobody needs them, run `apt-get remove {names}` and run again",
    ),
    "PACKAGES_UNHELD": Meaning(
        NOTICE,
        "packages that this collection did not install are not held, so an upgrade of the system "
        "can replace them: {packages}",
        "nothing to do; to keep their versions, run `{command}`",
    ),
    "PACKAGE_RECORD_INVALID": Meaning(
        REFUSAL,
        "cannot read which packages this collection installed: {error}",
        "correct {path}, or delete it: the packages then count as yours, and the role neither "
        "holds nor removes them",
    ),
    "KEY_UNKNOWN": Meaning(
        REFUSAL,
        "the repository is signed by {key}, and nobody has said which fingerprint that has",
        "look at the key (`gpg --show-keys`), have its fingerprint confirmed by somebody who did "
        "not get it from there, and set the role's *_repository_fingerprint",
    ),
    "REPOSITORY_FILE_FOREIGN": Meaning(
        REFUSAL,
        "{path} cannot be written over: {error}",
        "move what you need of {path} to a file with a name of your own, delete {path}, and run "
        "again",
    ),
    "REPOSITORY_UNSIGNED": Meaning(
        REFUSAL,
        "signatures of the repository {url} are not checked: {files}",
        "remove these options from the files, or delete the files: the role then adds the "
        "repository with its pinned key",
    ),
    "EPEL_MISSING": Meaning(
        REFUSAL,
        "has no dkms, which builds the driver's module, and no repository that has it",
        "enable EPEL, which has it (`dnf install epel-release` on Rocky Linux and AlmaLinux), or "
        "install dkms from a repository of yours",
    ),
    "REPOSITORY_UNTRUSTED": Meaning(
        FAILURE,
        "the repository {url} cannot be trusted: {error} (key: {key}; pinned is {pinned})",
        "find out from its publisher, another way than from the repository, which key is right; if "
        "it was exchanged, set the role's *_repository_key and *_repository_fingerprint, and if "
        "the mirror is old, renew its signature",
    ),
    "REPOSITORY_UNREACHABLE": Meaning(
        FAILURE,
        "the repository {url} cannot be used: {error}",
        "check the address with `curl` on the node, its proxy and its name server; a mirror goes "
        "into the role's *_repository_url",
    ),
    "REPOSITORY_TWICE": Meaning(
        FAILURE,
        "apt reads none of its sources, since they give {url} {suite} more than one value of "
        "{option}: {files}",
        "keep one of these files, or give all of them the same {option}",
    ),
    "REPOSITORY_REMOVED": Meaning(
        NOTICE,
        "the repository {name}, added just before, was taken away again",
        "nothing to do; it would have broken every other run of the package manager",
    ),
    "PACKAGE_VERSION_MISSING": Meaning(
        FAILURE,
        "the repositories do not have {package} in version {version}; they have {found}",
        "set the role's *_version to one of these, or bring that version into the mirror",
    ),
    "PACKAGES_UNCONFIGURED": Meaning(
        FAILURE,
        "dpkg could not finish installing a package: {error}",
        "correct what the build log names, often missing headers (`apt-get install "
        "linux-headers-$(uname -r)`), then run `dpkg --configure -a`, and run again",
    ),
    "PACKAGES_FAILED": Meaning(
        FAILURE,
        "the package manager failed: {error}",
        "run the same on the node by hand; the whole output is above",
    ),
    # --- kubelet and device plugin ---------------------------------------------------------
    "KUBELET_MISSING": Meaning(
        REFUSAL,
        "has no kubelet",
        "install the kubelet and join the node to the cluster first",
    ),
    "KUBELET_CONFIG_INVALID": Meaning(
        REFUSAL,
        "the kubelet's configuration cannot be used: {error}",
        "correct the file; it was left untouched",
    ),
    "KUBELET_NOT_BACK": Meaning(
        FAILURE,
        "the kubelet did not start with its new settings, and runs again with the former ones: "
        "{error}",
        "find what the message speaks of, in the kubelet's configuration or in the drop-ins of its "
        "unit, and run again",
    ),
    "KUBELET_DOWN": Meaning(
        FAILURE,
        "the kubelet does not start: {error}",
        "look at `journalctl -u kubelet` on the node",
    ),
    "DEVICE_PLUGIN_FOREIGN": Meaning(
        REFUSAL,
        "the cluster already runs NVIDIA's device plugin as {found}",
        "set device_plugin_foreign to adopt to work with that one, or remove it (with Helm: `helm "
        "uninstall`): two plugins for one resource take GPUs from each other",
    ),
    "DEVICE_PLUGIN_NAME_TAKEN": Meaning(
        REFUSAL,
        "the DaemonSet {found} exists; it is not this collection's, and not NVIDIA's device plugin",
        "set device_plugin_name or device_plugin_namespace to another name",
    ),
    "DEVICE_PLUGIN_TWICE": Meaning(
        REFUSAL,
        "the cluster runs NVIDIA's device plugin as {found}: they take GPUs from each other",
        "keep one of them; device_plugin_state: absent takes the one of this collection away",
    ),
    "DEVICE_PLUGIN_ADOPTED": Meaning(
        NOTICE,
        "NVIDIA's device plugin runs as {found}, which is used and left as it is",
        "nothing to do",
    ),
    "DEVICE_PLUGIN_STRATEGY": Meaning(
        REFUSAL,
        "device_plugin_device_list_strategy {strategy} gives pods no GPU under Docker, which "
        "{found} use: cri-dockerd passes no CDI devices on",
        "set device_plugin_device_list_strategy to auto or to envvar",
    ),
    "DEVICE_PLUGIN_MIXED": Meaning(
        REFUSAL,
        "one device plugin cannot serve all nodes as it is set up: {evidence}",
        "make the NVIDIA runtime the default everywhere (nvidia_container_runtime_default: true), "
        "set device_plugin_device_list_strategy to envvar, and device_plugin_runtime_class to ''",
    ),
    "RUNTIME_CLASS_OTHER": Meaning(
        REFUSAL,
        "the RuntimeClass {name} exists with the handler {found}; the device plugin needs the "
        "handler {expected}",
        "set device_plugin_runtime_class to another name, such as nvidia-gpu; the existing "
        "RuntimeClass stays as it is",
    ),
    "RUNTIME_CLASS_ADOPTED": Meaning(
        NOTICE,
        "the RuntimeClass {name} exists and is used as it is",
        "nothing to do",
    ),
    "NODE_LABEL_TAKEN": Meaning(
        REFUSAL,
        "the node {node} has the label {found}; device_plugin_node_selector asks for {expected}",
        "if the device plugin may run there, remove the label with `kubectl label node {node} "
        "{key}-`; if not, take the node out of the group",
    ),
    "LABEL_OF_ADMIN": Meaning(
        FAILURE,
        "has the label {label} from somebody else, so that the device plugin stays on it as long "
        "as {others} needs it",
        "take the label off with `kubectl label`, or take the plugin from all nodes at once",
    ),
    "ROLLOUT_STUCK": Meaning(
        FAILURE,
        "the device plugin does not run here after {seconds} s: {found}",
        "look at the pod with `kubectl describe`; `could not load NVML library` in its log means "
        "that the NVIDIA runtime did not start it",
    ),
    "RUN_STOPPED": Meaning(
        FAILURE,
        "the run stopped here at {task!r}: {error}",
        "mend what the message names and run again: what was done already is not done twice",
    ),
    "ROLLOUT_HALTED": Meaning(
        STOP,
        "waits, since nodes before it did not come to their end: {others}",
        "see what became of those, and run again; `--limit` leaves them out",
    ),
    # --- the way back ----------------------------------------------------------------------
    "GPUS_IN_USE": Meaning(
        REFUSAL,
        "has pods that hold GPUs: {pods}",
        "end them yourself, or set teardown_drain to true to have them evicted",
    ),
    "GPU_PODS_STAY": Meaning(
        REFUSAL,
        "has pods with GPUs that must not be evicted: {pods}",
        "delete them, or the DaemonSet they are of, yourself",
    ),
    # --- verdict ---------------------------------------------------------------------------
    "NVML_UNAVAILABLE": Meaning(
        FAILURE,
        "the driver does not answer: {error}",
        "look at `nvidia-smi` and `dmesg | grep -i nvrm` on the node",
    ),
    "NVML_COUNT_DIFFERS": Meaning(
        FAILURE,
        "the PCI bus has {pci} GPUs, the driver sees {nvml}; it does not see {addresses}",
        "look for Xid messages with `dmesg | grep -i xid`; a GPU that fell off the bus needs a "
        "reboot, and one that keeps falling off needs to be replaced",
    ),
    "NVML_CONTRADICTS": Meaning(
        FAILURE,
        "nvidia-smi contradicts itself or the PCI bus: {evidence}",
        "compare `nvidia-smi -L` with `lspci -d 10de:` on the node, and reboot it where they keep "
        "differing",
    ),
    "NVML_TROUBLE": Meaning(
        FAILURE,
        "nvidia-smi shows GPUs, and reports trouble: {error}",
        "run `nvidia-smi` on the node, look at `dmesg | grep -i nvrm`, and find the text in the "
        "table of the reference",
    ),
    "GPU_FAULTY": Meaning(
        FAILURE,
        "{gpus} {report}: {error}",
        "drain the node and reset or replace this GPU",
    ),
    "CUDA_UNAVAILABLE": Meaning(
        FAILURE,
        "no program can use CUDA: {evidence}",
        "run `nvidia-modprobe -c 0 -u` on the node, which loads nvidia_uvm and creates its device "
        "files, then `systemctl restart nvidia-cdi-refresh.service`",
    ),
    "KUBELET_STOPPED": Meaning(
        FAILURE,
        "the kubelet is not running: {error}",
        "look at `journalctl -u kubelet` on the node, and start it with `systemctl start kubelet`",
    ),
    "ENGINE_STOPPED": Meaning(
        FAILURE,
        "{unit}.service is not running, so no container can start",
        "look at `journalctl -u {unit}` on the node, and start it with `systemctl start {unit}`",
    ),
    "DRIFTED": Meaning(
        FAILURE,
        "drifted: {component}: {reasons}",
        "run `ansible-playbook metal.gpu.site --check --diff --limit {limit}` to see the change, "
        "and without `--check --diff` to make it; where another tool manages the node, set "
        "verify_drift to false",
    ),
    "CLUSTER_UNKNOWN": Meaning(
        FAILURE,
        "the API server said nothing about the Kubernetes node {node}",
        "check `kubectl get node {node}`, and run metal.gpu.verify again",
    ),
    "NODE_NOT_READY": Meaning(
        FAILURE,
        "its Kubernetes node {node} is not ready: {error}",
        "look at `systemctl status kubelet` on the node, and at its network plugin; what the "
        "cluster counts there is the kubelet's last word",
    ),
    "CAPACITY_DIFFERS": Meaning(
        FAILURE,
        "has {expected} GPUs, the cluster counts {found} in its capacity{evidence}",
        "read the log of the device plugin's pod on this node",
    ),
    "ALLOCATABLE_DIFFERS": Meaning(
        FAILURE,
        "has {expected} GPUs, the cluster can hand out {found}{evidence}",
        "read the log of the device plugin's pod on this node, and `kubectl describe node`",
    ),
    "DEVICE_PLUGIN_MISSING": Meaning(
        FAILURE,
        "{counted}; the cluster has no DaemonSet of a device plugin",
        "deploy it with `ansible-playbook metal.gpu.site --tags device_plugin`",
    ),
    "DEVICE_PLUGIN_NOT_SELECTED": Meaning(
        FAILURE,
        "{counted}; the device plugin {daemonset} runs on nodes with the label {labels}, and this "
        "node {found}",
        "set the label with `kubectl label --overwrite node {node} {labels}`, or change the node "
        "selector of the DaemonSet",
    ),
    "DEVICE_PLUGIN_AFFINITY": Meaning(
        FAILURE,
        "{counted}; the node affinity of the device plugin {daemonset} excludes this node: it "
        "requires {affinity}",
        "label the node {node} accordingly, or change the affinity with `kubectl --namespace "
        "{namespace} edit daemonset {name}`",
    ),
    "DEVICE_PLUGIN_IMAGE_UNAVAILABLE": Meaning(
        FAILURE,
        "{counted}; the node cannot pull the image of the device plugin {pod}: {error}",
        "set device_plugin_image and device_plugin_version to an image that this node can pull, "
        "and device_plugin_image_pull_secrets where the registry needs credentials",
    ),
    "DEVICE_PLUGIN_NOT_STARTED": Meaning(
        FAILURE,
        "{counted}; the container of the device plugin {pod} does not start: {error}",
        "read `kubectl --namespace {namespace} describe pod {name}`",
    ),
    "DEVICE_PLUGIN_CRASHES": Meaning(
        FAILURE,
        "{counted}; the device plugin {pod} ends again and again, with: {error}",
        "read `kubectl --namespace {namespace} logs {name} --previous`",
    ),
    "DEVICE_PLUGIN_BLIND": Meaning(
        FAILURE,
        "{counted}; the device plugin {pod} sees no GPU: {error}",
        "check that `nvidia-smi` works on the node; then register the NVIDIA runtime, which starts "
        "this pod, with `ansible-playbook metal.gpu.site --tags runtime,device_plugin`",
    ),
    "DEVICE_PLUGIN_UNREGISTERED": Meaning(
        FAILURE,
        "{counted}; the kubelet does not accept the device plugin {pod}: {error}",
        "remove a second device plugin from the node, if there is one; then restart the kubelet "
        "with `systemctl restart kubelet`; the plugin registers again by itself",
    ),
    "GPU_UNHEALTHY": Meaning(
        FAILURE,
        "{counted}; the device plugin {pod} logged: {error}",
        "look for Xid messages on the node with `dmesg | grep -i xid`, and reset or replace the "
        "GPU; once the GPU is well, and not before, `kubectl --namespace {namespace} delete pod "
        "{name}`: while a GPU is lost, a new pod of the plugin does not start, and the node loses "
        "its other GPUs, too",
    ),
    "SMOKE_FAILED": Meaning(
        FAILURE,
        "a smoke pod with {asked} GPUs failed: {error}",
        "read what the message quotes; run `nvidia-smi` on the node, and `kubectl describe` on a "
        "pod with GPUs there",
    ),
    "SMOKE_IMAGE_UNAVAILABLE": Meaning(
        FAILURE,
        "cannot get the image of the smoke pod: {error}",
        "set verify_smoke_image to an image that this node can pull, and "
        "verify_smoke_image_pull_secrets where the registry wants credentials",
    ),
    "SMOKE_UNKNOWN": Meaning(
        FAILURE,
        "the result of the smoke pod is unknown: {error}",
        "run `ansible-playbook metal.gpu.verify` again when the API server answers",
    ),
    "SMOKE_POD_LEFT": Meaning(
        NOTICE,
        "the smoke pod {name} may still exist, because it could not be deleted: {error}",
        "delete it with `kubectl --namespace {namespace} delete pod {name}`",
    ),
    "GPUS_NOT_ALLOCATABLE": Meaning(
        FAILURE,
        "no smoke pod can run with {asked} {resource}: the node has {found} allocatable",
        "check that the device plugin runs on the node, and that `kubectl describe node` shows its "
        "GPUs as allocatable",
    ),
    "POD_REJECTED": Meaning(
        FAILURE,
        "{by} rejects {what}: {error}",
        "exempt the namespace {namespace} from it, or set {place} to a namespace that it does not "
        "cover",
    ),
    "POD_OVER_QUOTA": Meaning(
        FAILURE,
        "{by} in the namespace {namespace} rejects {what}: {error}",
        "change it (`kubectl --namespace {namespace} describe resourcequota,limitrange`), or set "
        "{place} to another namespace",
    ),
    "NAMESPACE_MISSING": Meaning(
        FAILURE,
        "the namespace {namespace} for {what} does not exist",
        "create it with `kubectl create namespace {namespace}`, or set {place} to another one",
    ),
    "RUNTIME_CLASS_MISSING": Meaning(
        FAILURE,
        "{what} needs the RuntimeClass {name}, which the cluster does not have",
        "name an existing one (`kubectl get runtimeclasses`) in verify_smoke_runtime_class or "
        "device_plugin_runtime_class, or create it with `ansible-playbook metal.gpu.site --tags "
        "device_plugin`",
    ),
    "RUNTIME_HANDLER_MISSING": Meaning(
        FAILURE,
        "the container engine has no runtime {handler}, which {what} needs: {error}",
        "register it with `ansible-playbook metal.gpu.site --tags runtime`; another tool may have "
        "overwritten the engine's configuration",
    ),
    "CDI_UNRESOLVABLE": Meaning(
        FAILURE,
        "the container engine does not find the CDI devices of {what}: {error}",
        "compare `nvidia-ctk cdi list` on the node with the message; remove old and duplicate "
        "specifications from /etc/cdi and /var/run/cdi, run `systemctl restart "
        "nvidia-cdi-refresh.service`, and delete the device plugin's pod",
    ),
    "GPU_BLOCKS_CONTAINERS": Meaning(
        FAILURE,
        "{what} does not start, because a GPU of the node is lost: {error}",
        "drain the node, and reset the GPU or reboot; until then, no container with GPUs starts "
        "there",
    ),
    "ENGINE_SILENT": Meaning(
        FAILURE,
        "the container engine does not answer the kubelet: {error}",
        "look at `systemctl status containerd docker cri-docker` and at `journalctl --unit "
        "containerd` on the node",
    ),
    "KUBELET_SILENT": Meaning(
        FAILURE,
        "{what} does not start, because the kubelet of {node} is silent: {error}",
        "look at `systemctl status kubelet` and at `journalctl --unit kubelet` on the node",
    ),
    "NODE_TAINTED": Meaning(
        FAILURE,
        "{what} does not run, because it does not tolerate the node's taint {taint}",
        "remove the taint with `{command}`, or add a toleration to {setting}",
    ),
    "NODE_PRESSURE": Meaning(
        FAILURE,
        "{what} does not run, because the node is under {kind} pressure: {error}",
        "read the conditions in `kubectl describe node {node}`, and free disk space, memory or "
        "processes on the node; the kubelet then removes the taint by itself",
    ),
    "NODE_FULL": Meaning(
        FAILURE,
        "the node has no room for {what}: {error}",
        "wait for other pods to end, or move them: `kubectl get pods --all-namespaces "
        "--field-selector spec.nodeName={node}` lists them",
    ),
    "POD_NOT_ADMITTED": Meaning(
        FAILURE,
        "the kubelet does not admit {what}: {error}",
        "look for pods that took the GPUs: `kubectl get pods --all-namespaces --field-selector "
        "spec.nodeName={node}`; if there are none, restart the kubelet with `systemctl restart "
        "kubelet`",
    ),
    "POD_NOT_SCHEDULED": Meaning(
        FAILURE,
        "no scheduler placed {what} on the node",
        "check kube-scheduler: `kubectl --namespace kube-system get pods --selector "
        "component=kube-scheduler`",
    ),
    "SMOKE_DIFFERS": Meaning(
        FAILURE,
        "a smoke pod saw GPUs that the node does not have: {uuids}",
        "look at the CDI specifications in /etc/cdi and /var/run/cdi for old ones, and restart "
        "nvidia-cdi-refresh.service and the device plugin's pod",
    ),
    "SMOKE_MISSING": Meaning(
        FAILURE,
        "the smoke pods did not prove every GPU: {evidence}",
        "run metal.gpu.verify again; to leave the pods out, set verify_smoke to false",
    ),
    "SMOKE_PARTIAL": Meaning(
        NOTICE,
        "proved {seen} GPUs by a smoke pod, and not {busy}, which pods have claimed: {holders}",
        "nothing to do; drain the node to have every GPU proven",
    ),
    "SMOKE_NOT_RUN": Meaning(
        NOTICE,
        "was not proven by a smoke pod: {evidence}",
        "nothing to do; drain the node to have every GPU proven",
    ),
}


def finding(code: str, host: str, **evidence: Any) -> dict[str, str]:
    """Return the finding `code` about `host`, its texts filled in and without credentials.

    Raises UnknownCode.
    """
    try:
        meaning = CATALOGUE[code]
    except KeyError as error:
        raise UnknownCode(code) from error
    return {
        "code": code,
        "severity": meaning.severity,
        "host": host,
        "message": f"{host}: " + redact(meaning.message.format(**evidence)),
        "remedy": redact(meaning.remedy.format(**evidence)),
        "reference": f"{DOCUMENT}#{code.lower()}",
    }

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What each finding means, and what a person does about it.

A finding is a plain dictionary, so that it travels through Ansible unchanged: code, severity,
host, message, remedy and reference. The message starts with the host, so each text is a sentence
that can follow "CODE host: ". The section of docs/troubleshooting.md with the code as its heading
has the details. No function does I/O.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REFUSAL = "refusal"  # the run changes no node, or only the others (metal_gpu_skip_refused)
STOP = "stop"  # the run leaves this node until an admin decides, and continues on the others
FAILURE = "failure"  # an observed layer differs from the desired one
NOTICE = "notice"  # worth knowing; stops nothing

DOCUMENT = "docs/troubleshooting.md"


class UnknownCode(KeyError):
    """No finding has this code: a programming error."""


class Meaning(NamedTuple):
    """One kind of finding. The texts are `str.format` templates over the evidence and `host`."""

    severity: str
    message: str
    remedy: str
    general: str  # the remedy where no node fills it in; names of machines are words in capitals


# An entry ends with an empty line. Its other line breaks are blanks. In a remedy, {name|words} has
# the words for where no node fills it in; a field of a command without words is NAME there.
_TEXTS = r"""
# --- the run --------------------------------------------------------------------------------------

STRATEGY_UNSUPPORTED (refusal): the play uses the strategy {strategy}; these roles need a strategy
  that runs all nodes in step
Remedy: set `strategy: linear` in the play

CONTROLLER_PACKAGE_MISSING (refusal): {python} {found} the Python package {package}; this collection
  needs {minimum} or later
Remedy: run `{python} -m pip install '{package}>={minimum|VERSION}'`; if another Python has the
  package, set ansible_python_interpreter for localhost to that Python

CONTROLLER_UNUSABLE (refusal): Ansible cannot run modules on localhost: {error}
Remedy: remove localhost from the inventory, or set `ansible_connection: local` and
  `ansible_python_interpreter: '{{{{ ansible_playbook_python }}}}'` for it

VARIABLE_INVALID (refusal): {name} is {found}, expected {expected}
Remedy: correct the variable; `ansible-doc -t role metal.gpu.{role}` describes it, and
  `ansible-inventory -i INVENTORY --host {host}` shows all variables of the host, also passwords

VARIABLE_MISPLACED (refusal): {name} is set for {hosts}; Ansible reads it only from the command line
Remedy: remove it from the inventory, and run `ansible-playbook -e {name}=VALUE`

VARIABLE_UNKNOWN (notice): {name} is set for {hosts}, but this collection has no such variable{hint}
Remedy: correct the name; if another tool uses this variable, ignore this notice

SMOKE_IMAGE_UNUSED (notice): verify_smoke_image is set for {hosts}, but is used only by
  metal.gpu.leak_test: at level {level}, verify runs NVIDIA's sample image
Remedy: set verify_compute_image to an image with vectorAdd that the nodes can pull; or set
  `verify_level: list`, which proves less; if verify_smoke_image is only for metal.gpu.leak_test,
  ignore this notice

# --- the node as a machine ------------------------------------------------------------------------

NODE_UNREACHABLE (refusal): the node cannot be reached: {error}
Remedy: check the address, user and key in the inventory with `ssh`, then run `ansible {host} -m
  ansible.builtin.ping`; to continue without the node, remove it from the group or set
  `metal_gpu_skip_refused: true`

HOST_KEY_UNKNOWN (refusal): {machine} offers the {kind} key {fingerprint}, and {file} has no key for
  it
Remedy: compare the fingerprint with `ssh-keygen -lf /etc/ssh/ssh_host_{name|ed25519}_key.pub` on
  the machine's own console; if they are the same, run the command again with
  `--accept-new-host-keys`, or log in once with `ssh`

HOST_KEY_CHANGED (refusal): {machine} offers the {kind} key {fingerprint}, but {file} has
  {expected}; another machine has its address, or somebody intercepts the connection
Remedy: find out why before you log in; if the machine was installed again, compare the fingerprint
  on its own console, then run `ssh-keygen -f {file|~/.ssh/known_hosts} -R '{machine|HOST}'`

LOGIN_REFUSED (refusal): {machine} does not let {user} log in: {error}
Remedy: try `ssh {login|USER@HOST}`; if the key is not there, run `ssh-copy-id {login|USER@HOST}`;
  with `metal-gpu`, `--identity` names a key and `--ask-pass` asks for a password

LOGIN_SHELL_MISSING (refusal): the user of the login has no shell that runs commands: {error}
Remedy: give the user a shell, as root on the node: `usermod --shell /bin/bash USER`; or log in as
  another user

PYTHON_MISSING (refusal): the node has {found}, expected Python 3.9 or newer
Remedy: install it on the node: `apt-get install python3` on Debian and Ubuntu, `dnf install
  python3.11` on Red Hat's systems; one that is not in the PATH is named by
  ansible_python_interpreter in the inventory

NODE_NOT_OBSERVED (refusal): the node was not observed: {error}
Remedy: check that the node has Python 3.9 or newer and writable file systems, then run `ansible
  {host} -b -m metal.gpu.node_info`

OBSERVATION_FAILED (stop): this collection has a defect, and cannot interpret what it read on the
  node: {error}
Remedy: report the defect, with this message; until it is fixed, runs leave this node as it is

NODE_RESTARTED (failure): the node restarted during the run, so earlier observations are outdated
Remedy: run `ansible-playbook metal.gpu.verify` again; on the node, `last -x reboot` shows when it
  restarted, and `journalctl --boot=-1 --pager-end` shows its last log lines before that

NODES_LOST (refusal): {hosts} failed during preflight; the errors are above
Remedy: fix these errors; to continue without the hosts, remove them from the group or set
  `metal_gpu_skip_refused: true`

SUDO_REFUSED (refusal): the inventory's user cannot become root: {error}
Remedy: let the user run sudo without a password, or pass the password with `--ask-become-pass` or
  ansible_become_password; test it with `ansible {host} -b -m ansible.builtin.command -a id`

SUDO_NEEDS_TERMINAL (refusal): sudo on the node needs a terminal, and a run has none: {error}
Remedy: run `visudo` on the node, and remove `requiretty`, or add the line `Defaults:USER
  !requiretty` with the inventory's user; test it with `ssh {host} sudo id`

BECOME_REFUSED (refusal): the inventory's user cannot become root with {method}: {error}
Remedy: pass {whose|the} password with `--ask-become-pass` or ansible_become_password, or configure
  {method|the method} to require none{where|}; test it with `ansible {host} -b -m
  ansible.builtin.command -a id`

NODE_NAME_TWICE (refusal): {hosts} are the same Kubernetes node, {node}
Remedy: keep only one of them in the inventory, or start each kubelet with its own
  `--hostname-override`

NODE_NOT_IN_CLUSTER (refusal): the cluster has no node {node}
Remedy: set metal_gpu_kubeconfig and metal_gpu_context to the kubelet's cluster (`grep server:
  /etc/kubernetes/kubelet.conf` on the node shows it); if the node never joined a cluster, run
  `kubeadm join` on it first

NODE_IS_ANOTHER (refusal): the node {node} of the cluster is another machine: {found}; this host has
  {expected}
Remedy: set metal_gpu_kubeconfig and metal_gpu_context to the cluster of this host, or correct the
  address of the host; if the machine was reinstalled under the name of a former one, run `kubectl
  delete node {node}` and join it again

NODE_RENAMED (refusal): the kubelet joined the cluster as {joined}, but registers as {own} at its
  next start; its certificate does not allow that name
Remedy: run `hostnamectl set-hostname {joined|NAME}`, or start the kubelet with
  `--hostname-override={joined|NAME}`; to keep the new name, run `kubeadm reset` and `kubeadm join`

DISTRIBUTION_UNSUPPORTED (refusal): the node runs {name} ({unit}), which has its own kubelet, and
  perhaps its own container engine, in places that this release does not know
Remedy: remove the node from the group, or stop {name|the distribution} and install what the node is
  to run instead

DISTRIBUTION_STOPPED (refusal): the containerd of {name} ({unit}) does not run, so its settings are
  unknown
Remedy: run `systemctl start {unit}` on the node, and run again; a node without containers, such as
  a controller of k0s, does not belong in the group

DISTRIBUTION_TOO_OLD (refusal): {name} contains containerd {found}; this collection supports the
  containerd of {name} from {expected} on
Remedy: upgrade {name|the distribution} on the node

DISTRIBUTION_RESTART (refusal): {unit} needs a restart, which is not permitted: {reason}
Remedy: set `nvidia_container_runtime_restart_ok: true`; the restart also restarts the kubelet of
  the node, and its pods keep running

CLOUD_IMAGE (refusal): the node is made from an image of {name}, found by {evidence}; its cloud
  writes the configuration of the container engine at each boot
Remedy: use the GPU image of the cloud, and remove the node from the group

CLUSTER_UNUSABLE (refusal): {what}: {error}
Remedy: {remedy|run `kubectl get nodes` with the same kubeconfig and context; correct
  metal_gpu_kubeconfig and metal_gpu_context}

CLUSTER_BUSY (refusal): the API server is too busy to answer: {error}
Remedy: run again later; until then, look for clients that ask too much, with `kubectl get --raw
  /metrics | grep apiserver_flowcontrol_rejected_requests_total`

CLUSTER_REJECTED (refusal): the admission policy or webhook {by} rejects what this run changes in
  the cluster: {error}
Remedy: exempt the user of the kubeconfig from it, or let it accept the labels and the objects that
  docs/teardown.md lists

CLUSTER_FORBIDDEN (refusal): the API server does not let {user} {verb} {resource} {scope}
Remedy: grant this permission to the user; docs/permissions.yml lists every permission that this
  collection needs

CLUSTER_UNAUTHENTICATED (refusal): the API server does not accept the credentials: {error}
Remedy: run `kubectl auth whoami` with the same kubeconfig; a token or a client certificate may be
  missing or expired

CLUSTER_PLUGIN_FAILED (refusal): the credential plugin {command} of the kubeconfig returned no
  credentials: {error}
Remedy: install the plugin for the user that runs Ansible, and log in with it; or use a kubeconfig
  with a client certificate{hint|}

CLUSTER_CONFLICT (failure): {manager} changed fields that this collection sets: {fields}
Remedy: to keep the change, set the same value in the role's variables, such as
  device_plugin_tolerations; to undo it, use `kubectl edit`; then run again

CLUSTER_IMMUTABLE (failure): the API server cannot change an object that this collection created:
  {error}
Remedy: delete that object with `kubectl delete`, and run again: the role creates it again

OS_UNSUPPORTED (refusal): the node runs {found}, which is not supported; supported systems on x86_64
  are {expected}
Remedy: install a supported system on the node, or remove the node from the group

ARM64_UNSUPPORTED (refusal): this is an arm64 machine ({evidence}); this collection supports x86_64
  only, because it has no record of drivers for arm64
Remedy: remove the node from the group

INIT_UNSUPPORTED (refusal): the node does not run systemd, which every role needs
Remedy: boot the node with systemd

FILES_READ_ONLY (refusal): the file system of {paths} is mounted read-only, so no role can change
  anything
Remedy: look for errors of the disk with `dmesg --level=err,warn`, after which the kernel mounts a
  file system read-only; then repair it, or run `mount -o remount,rw MOUNT_POINT`

PACKAGES_UNKNOWN (refusal): cannot determine which packages are installed: {error}
Remedy: run `dpkg-query -W` (`rpm -qa` on Red Hat's systems) on the node; if it fails, repair the
  package database; then run again

UNITS_UNKNOWN (refusal): systemd did not report the state of {units}: {error}
Remedy: run `systemctl show {unit}` on the node; {advice|fix what it reports}; then run again

VERSION_UNKNOWN (refusal): cannot determine the version of {program}: `{program} --version` printed:
  {error}
Remedy: run `{program} --version` on the node, and repair or remove {program|the program}

NO_GPU (refusal): the PCI bus has no NVIDIA GPU (vendor 10de, class 0300 or 0302)
Remedy: remove the node from the group; if it has a GPU, run `lspci -d 10de:` on it, and check the
  card's seating, its power, and the firmware setting Above 4G Decoding

GPU_COUNT_DIFFERS (refusal): gpu_count is {declared}, but the PCI bus has {found}: {addresses}
Remedy: correct gpu_count in the inventory; or find the missing card: compare the addresses with
  those of a machine of the same model

GPU_PASSED_THROUGH (refusal): another driver of the kernel has GPUs, as vfio-pci for virtual
  machines: {addresses}
Remedy: remove the binding (`vfio-pci.ids=` on the kernel command line, or a file in
  /etc/modprobe.d) and reboot, or remove the node from the group

MACHINE_UNSUPPORTED (refusal): this kind of machine is not supported: {kind}
Remedy: remove the node from the group; for a virtual GPU, install the guest driver of the
  hypervisor's vGPU release and a license yourself: a driver that works is kept

# --- driver ---------------------------------------------------------------------------------------

GPU_UNSUPPORTED_BY_DRIVER (refusal): driver {version} does not support the {generation} GPUs (device
  {devices}) at {addresses}; {expected} does
Remedy: remove nvidia_driver_version and nvidia_driver_branch for this node, so that the role
  chooses a driver; or set nvidia_driver_version to a version of {expected|a branch that supports
  the GPUs}, and with a .run file nvidia_driver_runfile_url, too

GPUS_INCOMPATIBLE (refusal): no driver supports all GPUs of the node: {evidence}
Remedy: move GPUs to other nodes, so that one driver supports all GPUs of a node

FLAVOUR_UNSUPPORTED (refusal): nvidia_driver_flavour {flavour} allows no kernel module that supports
  all GPUs: {evidence}
Remedy: set `nvidia_driver_flavour: auto`; GPUs that need different kernel modules cannot share a
  node

NOUVEAU_LOADED (stop): {evidence}, and its removal needs a reboot; nvidia_driver_reboot_ok is
  {reboot_ok}
Remedy: set `nvidia_driver_reboot_ok: true` for this node; or blacklist the module in
  /etc/modprobe.d, rebuild the initial ramdisk, and reboot the node yourself

REBOOT_NEEDED (stop): the node needs a reboot ({evidence}); nvidia_driver_reboot_ok is {reboot_ok}
Remedy: set `nvidia_driver_reboot_ok: true` for this node, or drain and reboot it yourself

REBOOT_BLOCKED (stop): the node needs a reboot, but its GPUs are in use: {users}
Remedy: wait until these pods, containers and processes end, or end them, and run again

REBOOT_UNDRAINED (stop): the node needs a reboot, but cannot be drained: {error}
Remedy: drain the node yourself, and run again; or set nvidia_driver_reboot_may_lose to what the
  pods may lose, or nvidia_driver_reboot_drain_timeout to more seconds

REBOOT_HALTED (stop): not rebooted, because other nodes did not come back from their reboot with
  a driver that works: {others}
Remedy: bring these nodes back, and run again

SECURE_BOOT_ON (refusal): Secure Boot is on, and the kernel refuses a module that is built on the
  node and not signed with an enrolled key: {reasons}
Remedy: {signed|on Ubuntu, set `nvidia_driver_source: distribution`, whose modules are signed;
  }{key|or let the firmware trust the key of DKMS: `mokutil --import FILE` with its certificate, a
  reboot, and a confirmation at the console (docs/driver.md)}; or turn Secure Boot off in the
  firmware of the node; or {alternatives|install a driver with a signed module yourself}

SIGNING_KEY_UNTRUSTED (notice): Secure Boot is on, and {why}; if the kernel refuses the next module
  that DKMS builds, the node loses its GPUs at an upgrade of the kernel or of the driver
Remedy: {way|run `mokutil --import FILE` with the certificate of DKMS's key, such as
  /var/lib/dkms/mok.pub, reboot, and confirm the key at the console (docs/driver.md); restore the
  private key or the certificate first if one of them is missing}

DRIVER_FROM_ELSEWHERE (refusal): driver {found} comes from no installed package and does not work:
  {error}
Remedy: {remedy|remove the driver, and run again; `nvidia-uninstall` removes the driver of NVIDIA's
  .run installer}

DRIVER_WITHOUT_PACKAGE (notice): driver {found} works and is kept; it comes from no installed
  package that the role knows
Remedy: nothing to do; to replace it by packages, drain the node, remove the driver (the .run
  installer's: `nvidia-uninstall`), and run again

DRIVER_UNFINISHED (notice): driver {found} works, but may be missing after the next boot: {packages}
Remedy: {way|fix the error in the build log}, then run `dpkg --configure -a`; or remove the packages
  with `apt-get purge {names|PACKAGE}`

DRIVER_PACKAGES_UNKNOWN (refusal): the packages of a driver on {found} are not known: {reasons}
Remedy: {alternatives|set nvidia_driver_version or nvidia_driver_source to what docs/driver.md
  records for this system; or install a driver yourself with `nvidia_driver_source: present`, or
  from a .run file (nvidia_driver_runfile_url)}

DRIVER_BRANCH_MISSING (refusal): no source that is allowed has {driver} on {found}: {reasons}
Remedy: {alternatives|remove nvidia_driver_version and nvidia_driver_branch, so that the role
  chooses a driver; or set nvidia_driver_source to a source that has this branch,
  `nvidia_driver_repository: true` for NVIDIA's repository, or nvidia_driver_runfile_url to a .run
  file}

DRIVER_SOURCE_UNCLEAR (refusal): nvidia_driver_repository (default: metal_gpu_repository) is false
  and nvidia_driver_source is auto, so nothing shows whether the sources of the node have NVIDIA's
  packages of the driver or those of {found}
Remedy: {alternatives|set nvidia_driver_source to `nvidia` or `distribution`}; or set
  `nvidia_driver_repository: true`

DRIVER_NOT_PRESENT (refusal): no driver works ({error}), and nvidia_driver_source is present, so the
  role installs none
Remedy: install or repair the driver in your way, and run again; or set `nvidia_driver_source: auto`

RUNFILE_UNSUITABLE (refusal): the .run file of driver {version} cannot be installed: {reasons}
Remedy: for each reason: set nvidia_driver_runfile_url and nvidia_driver_runfile_sha256 to a file
  for x86_64 of the version in nvidia_driver_version; free space in /var/lib; stop the X server

RUNFILE_UNAVAILABLE (failure): the .run file cannot be fetched: {error}
Remedy: correct nvidia_driver_runfile_url: the node downloads a URL; a path is read on the
  controller

RUNFILE_CHECKSUM (failure): the .run file does not have the checksum of
  nvidia_driver_runfile_sha256: {error}
Remedy: compare both sums with the one that NVIDIA publishes for the file; correct the variable, or
  fetch the file again

RUNFILE_FAILED (failure): the .run installer failed: {error}
Remedy: read /var/log/nvidia-installer.log on the node; where the module does not build, take a
  driver that knows the kernel

RUNFILE_NOT_REMOVED (failure): nvidia-uninstall failed: {error}
Remedy: read /var/log/nvidia-uninstall.log on the node, and run again

COMPONENTS_MISSING (refusal): the sources of {url} lack the components {components}, and the role
  cannot add a file with them: {error}
Remedy: add these components to the source in {path|/etc/apt}, and run again

KERNEL_HEADERS_LEFT (notice): {package} is not installed, so the next kernel may come without a
  module of the driver{error}
Remedy: run `apt-get install {package}` when you upgrade the kernel

KERNEL_MODULES_LEFT (notice): {package} is not installed, so the next kernel comes without the
  modules of the driver{error}
Remedy: upgrade the kernel with `apt-get install linux-image-FLAVOUR {package}`, where FLAVOUR is
  the end of the package's name, and reboot

KERNEL_WITHOUT_MODULES (notice): a newer kernel is installed without {package}, so the next boot
  loses the GPUs{error}
Remedy: run `apt-get install {package}` before the reboot; if it needs another version of the
  driver, drain the node, reboot, and run again: the role then updates its own driver

KERNEL_HEADERS_GONE (stop): no repository of the node has the headers of kernel {kernel}, so DKMS
  cannot build the driver's module for it; {found}
Remedy: upgrade the kernel, drain and reboot the node, and run again; if a newer kernel with headers
  is installed, the role reboots into it with `nvidia_driver_reboot_ok: true`; if the last boot did
  not start it, change the boot loader's settings, or boot it yourself; if the list of packages on
  the node is old, update it first

KERNEL_PENDING (notice): kernel {kernel} boots next and has no module of the driver ({why}), so the
  node loses its GPUs at the next boot
Remedy: {way|install the headers of the newer kernel, and run again: the role builds the module for
  it}; or boot the running kernel again: the boot loader's settings decide, and this collection
  reads only which kernel is the newest

BOOT_FULL (refusal): the initial ramdisks must be rebuilt ({reason}), and /boot has {free} free,
  less than the {needed} of the largest one
Remedy: remove old kernels (`apt-get autoremove`, or `dnf remove --oldinstallonly`), and run again

INITRAMFS_PROGRAM_MISSING (refusal): the initial ramdisk must be rebuilt ({reason}), and the node
  has neither update-initramfs nor dracut
Remedy: install the program that built it (`apt-get install initramfs-tools`, or dracut), and run
  again

DKMS_BUILD_FAILED (refusal): DKMS could not build the module of driver {version} for kernel
  {kernel}: {error}; the log is {log}
Remedy: {way|remove the cause}, run `dkms install {source|nvidia/VERSION} -k {kernel|$(uname -r)}`
  on the node, and run again; or install another recorded driver, which may build: {others|set
  nvidia_driver_version}; and first remove this one with `nvidia_driver_state: absent`

MODULE_REJECTED (stop): the kernel does not load {modules}: {error}
Remedy: if its key was rejected, see SECURE_BOOT_ON in the document below; if its format is invalid,
  or it has the signature of a former key, build it again: `dkms remove MODULE/VERSION -k $(uname
  -r)`, then `dkms install MODULE/VERSION -k $(uname -r)`; `dmesg` on the node shows more

PARAMETERS_PENDING (notice): parameters of nvidia_driver_module_parameters are not in force: the
  loaded module has {evidence}; {when}
Remedy: reboot the node, or set `nvidia_driver_reboot_ok: true` and run again; if the kernel that
  boots next has no module of the driver, see KERNEL_PENDING in the document below first; if the
  node has rebooted since, correct the values, or remove what else sets them in /etc/modprobe.d

PARAMETERS_UNKNOWN (notice): `/proc/driver/nvidia/params` does not list {names} of
  nvidia_driver_module_parameters, so nothing shows whether the loaded module has the values; {when}
Remedy: run `modinfo -p nvidia` on the node, and correct or remove names that it does not print; a
  module reads its parameters when it is loaded, so a new value needs a reboot of the node

PEERMEM_MISSING (notice): nvidia_driver_peermem is true, but the driver has no module nvidia-peermem
  for kernel {kernel}
Remedy: use a driver of branch 470 or newer that was installed with this module, or remove the
  variable

DRIVER_PIN_TAKEN (refusal): {packages} pins the driver to another version than {expected}
Remedy: if nothing else needs that pin, run `apt-get purge {names|PACKAGE}`, and run again; or set
  nvidia_driver_version to the version that it pins

DRIVER_PARTS_MIXED (refusal): {packages} would be beside driver {version}, which needs all its parts
  in one version
Remedy: `apt-cache policy {names|PACKAGE}` on the node shows where they come from; purge what a
  former driver has left, and packages that pin it (`dpkg -l 'nvidia-driver-pinning-*'`), also those
  in state rc; and run again

MODULE_STREAM_TAKEN (refusal): the stream {found} of the DNF module nvidia-driver is enabled; driver
  {version} is in the stream {expected}
Remedy: if nothing else needs the enabled stream, run `dnf module reset nvidia-driver`

DRIVER_BROKEN (refusal): {found}: {error}
Remedy: {remedy|read `dmesg | grep -iE 'nvrm|nvidia|module'` on the node, and give the lines to
  `metal-gpu explain`; repair the driver, or remove it and run again}

DRIVER_KEPT (notice): driver {found} works and is kept, and metal.gpu does not update it (the role
  would install driver {expected})
Remedy: nothing to do now; for its security updates, another version or another source, drain the
  node, remove the driver (with `nvidia_driver_state: absent`, or yourself if you installed it), and
  run again; `nvidia_driver_switch_ok: true` is only for a change between packages and a .run file

DRIVER_OF_ADMIN (notice): driver {found} stays: no record says that this collection installed it
Remedy: nothing to do; to remove it, drain the node, and purge its packages yourself

DRIVER_PACKAGES_KEPT (notice): NVIDIA packages stay, because an admin installed them or other
  packages need them: {packages}
Remedy: nothing to do; to remove them, run `{command|apt-get purge PACKAGE}`

PERSISTENCE_MISSING (notice): driver {found} works and is kept, but has no
  nvidia-persistenced.service: idle GPUs lose their settings and start slowly
Remedy: install nvidia-persistenced {found|in the version of the driver} from the source of the
  driver, or unmask its unit, and run again: the role starts it; or ignore this notice

FABRIC_PACKAGES_UNKNOWN (refusal): {switches} need Fabric Manager {driver}, which the role does not
  install: {reason}
Remedy: do what the reason says; or install Fabric Manager in exactly the driver's version yourself,
  such as `apt-get install nvidia-fabricmanager-580` of Ubuntu's multiverse, with nvlsm for B200 and
  newer GPUs, and run again: the role keeps it and starts it; or set nvidia_driver_source and
  nvidia_driver_version to a driver in docs/fabric.md

SUBNET_MANAGER_MISSING (refusal): {switches} also need nvlsm, which only NVIDIA's repository has,
  but the driver is to come from another source
Remedy: install nvlsm, infiniband-diags and pciutils, and run again; or set `nvidia_driver_source:
  nvidia`, with Secure Boot on after you have enrolled the key of DKMS

FABRIC_MODULES_MISSING (refusal): Fabric Manager reaches {switches} through the kernel modules
  mlx5_ib and ib_umad, and kernel {kernel} does not have {modules}
Remedy: install the package of the kernel that has them, such as linux-modules-extra-{kernel|…} on
  Ubuntu; or install DOCA-OFED; then run again

FABRIC_MANAGER_TAKEN (refusal): the driver needs Fabric Manager {expected}, but {found} is
  installed, which this collection did not install
Remedy: remove it with your package manager ({names|nvidia-fabricmanager}), and run again: the role
  then installs the version of the driver; or set nvidia_driver_version to its version

PERSISTENCE_OFF (notice): {evidence} ({why}): idle GPUs lose their settings and start slowly
Remedy: remove the option from the unit, or run `nvidia-smi -pm 1` until the next boot

DEVICE_FILES_FAILED (failure): `{command}` did not create the device files of the driver: {error}
Remedy: run `modprobe nvidia_uvm` and `ls -ld /dev/nvidia-uvm*` on the node, because nvidia-modprobe
  hides the words of modprobe; remove what is in the place of the file, and run again

DRIVER_IN_USE (failure): the driver cannot be unloaded, because it is in use: {users}
Remedy: end these processes, and run again; nothing was removed

# --- container engine -----------------------------------------------------------------------------

ENGINE_UNSUPPORTED (refusal): the kubelet is configured for {found}; this collection supports
  containerd, CRI-O, and Docker through cri-dockerd
Remedy: configure the kubelet for one of them, or remove the node from the group

ENGINE_MISMATCH (refusal): the run asks for the engine {desired}, but the kubelet is configured for
  {found}
Remedy: {instead|}set `metal_gpu_engine: auto`, which follows the kubelet, or configure the kubelet
  for {desired|the engine that you want}

CONTAINERD_CONFIG_INVALID (refusal): containerd's configuration is not valid: {error}
Remedy: correct the file, and check it with `containerd config dump`; the role did not change it

CONTAINERD_UNKNOWN (refusal): `{source}` of containerd {found} has none of the tables of the CRI
  plugin that this collection knows: {expected}
Remedy: use a containerd that docs/support.md lists; or register the runtime nvidia yourself, and
  leave the role nvidia_container_runtime out

ENGINE_NOT_STARTABLE (notice): {engine} runs, and would not serve the kubelet after its next start,
  such as after a reboot: {evidence}
Remedy: correct the configuration now, and restart {engine|the engine} when the node is drained

CGROUP_DRIVERS_DIFFER (notice): the cgroup driver of the kubelet is {driver}, and that of {engine}
  is {found}; two managers of control groups disturb each other, and pods restart without a reason
Remedy: drain the node, set {setting|the same driver} in {path|the file of the engine}, and restart
  {engine|the engine} and the kubelet

CONTAINERD_FATAL (refusal): containerd would not serve the kubelet after its next start, because of
  {path} or a file that it imports: {evidence}
Remedy: correct the configuration; `containerd config dump` does not show this, and containerd still
  runs with what it read before

CRI_DISABLED (refusal): {path} disables containerd's CRI plugin, which the kubelet needs
Remedy: remove the plugin from disabled_plugins in {path|/etc/containerd/config.toml}, and run
  again; the role does not edit a file that an admin wrote

CONTAINERD_IN_USE (refusal): containerd is not removed, because the kubelet or Docker needs it
Remedy: drain the node, and remove the kubelet and Docker first

CRIO_CONFIG_INVALID (refusal): CRI-O's configuration is not valid: {error}
Remedy: correct the file, and check it with `crio config`; CRI-O reads every file below
  /etc/crio/crio.conf.d, whatever its name

CRIO_MONITOR_MISSING (refusal): CRI-O cannot start: its runtime {runtime} in {path} has no
  monitor_path, and no folder of PATH has conmon
Remedy: set monitor_path of this runtime, such as /usr/libexec/crio/conmon, or delete the file if
  another tool has left it

CRIO_RUNTIME_UNKNOWN (refusal): none of CRI-O's runtimes ({runtimes}) has both runtime_path and
  monitor_path, so the NVIDIA runtime has nothing to call
Remedy: compare `crio config` with the file of the package, /etc/crio/crio.conf.d/10-crio.conf; a
  table in a later file replaces the whole table of the same runtime

CRIO_DROP_IN_REPLACED (refusal): {files} is read after {path} and replaces its settings, but
  {reason}
Remedy: remove the runtime nvidia and default_runtime from {files|the later file in
  /etc/crio/crio.conf.d}, or delete the file if another tool has left it

CRIO_IN_USE (refusal): CRI-O is not removed, because the kubelet runs and needs it
Remedy: drain the node, and remove the kubelet first

CRIO_CDI_UNREAD (refusal): CRI-O reads CDI specifications only in {found}, but the toolkit writes
  them to /var/run/cdi
Remedy: add /var/run/cdi to cdi_spec_dirs of CRI-O

OPENSHIFT_UNSUPPORTED (refusal): {evidence}: operators of OpenShift own the configuration of this
  node
Remedy: install NVIDIA's GPU Operator, which OpenShift supports, and remove the node from the group

OCI_HOOK_FOUND (notice): CRI-O runs OCI hooks from before CDI: {paths}; they give all GPUs to each
  container whose image has NVIDIA_VISIBLE_DEVICES=all, also without a request
Remedy: set `nvidia_container_runtime_replace_oci_hooks: true`; the role then turns the hooks off,
  and CDI takes their place

DOCKER_CONFIG_INVALID (refusal): Docker's configuration is not valid: {error}
Remedy: correct the file; the role did not change it

DOCKER_RECORD_INVALID (refusal): cannot read the list of containers that ran before the role
  replaced Docker: {error}
Remedy: run `docker ps --all`, start the containers that should run with `docker start NAME`, and
  delete the file

CONFIG_NOT_EDITABLE (refusal): {path} needs a change, but cannot be edited safely: {error}
Remedy: correct the file at that place, and run again; the role changed no setting

HISTORY_UNREADABLE (refusal): cannot restore the former settings of {path}: {error}
Remedy: restore this history file from a backup of the node; to keep {path|the configuration file}
  as it is, delete the history file

DOCKER_FLAG_CLASH (refusal): the flag {flag} in {file} conflicts with the key {key} in {path};
  {effect}
Remedy: keep one of the two, preferably the key in {path|/etc/docker/daemon.json}; to remove the
  flag, override ExecStart in a drop-in

DOCKER_OPTION_TAKEN (refusal): {path} has other values than docker_ce_daemon_options for {keys}, and
  the role did not set them
Remedy: set the variable to the values of the file, or remove these keys from the file; the role
  changed no setting

DOCKER_DATA_MOVES (refusal): with docker_ce_daemon_options, the installed Docker would look for its
  containers, images or volumes elsewhere, and start without them: {keys}
Remedy: give these keys the values that Docker uses now, or leave out those that the role has never
  written; docs/troubleshooting.md says how to move the data

DOCKER_OPTIONS_WAIT (notice): changes of {keys} need a restart of Docker, so the role does not make
  them
Remedy: set `docker_ce_restart_ok: true` when the containers of the node may stop; with
  `live-restore`, they keep running, except after a change of Docker's network, such as `bip` or
  `default-address-pools`

DOCKER_PROXY_TAKEN (refusal): {path} sets {name} to another value than docker_ce_proxy
Remedy: set docker_ce_proxy to the value of the file, or remove the setting from the file; the role
  changed no setting

DOCKER_OPTIONS_OLD (notice): Docker keeps the options {keys} of docker_ce_daemon_options until its
  next start, although daemon.json no longer has them
Remedy: run `systemctl restart docker` when its containers may stop

DOCKER_SETTING_LOST (refusal): {file} has {setting}, which docker-ce does not use
Remedy: move the setting into daemon.json, which both Dockers read, and remove it from {file|its
  present file}; in ExecStart, write `dockerd` without its folder

SNAP_DOCKER (refusal): Docker comes from snapd ({found}); it has its own NVIDIA container toolkit,
  and occupies the socket of the system's Docker
Remedy: save the data of its containers, run `snap remove docker`, and run again

ROOTLESS_DOCKER (refusal): a user's Docker is there ({found}), and the system's does not run; only
  the system's can be configured here, or used by a kubelet
Remedy: run `dockerd-rootless-setuptool.sh uninstall` as that user; or, if the system's Docker is
  installed, run `systemctl start docker`

NVIDIA_DOCKER_V1 (refusal): containers ({containers}) and volumes ({volumes}) of nvidia-docker v1
  stop working without it
Remedy: save their data, and set `docker_ce_v1_removal_ok: true`: the role then removes them

DOCKER_SILENT (refusal): Docker runs but does not answer root's `docker info` and `docker ps`, so
  its containers are unknown
Remedy: run `docker info` as root on the node; a Docker that listens elsewhere must also listen on
  unix:///var/run/docker.sock; remove a DOCKER_HOST or a context of root's that leads to another one

CONTAINERS_OF_RUNTIME (notice): containers use the runtime nvidia: {containers}; they keep running,
  but cannot start again after its removal
Remedy: create them again (`docker rm`, `docker run`) before the next reboot

CONTAINERS_EPHEMERAL (refusal): {containers} run with --rm; Docker deletes them when the role
  replaces Docker
Remedy: wait until they end or stop them; or set `live-restore` in daemon.json, and run `systemctl
  reload docker`

CRI_DOCKERD_MISSING (refusal): the kubelet is configured for {endpoint}, but cri-dockerd is not
  installed, and no repository has it
Remedy: set docker_ce_cri_dockerd_checksum to the checksum of {url|the package of cri-dockerd}, or
  install cri-dockerd yourself

CRI_DOCKERD_UNPACKAGED (refusal): the kubelet is configured for {endpoint}, but cri-dockerd is not
  installed, and no release of cri-dockerd has a package for {found}
Remedy: install cri-dockerd yourself, for example from the .tgz file of a release; or set
  docker_ce_cri_dockerd_url and docker_ce_cri_dockerd_checksum to your own package

ENGINE_KEPT (notice): {found} is installed and is kept ({variable} asks for {expected})
Remedy: nothing to do; to change the version, drain the node, release the hold and upgrade the
  package yourself; to replace a distribution's Docker by docker-ce, set
  `docker_ce_replace_distribution: true`

ENGINE_OF_ADMIN (notice): {engine} stays: no record says that this collection installed it
Remedy: nothing to do; to remove it, drain the node, and remove its packages yourself

DOCKER_IN_USE (refusal): Docker is not removed, because it is in use: {evidence}
Remedy: drain the node, and stop the containers in Docker

ENGINE_NOT_BACK (failure): {engine} did not accept the change in {path}, and runs with its former
  configuration: {error}
Remedy: fix the cause in the configuration or in the drop-ins of its unit, and run again

ENGINE_DOWN (failure): {engine} does not start, even with its former configuration: {error}
Remedy: read `journalctl -u {engine|UNIT}` on the node, and fix the cause; until then, no container
  starts

CONTAINERD_IMPORT_REPLACES (refusal): containerd {found} ignores the CRI plugin's settings in
  {path}, because imported files replace them: {files}
Remedy: move those settings into the importing file, or register the runtime nvidia in the imported
  file yourself

CONTAINERD_RUNTIME_CONTESTED (refusal): containerd reads {files} after {path}, and takes the
  runtime nvidia from there: {evidence}
Remedy: remove the runtime nvidia from these files, and stop the tool that writes them; for the GPU
  Operator, set `toolkit.enabled=false`

DROP_IN_FORMER (refusal): the drop-in {path} has the format of containerd 1, with which {name} does
  not start again
Remedy: move its settings to `version = 3` and plugins."io.containerd.cri.v1.runtime", or delete the
  file if `nvidia-ctk` or the GPU Operator wrote it

DROP_IN_BEFORE_UPGRADE (notice): the drop-in {path} has the format of containerd {found}, with which
  {name} does not start once it contains containerd 2
Remedy: nothing to do now; before you upgrade {name|k0s} to 1.36, move its settings to `version = 3`
  and plugins."io.containerd.cri.v1.runtime"

RUNTIME_NOT_DETECTED (refusal): {name} ({unit}) does not have the settings that are asked for, and
  the role cannot add them: {evidence}
Remedy: upgrade {name|the distribution}, or let the template of {path|containerd} extend the
  built-in one as the document below shows; add /usr/bin to the PATH of {unit|its unit} if it lacks
  it

OPERATOR_TOOLKIT (refusal): the runtime nvidia of {engine} runs {found}, which the GPU Operator
  installs and registers again whenever its pod starts
Remedy: to leave the node to the GPU Operator, only prove its GPUs with `ansible-playbook
  metal.gpu.verify -e verify_drift=false`; to take it over, follow "Take over, node by node" in
  docs/coexistence.md

KUBESPRAY_OVERWRITES (notice): Kubespray writes {path} anew at each of its runs, and the runtime
  nvidia is then lost
Remedy: add the runtime to `containerd_additional_runtimes` in Kubespray's inventory; see
  docs/coexistence.md

ENGINE_BESIDE (notice): {others} beside {engine}, which the kubelet uses; tools and people can take
  one for the other
Remedy: nothing to do for pods; stop what nobody needs with `systemctl disable --now {unit}`;
  containers that you start there can use GPUs of pods

CDI_UNSUPPORTED (refusal): {engine} {found} cannot read the toolkit's CDI specifications;
  {expected} or newer can
Remedy: update {engine|containerd or CRI-O}; or set `device_plugin_device_list_strategy: envvar`
  (for nodes of both kinds `envvar,cdi-cri`) and `nvidia_container_runtime_cdi: false`;
  docs/troubleshooting.md says what that changes for pods

RUNTIME_UNUSABLE (refusal): {evidence}, although the package manager lists {packages} as installed;
  containers with GPUs do not start, and running ones do not end
Remedy: reinstall with `{command|apt-get install --reinstall nvidia-container-toolkit}`

CDI_FILE_INVALID (notice): container engines skip a CDI specification, because it is not valid:
  {error}
Remedy: correct or remove the file; its devices are missing until then

CDI_FILE_OUTDATED (notice): in the CDI specification {path}, {evidence}; containers that use this
  file may fail to start or get the wrong GPUs
Remedy: write the file again with the program that wrote it, such as `nvidia-ctk cdi generate
  --output={path|FILE}`, or restart the device plugin if it wrote the file

CDI_MIG_EMPTY (notice): {gpus}: MIG mode is on and there is no MIG instance, so the role does not
  generate the CDI specification; NVIDIA's generator fails without an instance
Remedy: create the MIG instances first, for example with the tool that created them before, and run
  again; or switch MIG off with `nvidia-smi -mig 0`

CDI_DEVICE_TWICE (notice): the CDI specifications {paths} both have {names}, so container engines
  use neither of them
Remedy: remove {surplus|the file that is surplus}; `nvidia-ctk cdi list` then shows the devices
  again

CDI_FILE_SHADOWED (notice): the CDI specifications {other} and {path} both have {names}; container
  engines use {path}, but {other} at boot, until {path} is written
Remedy: remove {other|the file in /etc/cdi}, unless you keep it on purpose; no driver upgrade writes
  it again

CDI_GPU_GONE (notice): the CDI specification {path} names GPUs that the node no longer has: {uuids}
Remedy: write the file again with the program that wrote it, such as `nvidia-ctk cdi generate
  --output={path|FILE}`, or restart the device plugin if it wrote the file

GPUS_LOST_BY_RELOAD (notice): these steps let systemd reload its units: {steps}; containers that got
  their GPUs by the hook of the NVIDIA runtime may lose them: {containers}; {evidence}
Remedy: before the run, run `nvidia-ctk system create-dev-char-symlinks --create-all` on the node;
  or recreate these containers after it

RELOAD_TAKES_GPUS (refusal): these steps let systemd reload its units: {steps}; containers that got
  their GPUs by the hook of the NVIDIA runtime may lose them: {containers}; {evidence}
Remedy: run again when these containers have ended; or set `{permission|nvidia_driver_reboot_ok}:
  true`: the role then goes on, and they may need a restart

DOCKER_RESTART_DUE (notice): Docker {found} may not support {unknown} until its next start
Remedy: nothing to do for pods; for other containers, run `systemctl restart docker` when they may
  stop, or set `nvidia_container_runtime_restart_ok: true`

SWARM_RESOURCE_SET (notice): {path} has swarm-resource with {names}, so NVIDIA's runtime gives a
  container with such a variable the GPUs that it names, whatever the container requests, and also
  if the guard of the cluster has set NVIDIA_VISIBLE_DEVICES to void
Remedy: if no Docker Swarm gives out the GPUs of this node, remove swarm-resource from
  {path|/etc/nvidia-container-runtime/config.toml}; it counts for containers that start from then on

TOOLKIT_OF_ADMIN (notice): container toolkit {found} stays: no record says that this collection
  installed it
Remedy: nothing to do; to remove it, purge its packages yourself

TOOLKIT_KEPT (notice): container toolkit {found} is kept (nvidia_container_runtime_version asks for
  {expected})
Remedy: nothing to do; to upgrade an older one, set `nvidia_container_runtime_upgrade_ok: true`

TOOLKIT_HELD (notice): container toolkit {found} is kept, because an admin holds {packages}
  (nvidia_container_runtime_version asks for {expected})
Remedy: nothing to do; to change the version, remove the hold (`apt-mark unhold`, `dnf versionlock
  delete`), and run again

TOOLKIT_TOO_OLD (refusal): the role needs container toolkit {expected} or newer, and an admin has
  installed {packages} (installed: {found})
Remedy: update the packages yourself; or set `nvidia_container_runtime_upgrade_ok: true`, remove a
  hold (`apt-mark unhold`, `dnf versionlock delete`), and run again

REGISTRY_UNSUPPORTED (refusal): {engine} does not have what registries_hosts asks for {registry}:
  {reason}
Remedy: change the item for {registry|the registry}; docs/registries.md has what each engine can do

REGISTRY_CONFLICT (refusal): {path} has mirrors or certificates of {found}; beside the folder of
  hosts.toml files, containerd would not load its CRI plugin
Remedy: add these to registries_hosts, remove their tables from {path|containerd's configuration},
  and run again

REGISTRY_PATH_UNSET (refusal): the containerd of {name} reads no folder of hosts.toml files, and
  {name} generates {path}
Remedy: add a drop-in with `config_path = "{folder|/etc/containerd/certs.d}"` in the table registry
  of the CRI plugin, wait until {name|the distribution} has applied it, and run again

REGISTRY_PATHS_UNREAD (refusal): {path} has the config_path {found}, of which containerd {version}
  reads nothing: its transfer service takes the list for the name of one folder
Remedy: remove config_path from it, or set it to one folder and move the others into it; or set
  `use_local_image_pull = true` in the images table of the CRI plugin; then restart containerd

REGISTRY_TAKEN (refusal): {path} has other values than registries_hosts: {keys}
Remedy: remove these keys from {path|the file}, or change registries_hosts to their values

REGISTRY_FIRST (refusal): {path} names {server}, so containerd asks the registry {registry} itself
  before the mirrors of registries_hosts, or without fallback at all
Remedy: remove the table `host` of {server|the registry} from {path|its hosts.toml}; if Kubespray
  writes the file, its variable containerd_registries_mirrors has the registry, by default
  docker.io: give that variable the mirrors instead, and remove {registry|the registry} from
  registries_hosts

REGISTRY_FILE_READABLE (refusal): {path} has mode {mode}, so users of the node could read the login
  in it
Remedy: run `chmod 600 {path}` on the node

REGISTRY_FOLDER_TAKEN (refusal): {folder} has {files}; containerd ignores these files once the
  folder has a hosts.toml
Remedy: set their content as ca, client_certificate and client_key of the registry in
  registries_hosts, and remove the files

REGISTRY_LOGIN_HELPER (refusal): {path} gives the logins of {registries} to a program, so Docker
  would not read a login there
Remedy: remove credsStore or the entries of credHelpers from {path|/root/.docker/config.json}, or
  remove username and password from registries_hosts and log in with the program

REGISTRY_LOGINS_HIDDEN (refusal): {path} has logins of {registries}, which CRI-O would no longer
  use: with the global_auth_file that a login of registries_hosts needs, it reads no other file
Remedy: add these logins to registries_hosts; or set `global_auth_file` of CRI-O to {path|the file
  with these logins} or to a copy of it with mode 0600, restart CRI-O, and run again

KUBELET_LOGINS_HIDDEN (refusal): {path} has logins of {registries}, which the kubelet would no
  longer use: it reads one file of logins, and {own}, which a login of registries_hosts needs, comes
  first
Remedy: add these logins to registries_hosts; or run `install -m 600 {path|FILE}
  {own|/var/lib/kubelet/config.json}` on the node, and run again

KUBELET_LOGINS_OF_ROOT (notice): {path} has logins of {registries}, which a kubelet with the home of
  root no longer uses: it reads one file of logins, and {own} comes first
Remedy: run `grep -z ^HOME= /proc/$(pidof kubelet)/environ` on the node; if it prints /root, add
  these logins to registries_hosts; otherwise the kubelet has never used them

REGISTRIES_RESTART (refusal): {name} reads {path} only when it starts, and a restart of {unit} is
  not permitted
Remedy: set `registries_restart_ok: true`; the restart also restarts the kubelet of the node, and
  its pods keep running

REGISTRIES_RESTART_DUE (notice): {engine} keeps the former settings of registries until its next
  start
Remedy: run `systemctl restart {unit}` when its containers may stop

REGISTRY_UNREACHABLE (failure): the node cannot use {what}: {error}
Remedy: run `curl -v` with its address on the node; correct the address in registries_hosts, the
  name service or the firewall; if the node needs a proxy for it, set `registries_check: false`

REGISTRY_UNTRUSTED (failure): the node does not trust the certificate of {what}{issuer}: {error}
Remedy: set ca in registries_hosts to the certificate of that CA, and use a name of the server that
  its certificate has

REGISTRY_CERTIFICATE_EXPIRED (failure): the certificate of {what} is not valid now: {error}
Remedy: renew the certificate of the registry; if it is valid, compare `date` on the node

REGISTRY_LOGIN_REFUSED (failure): {what} refuses the login: {error}
Remedy: correct username and password, or client_certificate and client_key, in registries_hosts, or
  the pull secret of the pod

REGISTRY_LOGIN_MISSING (failure): {what} needs a login, and has got none, or a wrong one: {error}
Remedy: set or correct username and password in registries_hosts, or give the pod a pull secret;
  registries also say this of an image that they do not have, so check its name

REGISTRY_TOKEN_ONLY (failure): {what} accepts the login only at its service of tokens; containerd
  before 2.1 sends the login of a mirror in a header, and asks for no token
Remedy: allow pulls without a login at the mirror, or allow Basic authentication there, or upgrade
  containerd to 2.1 or later

IMAGE_PLATFORM_MISSING (failure): the image {what} does not exist for the architecture of the
  node: {error}
Remedy: publish the image for this architecture too (`docker buildx build --platform`), copy it for
  all architectures to a mirror (`skopeo copy --all`), or set {setting|the variable of the image} to
  another image

IMAGE_DIGEST_DIFFERS (failure): the node gets other content than {what} has by its digest: {error}
Remedy: delete the image from the mirror, and copy it there again; a proxy on the way that changes
  content has the same effect

# --- packages -------------------------------------------------------------------------------------

PACKAGE_MANAGER_BUSY (notice): {command} (process {pid}) holds the package manager's lock; the run
  waits up to {seconds} s
Remedy: nothing to do

PACKAGE_MANAGER_LOCKED (failure): {command} (process {pid}) held the package manager's lock for more
  than {seconds} s
Remedy: find what that process waits for, let it end, and run again; or set metal_gpu_lock_timeout
  higher; never remove the lock

DPKG_INTERRUPTED (failure): dpkg was interrupted during an operation
Remedy: run again: the next run starts with `dpkg --configure -a`

PACKAGES_UNFINISHED (refusal): dpkg could not finish installing packages, so every further
  installation fails: {packages}
Remedy: {way|fix the error in the build log (missing headers: `apt-get install linux-headers-$(uname
  -r)`)}, then run `dpkg --configure -a`; or remove the packages with `apt-get purge
  {names|PACKAGE}`

PACKAGES_NEEDED (refusal): the removal of {needed} would also remove packages that this collection
  did not install: {packages}
Remedy: if you do not need these packages, remove them yourself with the package manager's `remove
  {names|PACKAGE}`, and run again

PACKAGES_HELD (refusal): the installation would change or remove packages that an admin holds:
  {packages}
Remedy: to permit that, remove the hold (`apt-mark unhold {names|PACKAGE}`, `dnf versionlock delete
  {names|PACKAGE}`), and run again

PACKAGES_UNHELD (notice): an upgrade of the system can replace these packages, because this
  collection neither installed nor holds them: {packages}
Remedy: nothing to do; to hold their versions, run `{command|apt-mark hold PACKAGE}`

PACKAGES_EXCHANGED (notice): these packages stay and are no longer held: {staying}; an admin changed
  packages that this collection installed with them: {packages}
Remedy: nothing to do; to remove them, remove all of these packages yourself

PACKAGE_RECORD_INVALID (refusal): cannot read which packages this collection installed: {error}
Remedy: correct {path|the file in /var/lib/metal-gpu/packages}; or delete it, and do what
  RECORD_MISSING says then: the role treats the packages as the admin's, and neither holds nor
  removes them

RECORD_MISSING (refusal): this collection wrote {files}, but its records in /var/lib/metal-gpu are
  missing, so nothing shows which packages it installed, and what was there before{left}
Remedy: restore /var/lib/metal-gpu from a backup of the node; or take over what is there: run
  `{command|rm -f FILE}` on the node, and run again: the roles then treat the packages as the
  admin's

URL_INVALID (refusal): the URL of {what} cannot be used: {error}
Remedy: correct the variable with this URL, and run again

KEY_UNKNOWN (refusal): the repository's key {key} has no confirmed fingerprint
Remedy: look at the key with `gpg --show-keys`, confirm its fingerprint with the publisher over
  another channel, and set the role's *_repository_fingerprint

REPOSITORY_FILE_FOREIGN (refusal): the role does not overwrite or delete {path}: {error}
Remedy: move the entries that you need to another file, delete {path|the file}, and run again

REPOSITORY_UNSIGNED (refusal): signature checks are off for the repository {url}: {files}
Remedy: remove these options from the files; or delete the files, and run again: the role then adds
  the repository with its pinned key

REPOSITORY_UNUSED (notice): {role}_repository is false, so the role does not use {names}
Remedy: remove what it does not use; or set `{role}_repository: true`, if this role shall use the
  repository nevertheless (the default is metal_gpu_repository)

REPOSITORY_KEPT (notice): {role}_repository is false, and the package manager still reads the
  repository that this collection added before: {paths}
Remedy: if other sources of the node have its packages, {way|remove the file of the role's
  repository}; or set `{role}_repository: true`, if this role shall use the repository (the default
  is metal_gpu_repository)

EPEL_MISSING (refusal): dkms, which builds the driver's module, is not installed, and EPEL, which
  has it, is not enabled
Remedy: enable EPEL (`dnf install epel-release` on Rocky Linux and AlmaLinux; on RHEL, also
  codeready-builder), or install dkms from another repository

REPOSITORY_UNTRUSTED (failure): the repository {url} is not trusted: {error} (key: {key}; pinned
  key: {pinned})
Remedy: ask the publisher over another channel which key is right; for a new key, set the role's
  *_repository_key and *_repository_fingerprint; for an outdated mirror, renew its signature; if dnf
  says only `Bad GPG signature`, compare `date` on the node with the real time first

REPOSITORY_KEY_WEAK (failure): apt does not accept the key of the repository {url}, although it is
  the right one: {error} (key: {key})
Remedy: the publisher has to sign the key again; until then, set the role's *_repository_url,
  *_repository_key and *_repository_fingerprint to a mirror with another key

REPOSITORY_CLOCK (failure): the repository {url} is not valid at the time of the node: {error}
Remedy: compare `date` on the node with the real time, and correct the clock; if it is right, renew
  the mirror

REPOSITORY_INCOMPLETE (failure): the files of the repository {url} do not match its index: {error}
Remedy: wait until the synchronisation of the mirror has ended, and run again

REPOSITORY_UNREACHABLE (failure): the repository {url} cannot be used: {error}
Remedy: check the address with `curl` on the node, and its proxy and name server; to use a mirror,
  set the role's *_repository_url

REPOSITORY_TWICE (failure): apt reads no source, because these files give {url} {suite} different
  values of {option}: {files}
Remedy: keep one of these files, or give all of them the same {option|value of the option, such as
  Signed-By}

REPOSITORY_REMOVED (notice): the run removed the repository {name}, which it had just added
Remedy: nothing to do; with an unusable repository, every later run of the package manager would
  fail

PACKAGE_VERSION_MISSING (failure): no enabled repository has {package}; available versions: {found}
Remedy: add a repository that has it; or {setting|if the role has a variable for its version, set
  that to an available version}; if the role's *_repository is false, it uses the sources of the
  node alone

DEPENDENCY_MISSING (failure): no enabled repository has {needed}
Remedy: enable the repository that has it, and run again; for the driver on Red Hat's distributions,
  that is BaseOS, AppStream or EPEL (`dnf install epel-release` on Rocky Linux and AlmaLinux), and
  on RHEL also codeready-builder; or copy the package into a source of your own

KERNEL_OUTDATED (failure): the repositories have no packages of the driver for the running kernel
  {kernel}: {error}
Remedy: upgrade the kernel of the node, reboot, and run again; or add a repository that has these
  packages for the kernel {kernel|of the node}

PACKAGE_SOURCES (notice): several sources have {packages}: {sources}; {manager} takes {winner}
Remedy: nothing to do; to take another source, set its priority (for apt in /etc/apt/preferences.d,
  for dnf as `priority=` in its .repo file), or remove the source that you do not need

PACKAGES_DISPLACED (failure): the installation of {installed} would remove packages that the plan
  does not name: {packages}
Remedy: if you do not need these packages, add them to metal_gpu_removable_packages, and run again;
  nothing is removed yet

PACKAGES_UNCONFIGURED (failure): dpkg could not finish installing a package: {error}
Remedy: remove the cause that the message or the build log names (missing headers: `apt-get install
  linux-headers-$(uname -r)`), then run `dpkg --configure -a`, and run again

DISK_FULL (failure): a disk of the node has no space for the packages: {error}
Remedy: free some space (`df -h` and `df -i` show which disk is full), run `dpkg --configure -a` if
  the node has dpkg, and run again

PACKAGES_FAILED (failure): the package manager failed: {error}
Remedy: run the same command on the node; with `-v`, the failed task shows everything that it
  printed

# --- kubelet and device plugin --------------------------------------------------------------------

KUBELET_MISSING (refusal): the kubelet is not installed
Remedy: install the kubelet, join the node to the cluster with `kubeadm join`, and run again; for a
  Docker host without Kubernetes, set `metal_gpu_engine: docker` and run `metal.gpu.docker_hosts`

KUBELET_CONFIG_INVALID (refusal): the kubelet's configuration is not valid: {error}
Remedy: correct the file; the role did not change it

KUBELET_NOT_BACK (failure): the kubelet did not start with its new settings, and runs with its
  former ones: {error}
Remedy: fix the cause in the kubelet's configuration or in the drop-ins of its unit, and run again

KUBELET_DOWN (failure): the kubelet does not start: {error}
Remedy: read `journalctl -u kubelet` on the node, and fix the cause

DEVICE_PLUGIN_FOREIGN (refusal): the cluster already runs a device plugin for nvidia.com/gpu as
  {found}
Remedy: set `device_plugin_foreign: adopt` and `device_plugin_adopt: {found|NAMESPACE/NAME}` to use
  that one, or remove it (with Helm: `helm uninstall`); two plugins for one resource take GPUs from
  each other

DEVICE_PLUGIN_NAME_TAKEN (refusal): the DaemonSet {found} exists, but is neither this collection's
  nor NVIDIA's device plugin
Remedy: set device_plugin_name or device_plugin_namespace to another name

OPERATOR_INSTALLS (notice): the DaemonSet {found} of the GPU Operator selects nodes that this
  collection prepares ({hosts}); both install the same
Remedy: set `{value|driver.enabled}=false` in the values of the GPU Operator; see
  docs/coexistence.md

DEVICE_PLUGIN_TWICE (refusal): the cluster runs a device plugin for nvidia.com/gpu as {found}; they
  take GPUs from each other
Remedy: keep only one of them; `device_plugin_state: absent` removes the one of this collection

DEVICE_PLUGIN_ADOPTED (notice): the device plugin runs as {found}; the role uses it and does not
  change it
Remedy: nothing to do

DEVICE_PLUGIN_STRATEGY (refusal): device_plugin_device_list_strategy is {strategy}, but {evidence}
Remedy: {remedy|remove device_plugin_device_list_strategy, so that the role chooses one that the
  engine supports}

DEVICE_PLUGIN_VARIABLE (refusal): {name} {error}
Remedy: correct the variable; `ansible-doc -t role metal.gpu.device_plugin` describes it

DEVICE_PLUGIN_EXCLUDES (refusal): device_plugin_affinity keeps the device plugin off the node
  {node}: it requires {affinity}
Remedy: set a matching label on the node, or change device_plugin_affinity; to leave out the node,
  remove it from the group

DRA_WITHOUT_CDI (refusal): the driver for dynamic resource allocation (DRA) {driver} runs on the
  node, where pods would start without its devices: {reason}
Remedy: keep the DRA driver off the node, with its node affinity; or move the node to containerd 2

DEVICE_PLUGIN_MIXED (refusal): one device plugin cannot serve all nodes with these settings:
  {evidence}
Remedy: set `nvidia_container_runtime_default: true`, `device_plugin_device_list_strategy: envvar`
  and `device_plugin_runtime_class: ''` for all nodes

RUNTIME_CLASS_OTHER (refusal): the RuntimeClass {name} has the handler {found}; the device plugin
  needs the handler {expected}
Remedy: set device_plugin_runtime_class to another name, such as nvidia-gpu; the role does not
  change the existing RuntimeClass

GUARD_NAME_TAKEN (refusal): the cluster has a {kind} {name} that this collection did not create; the
  guard of the device plugin needs the name
Remedy: rename or delete the policy, `kubectl get {kind|validatingadmissionpolicy}
  {name|metal-gpu-guard} --output yaml`; or set `device_plugin_guard: none`

GUARD_WARNS (notice): nvidia is the default runtime of nodes of this run, and the guard only warns:
  a pod still gets all GPUs of its node without a request. It leaves alone: {namespaces}
Remedy: look at the warnings of kubectl and in the audit log; then set
  `device_plugin_guard: enforce`, or `warn` to keep it so without this notice

GUARD_CHANGED (notice): the guard of the cluster changes for pods that are created from now on:
  {changes}
Remedy: nothing to do; to look first which pods it would reject, set `device_plugin_guard: warn`

GUARD_EXEMPTS (refusal): the guard would leave more namespaces alone, since a device plugin or a GPU
  Operator runs there: {namespaces}. Whoever may create pods there would get every GPU
Remedy: if you trust everybody who may create pods there, add them to
  device_plugin_guard_exempt_namespaces

GUARD_UNSUPPORTED (notice): the cluster does not have {kinds} in version v1, so its API server
  cannot keep GPUs from pods that request none
Remedy: update Kubernetes, or see "Without admission policies" in docs/isolation.md; to accept it,
  set `device_plugin_guard: none`

NODE_LABEL_TAKEN (refusal): the node {node} has the label {found}; device_plugin_node_selector asks
  for {expected}
Remedy: if the device plugin may run there, remove the label with `kubectl label node {node}
  {key|LABEL}-`; otherwise remove the node from the group

LABEL_OF_ADMIN (failure): the device plugin stays on this node, because this collection did not set
  the label {label}, and other nodes still need the plugin: {others}
Remedy: remove the label with `kubectl label node NODE KEY-`, or remove the plugin from all nodes at
  once

ROLLOUT_STUCK (failure): the device plugin is not ready after {seconds} s: {found}
Remedy: run `kubectl describe pod` and `kubectl logs` for the pod; `could not load NVML library` in
  its log means that the NVIDIA runtime did not start it

RUN_STOPPED (failure): the run stopped here at {task!r}: {error}
Remedy: fix the error, and run again; the next run does not repeat finished steps

ROLLOUT_HALTED (stop): not started, because earlier nodes failed: {others}
Remedy: fix these nodes, or leave them out with `--limit`, and run again

# --- teardown -------------------------------------------------------------------------------------

GPUS_IN_USE (refusal): pods hold GPUs: {pods}
Remedy: set `teardown_drain: true` to evict the pods that a controller recreates, and delete the
  others yourself

GPU_PODS_STAY (refusal): pods with GPUs must not be evicted: {pods}
Remedy: delete these pods, or their DaemonSet, or a device plugin that is not of this collection,
  yourself

# --- verdict --------------------------------------------------------------------------------------

NVML_UNAVAILABLE (failure): the driver does not answer: {error}
Remedy: {remedy|run `nvidia-smi` and `dmesg | grep -iE 'nvrm|nvidia'` on the node, and give the line
  that tells the cause to `metal-gpu explain`; without a driver, run `ansible-playbook
  metal.gpu.site --tags driver`}

NVML_COUNT_DIFFERS (failure): the PCI bus has {pci} GPUs, but the driver shows {nvml}; missing:
  {addresses}{log}
Remedy: {remedy|read `dmesg | grep -iE 'nvrm|nvidia'` on the node, and give the lines to `metal-gpu
  explain`; drain the node and reboot it; replace a GPU that falls off the bus again (Xid 79)}

NVML_CONTRADICTS (failure): nvidia-smi contradicts itself or the PCI bus: {evidence}
Remedy: compare `nvidia-smi -L` with `lspci -d 10de:` on the node; if they still differ, reboot it

NVML_TROUBLE (failure): nvidia-smi shows GPUs, but reports a problem: {error}
Remedy: {remedy|run `nvidia-smi` and `dmesg | grep -i nvrm` on the node, and find the text in the
  table of the reference}

GPU_FAULTY (failure): {gpus} {report}: {error}{log}
Remedy: drain the node and reboot it; if the error asks for a reset, `nvidia-smi --gpu-reset -i
  INDEX` can replace the reboot; {again|replace a GPU that is lost again}

GPU_UNRELIABLE (failure): {gpu} cannot be relied on, by its own report: {evidence}{log}
Remedy: {remedy|drain the node, and reset the GPU with `nvidia-smi --gpu-reset -i INDEX`, or reboot;
  if it reports the same again, replace the GPU}

GPU_RESET_DUE (notice): {gpus}: at the next reset, {words}; programs can continue until then
Remedy: when it suits you, {remedy|drain the node, and reset the GPU with `nvidia-smi --gpu-reset -i
  INDEX`, or reboot}

GPU_ACTION_DUE (notice): the driver asks for an action that is no repair of {gpus}: {words}
Remedy: {remedy|read `nvidia-smi -q | grep -A2 'Recovery Action'` on the node, and do what NVIDIA's
  documentation says about this action}

GPU_THROTTLED (notice): the hardware slows down {gpus} at this moment: {reason}
Remedy: check the fans, the air flow and the power supplies of the machine; `nvidia-smi -q -d
  PERFORMANCE,TEMPERATURE,POWER` shows whether it lasts

PCIE_LINK_DIFFERS (notice): the PCIe link of a GPU is slower than that of identical GPUs of this
  node: {evidence}
Remedy: drain the node, switch it off, and seat the card and its riser again; if the machine is
  wired like that, ignore this notice

VGPU_UNLICENSED (failure): virtual GPUs have no license, so they are slow, and CUDA programs fail
  after a while: {gpus}: {words}
Remedy: run `journalctl -u nvidia-gridd` on the node, and give it a license: a token in
  /etc/nvidia/ClientConfigToken, or the server in /etc/nvidia/gridd.conf, and `systemctl restart
  nvidia-gridd`

COMPUTE_PROHIBITED (failure): {gpus}: the compute mode is {mode}, so every CUDA program fails with
  error 46
Remedy: run `nvidia-smi -c DEFAULT` on the node, and remove what sets the mode at boot

COMPUTE_EXCLUSIVE (notice): {gpus}: the compute mode is {mode}, so a second CUDA program on the same
  GPU fails with error 46
Remedy: run `nvidia-smi -c DEFAULT` on the node, and remove what sets the mode at boot; if you set
  it for MPS, ignore this notice

MIG_EMPTY (failure): {gpus}: MIG mode is on and there is no MIG instance, so no program can compute
Remedy: create the instances again, for example with the tool that created them before; or switch
  MIG off with `nvidia-smi -mig 0`; then restart the pods of the device plugin on this node

MIG_MODE_PENDING (notice): {gpus}: the MIG mode changes with the next reset or boot ({modes}), and
  with it the resources of the node
Remedy: drain the node and reboot it; or take the change back with `nvidia-smi -mig 0` or `-mig 1`

GPU_HEALTH_UNKNOWN (failure): {gpus} did not report health and fabric: {error}
Remedy: run `nvidia-smi -q -x | tail` on the node; if it hangs or stops there, read `dmesg`, drain
  the node and reboot it; otherwise run `ansible-playbook metal.gpu.verify` again

GPU_ERROR_LOGGED (failure): the driver logged errors after which {gpu} cannot be relied on: {errors}
Remedy: {remedy|drain the node, and reset the GPU with `nvidia-smi --gpu-reset -i INDEX`, or reboot;
  if the error comes back, replace the GPU; `metal-gpu explain XID_79` tells more of a number}

NVSWITCH_ERROR_LOGGED (failure): the driver logged fatal errors of the NVSwitch {address}: {errors}
Remedy: drain the node, and reboot it; if the error returns, check the links of the GPUs with
  `nvidia-smi nvlink --status`, and have the NVSwitch replaced

XID_UNKNOWN (notice): the driver logged errors of {gpu} whose consequences are not known: {errors}
Remedy: search for the number in NVIDIA's Xid catalogue, https://docs.nvidia.com/deploy/xid-errors/;
  if programs fail on this GPU, drain the node and reboot it

KERNEL_LOG_UNREADABLE (notice): the kernel log, which could explain this, {extent}: {error}
Remedy: run `dmesg` and `journalctl --dmesg --boot` as root on the node

CUDA_UNAVAILABLE (failure): programs cannot use CUDA: {evidence}
Remedy: as root, run {commands|`nvidia-modprobe -u -c=0`} on the node, or `/sbin/ub-device-create`
  with Ubuntu's own driver, which creates the device files, then `systemctl restart
  nvidia-cdi-refresh.service`; if a file of a GPU is still missing, run `nvidia-smi` as root, and
  then reboot the node

DEVICE_FILE_BLOCKED (stop): {evidence}, and not the device file of the driver, so programs cannot
  use the GPUs
Remedy: stop the container or the program that uses this path, remove it with {commands|`rmdir` or
  `rm`}, and run again

DEVICE_FILE_OUTDATED (failure): {evidence}, so programs that open the file fail
Remedy: as root, run {commands|`rm /dev/nvidia-uvm*` and `nvidia-modprobe -u -c=0`} on the node, or
  with Ubuntu's own driver, remove the file and run `/sbin/ub-device-create`; then run `systemctl
  restart nvidia-cdi-refresh.service`, and restart the containers that use the file

FABRIC_MANAGER_MISSING (failure): {switches} connect the GPUs, but Fabric Manager is not
  installed, so CUDA programs fail with error 802
Remedy: run `ansible-playbook metal.gpu.site --tags driver --limit {host}`; for a driver that the
  role does not install, install Fabric Manager {version|in the version of the driver} from the same
  source, and run `systemctl enable --now nvidia-fabricmanager`

FABRIC_MANAGER_STOPPED (failure): nvidia-fabricmanager.service does not run ({state}), but
  {switches} connect the GPUs, so CUDA programs fail with error 802, at the latest after the next
  reset of a GPU{log}
Remedy: read `journalctl -u nvidia-fabricmanager` and /var/log/fabricmanager.log on the node, and
  start it with `systemctl enable --now nvidia-fabricmanager`; if CUDA still fails, drain the node
  and reboot it

SUBNET_MANAGER_STOPPED (failure): Fabric Manager runs, but nvlsm does not, so nothing configures the
  {switches} that connect the GPUs: CUDA programs fail with error 802, at the latest after the next
  reset of a GPU{log}
Remedy: read `journalctl -u nvidia-fabricmanager` and /var/log/nvlsm.log on the node, then drain it
  and reboot it

FABRIC_MANAGER_VERSION (failure): Fabric Manager {found} does not work with driver {version}: it
  needs exactly the version of the driver{log}
Remedy: drain the node, install Fabric Manager {version|in the version of the driver}, hold it with
  the driver, and run `systemctl restart nvidia-fabricmanager`

FABRIC_NOT_READY (failure): the fabric of the GPUs is not ready, so CUDA programs fail with error
  802: {states}{log}
Remedy: {remedy|read `nvidia-smi -q | grep -A 3 Fabric`, `journalctl -u nvidia-fabricmanager` and
  /var/log/fabricmanager.log on the node; if Fabric Manager runs, drain the node and reboot it,
  because a restart alone does not train the GPUs again}

FABRIC_UNHEALTHY (failure): the driver reports that the NVLink fabric of GPUs is not healthy:
  {states}{log}
Remedy: read `nvidia-smi -q | grep -A 12 Fabric` and `nvidia-smi nvlink --status` on the node; drain
  the node and reboot it; if the state returns, have the NVLinks and the NVSwitches checked

KUBELET_STOPPED (failure): the kubelet is not running: {error}
Remedy: read `journalctl -u {unit}` on the node, and start it with `systemctl start {unit}`

ENGINE_STOPPED (failure): {unit}.service is not running, so no container can start
Remedy: read `journalctl -u {unit}` on the node, and start it with `systemctl start {unit}`

DRIFTED (failure): {component} has drifted; steps to correct it: {reasons}
Remedy: run `ansible-playbook metal.gpu.site --check --diff --limit {host}` to see the change, and
  without `--check --diff` to make it; if another tool manages the node, set `verify_drift: false`

CLUSTER_UNKNOWN (failure): the API server reported nothing about the Kubernetes node {node}
Remedy: run `kubectl get node {node}`, then `ansible-playbook metal.gpu.verify` again

NODE_NOT_READY (failure): the Kubernetes node {node} is not ready: {error}
Remedy: run `systemctl status kubelet` on the node, and check the pod of its network plugin;
  capacity and allocatable of this node may be outdated

CAPACITY_DIFFERS (failure): the node has {expected} GPUs, but its capacity in the cluster is
  {found}{evidence}
Remedy: read the log of the device plugin's pod on this node

ALLOCATABLE_DIFFERS (failure): the node has {expected} GPUs, but the cluster can allocate
  {found}{evidence}
Remedy: read the log of the device plugin's pod on this node, and `kubectl describe node`

GPU_RESOURCES_DIFFER (failure): the node must have {expected}, but it has {found}{evidence}
Remedy: if its GPUs are shared or split on purpose, set gpu_expected for this node to what it must
  have, for example `gpu_expected: {{nvidia.com/gpu: 40}}`; otherwise correct the configuration of
  the device plugin, and read the log of its pod on this node

KUBELET_DEVICES_OUTDATED (notice): the kubelet still has registered GPUs that the node no longer has
  ({path}): {uuids}
Remedy: check that the device plugin runs on the node; if it does, delete its pod, so that it
  registers again

GPU_UUID_TWICE (failure): {others} reports GPUs with the same UUIDs: {uuids}
Remedy: check whether the inventory has one machine under two names: compare
  `cat /sys/class/dmi/id/product_uuid` on both; otherwise ask the vendor, because a UUID is unique

GPU_REPLACED (notice): the GPU at {address} is {uuid}; at {date} it was {former}
Remedy: nothing to do if the card was replaced or moved; otherwise compare the serial numbers with
  `nvidia-smi --query-gpu=pci.bus_id,serial --format=csv`

GPU_GONE (failure): the GPU {uuid} at {address}, which was there at {date}, is no longer on the PCI
  bus
Remedy: check its seating and its power; if the card was removed on purpose, set `gpu_count:
  {found|NUMBER}` for this host: the next run then forgets the card

GPU_REMOVED (notice): the GPU {uuid} at {address}, which was there at {date}, is no longer on the
  PCI bus, which has the {found} GPUs of gpu_count
Remedy: nothing to do if the card was removed on purpose: the report in verify_report forgets it now

REPORT_UNUSABLE (notice): the report {path} cannot be {done}: {error}
Remedy: correct verify_report, or move the file away; the verdicts do not depend on it

NODE_CLOCK_OFF (notice): the clock of the node is {seconds} s {way} that of the API server, so
  certificates and Leases may count as expired, or as not yet valid
Remedy: run `timedatectl` on the node, and start its time service, such as chrony or
  systemd-timesyncd; if the node is right, correct the clock of the control plane

NODE_CORDONED (notice): the node is cordoned {by}, so the scheduler starts no pods there
Remedy: run `kubectl uncordon {node}` when pods may start there; a cordon of this collection is left
  of a run that did not prove the node, and `ansible-playbook metal.gpu.site` undoes it when it does

DRA_DRIVER_BESIDE (failure): the device plugin {plugin} and the driver for dynamic resource
  allocation {driver} both hand out the GPUs of this node, so two pods can get the same GPU
Remedy: let only one of them run on this node: with a node selector, or with
  `resources.gpus.enabled: false` in the values of the driver's chart

DEVICE_PLUGIN_MISSING (failure): {counted}; the cluster has no DaemonSet of a device plugin
Remedy: deploy it with `ansible-playbook metal.gpu.site --tags device_plugin`

DEVICE_PLUGIN_NOT_SELECTED (failure): {counted}; the device plugin {daemonset} runs on nodes with
  the label {labels}, but this node {found}
Remedy: set the label with `kubectl label --overwrite node {node} {labels|LABEL=VALUE}`, or change
  the node selector of the DaemonSet

DEVICE_PLUGIN_AFFINITY (failure): {counted}; the node affinity of the device plugin {daemonset}
  excludes this node: it requires {affinity}
Remedy: set a matching label on the node {node|itself}, or change the affinity with `kubectl
  --namespace {namespace} edit daemonset {name}`

DEVICE_PLUGIN_IMAGE_UNAVAILABLE (failure): {counted}; the node cannot pull the image of the device
  plugin {pod}: {error}
Remedy: set device_plugin_image and device_plugin_version to an image that this node can pull; if
  the registry needs credentials, set device_plugin_image_pull_secrets

DEVICE_PLUGIN_NOT_STARTED (failure): {counted}; the container of the device plugin {pod} does not
  start: {error}
Remedy: read `kubectl --namespace {namespace} describe pod {name}`

DEVICE_PLUGIN_CRASHES (failure): {counted}; the device plugin {pod} crashes repeatedly: {error}
Remedy: read `kubectl --namespace {namespace} logs {name} --previous`

DEVICE_PLUGIN_BLIND (failure): {counted}; the device plugin {pod} sees no GPU: {error}
Remedy: check that `nvidia-smi` works on the node; then register the NVIDIA runtime, which starts
  this pod, with `ansible-playbook metal.gpu.site --tags runtime,device_plugin`

DEVICE_PLUGIN_UNREGISTERED (failure): {counted}; the kubelet does not accept the device plugin
  {pod}: {error}
Remedy: remove any second device plugin from the node, then run `systemctl restart kubelet` on it;
  the plugin registers again by itself

DEVICE_PLUGIN_HANGS (failure): the kubelet of {node} has not begun with {what} for {seconds} s,
  although it reports: the device plugin does not answer, or the kubelet crashes again and again
Remedy: read `journalctl -u kubelet` on the node; if it does not crash, delete the pod of the device
  plugin there, which `kubectl get pods --all-namespaces --field-selector spec.nodeName={node}`
  lists; if that does not help, run `systemctl restart kubelet` on the node

GPU_UNHEALTHY (failure): {counted}; the device plugin {pod} logged: {error}
Remedy: look for Xid messages with `dmesg | grep -i xid` on the node, and reset or replace the GPU;
  only after that, run `kubectl --namespace {namespace} delete pod {name}`: while a GPU is lost, a
  new plugin pod does not start, and the node loses its other GPUs

SMOKE_FAILED (failure): a smoke pod with {asked} GPUs failed: {error}
Remedy: run `nvidia-smi` on the node, and `kubectl describe pod` for a pod with GPUs on it

SMOKE_IMAGE_UNAVAILABLE (failure): the node cannot pull the image of the smoke pod: {error}
Remedy: set {setting|verify_compute_image or verify_smoke_image} to an image that this node can
  pull; if the registry needs credentials, set verify_smoke_image_pull_secrets

COMPUTE_FAILED (failure): no CUDA program computes on {gpus}: {error}{number}; likely cause: {cause}
Remedy: {remedy|give the last words of the program to `metal-gpu explain`, such as `metal-gpu
  explain 'CUDA error 802'`; look for Xids with `dmesg | grep -i xid` on the node}

COMPUTE_WRONG (failure): a CUDA program gets wrong results on {gpus}: {error}
Remedy: do not use the GPU: drain the node, or stop the containers on a Docker host; run NVIDIA's
  field diagnostic, and replace the GPU if it fails

COMPUTE_IMAGE_UNFIT (failure): the CUDA program of the image {image} does not fit this node, which
  proves nothing about its GPUs: {error}
Remedy: set verify_compute_image to an image with vectorAdd for the driver and the GPUs of this
  node, or `verify_level: list`

COMPUTE_IMAGE_UNKNOWN (failure): no known image of a CUDA program fits the driver {driver} and the
  GPUs of this node ({gpus})
Remedy: set verify_compute_image to an image with vectorAdd that fits, or `verify_level: list`

COMPUTE_PROGRAM_MISSING (failure): the image {image} has no shell, or no vectorAdd to compute with
Remedy: set verify_compute_image to an image with vectorAdd in /cuda-samples, such as
  {default|NVIDIA's sample image}, or `verify_level: list`

EXCHANGE_FAILED (failure): the GPUs of the node do not exchange data: {error}
Remedy: compare `nvidia-smi topo -p2p rw` and `nvidia-smi nvlink --status` on the node with a node
  that works, and read the kernel log with `dmesg | grep -i -e nvrm -e xid`; if only the program is
  wrong, correct verify_exchange_image and verify_exchange_command

EXCHANGE_UNPROVEN (notice): the exchange of data between GPUs is not proven: {evidence}
Remedy: nothing to do; only nodes with two free GPUs that have access to each other can prove it

SMOKE_UNKNOWN (failure): the result of the smoke pod is unknown: {error}
Remedy: run `ansible-playbook metal.gpu.verify` again when the API server answers

SMOKE_POD_LEFT (notice): the smoke pod {name} may still exist, because its deletion failed: {error}
Remedy: delete it with `kubectl --namespace {namespace} delete pod {name}`

GPUS_NOT_ALLOCATABLE (failure): the smoke pod needs {asked} {resource}, but the node has {found}
  allocatable
Remedy: check that the device plugin runs on the node, and that `kubectl describe node` lists its
  GPUs under Allocatable

POD_REJECTED (failure): {by} rejects {what}: {error}
Remedy: exempt the namespace {namespace|of the pod} from it, or set {place|the variable of the
  namespace} to a namespace that it does not cover

POD_OVER_QUOTA (failure): {by} in the namespace {namespace} rejects {what}: {error}
Remedy: change it (`kubectl --namespace {namespace} describe resourcequota,limitrange` shows it), or
  set {place|the variable of the namespace} to another namespace; if it demands cpu or memory,
  {amounts|set verify_smoke_resources}

NAMESPACE_MISSING (failure): the namespace {namespace} for {what} {state}
Remedy: create it with `kubectl create namespace {namespace}`, or set {place|the variable of the
  namespace} to another namespace

PRIORITY_CLASS_UNFIT (failure): {what} was not created, because the scheduler could delete other
  pods for it: {error}
Remedy: set verify_smoke_priority_class to metal-gpu-proof, the default, and create this class with
  `ansible-playbook metal.gpu.site --tags device_plugin` or with `kubectl create priorityclass
  metal-gpu-proof --value=-2147483648 --preemption-policy=Never`

RUNTIME_CLASS_MISSING (failure): {what} needs the RuntimeClass {name}, which the cluster does not
  have
Remedy: set verify_smoke_runtime_class or device_plugin_runtime_class to an existing one (`kubectl
  get runtimeclasses`), or create it with `ansible-playbook metal.gpu.site --tags device_plugin`

RUNTIME_HANDLER_MISSING (failure): {what} needs the runtime {handler}, which the container engine
  does not have: {error}
Remedy: register it with `ansible-playbook metal.gpu.site --tags runtime`; another tool may have
  overwritten the engine's configuration

RUNTIME_CLASS_UNSUPPORTED (failure): {what} names the runtime {handler} by its RuntimeClass, and
  Docker below a kubelet accepts no RuntimeClass: {error}
Remedy: leave verify_smoke_runtime_class empty for this node, or take the RuntimeClass out of the
  pod: Docker's default runtime gives the GPUs, which `ansible-playbook metal.gpu.site --tags
  runtime` sets up unless nvidia_container_runtime_default is false

CDI_UNRESOLVABLE (failure): the container engine cannot resolve the CDI devices of {what}: {error}
Remedy: compare `nvidia-ctk cdi list` on the node with the message; remove old and duplicate
  specifications from /etc/cdi and /var/run/cdi, run `systemctl restart nvidia-cdi-refresh.service`,
  and delete the device plugin's pod

GPU_BLOCKS_CONTAINERS (failure): {what} does not start, because a GPU of the node is lost: {error}
Remedy: drain the node, and reset the GPU or reboot; until then, no container with GPUs starts on
  this node

ENGINE_SILENT (failure): the container engine does not answer the kubelet: {error}
Remedy: run `systemctl status containerd docker cri-docker crio` on the node, and `journalctl -u`
  for the one that it uses

KUBELET_SILENT (failure): {what} does not start, because the kubelet of {node} does not report:
  {error}
Remedy: run `systemctl status kubelet` and `journalctl -u kubelet` on the node

NODE_TAINTED (failure): {what} does not run, because it does not tolerate the node's taint {taint}
Remedy: remove the taint with `{command|kubectl taint node NODE KEY-}`, or add a toleration to
  {setting|the pod}

NODE_PRESSURE (failure): {what} does not run, because the node is under {kind} pressure: {error}
Remedy: read the conditions in `kubectl describe node {node}`, and free disk space, memory or
  process ids on the node; the kubelet then removes the taint by itself

NODE_FULL (failure): the node has no room for {what}: {error}
Remedy: wait until other pods end, or move them; list them with `kubectl get pods --all-namespaces
  --field-selector spec.nodeName={node}`

POD_NOT_ADMITTED (failure): the kubelet does not admit {what}: {error}
Remedy: first fix the other findings about GPUs of this node; without any, look for pods that took
  the GPUs with `kubectl get pods --all-namespaces --field-selector spec.nodeName={node}`; do not
  restart the kubelet while a GPU is lost: the node loses its other GPUs

POD_NOT_SCHEDULED (failure): no scheduler placed {what} on the node
Remedy: check kube-scheduler with `kubectl --namespace kube-system get pods --selector
  component=kube-scheduler`

SMOKE_DIFFERS (failure): a smoke pod saw GPUs that the node does not have: {uuids}
Remedy: remove outdated CDI specifications from /etc/cdi and /var/run/cdi, run `systemctl restart
  nvidia-cdi-refresh.service`, and delete the device plugin's pod

SMOKE_MISSING (failure): the smoke pods did not prove every GPU: {evidence}
Remedy: run `ansible-playbook metal.gpu.verify` again; to run no smoke pods, set `verify_smoke:
  false`

GPU_LEAKED (failure): containers that request no GPU see GPUs of this node: {evidence}
Remedy: {remedy|set `device_plugin_guard: enforce`, or with containerd and CRI-O
  `nvidia_container_runtime_default: false` (docs/isolation.md)}; `ansible-playbook
  metal.gpu.leak_test` shows whether it helps

LEAK_UNPROVEN (failure): the leak test could not try everything on this node: {evidence}
Remedy: {remedy|remove what keeps the pod of the test from starting}; then run `ansible-playbook
  metal.gpu.leak_test` again

IMAGE_UNPULLABLE (failure): Docker cannot pull the image {image}: {error}
Remedy: run `docker pull {image}` on the host as root; correct verify_docker_image, the name
  service, the route to the registry, or the firewall

IMAGE_DIFFERS (failure): this host has another image {image} than {other}: {found}, expected
  {expected}
Remedy: set verify_docker_image to the image by its digest, such as {expected|`IMAGE@sha256:DIGEST`}

IMAGE_NOT_PULLED (notice): Docker cannot pull the image {image}, so this host uses the one that it
  has, which can be older ({digest}): {error}
Remedy: run `docker pull {image}` on the host as root; if the image was loaded from a file, or shall
  stay as it is, set verify_docker_image to it by its digest

IMAGE_NEEDS_DRIVER (failure): the image {image} needs {need}; this host has driver {driver}, which
  supports CUDA {cuda}
Remedy: install a newer driver (docs/driver.md), or use {instead|an image for an older CUDA}; if
  only NVIDIA's runtime compares the minor version, CDI runs the image (docs/docker-hosts.md)

IMAGE_CUDA_NEWER (notice): the image {image} is for CUDA {expected}, and driver {driver} supports
  CUDA {cuda}; it can run the compiled code of the image, but cannot compile its PTX{ptx} or call
  newer functions
Remedy: if a program fails, install a driver for CUDA {expected|in the image's version}
  (docs/driver.md), or use an image without cuda-compat if the error is `forward compatibility was
  attempted` or `unsupported display driver`

IMAGE_NEEDS_GPU (failure): the image {image} does not run on the GPUs of this host: {need}
Remedy: build the programs of the image for these GPUs too, or leave this host out; if the image has
  the code, correct verify_docker_capabilities

CONTAINER_FAILED (failure): no container of the image {image} computed on this host: {error}
Remedy: run `docker run --rm --gpus all {image}` on the host as root; if the image has no shell and
  no vectorAdd, set verify_docker_command to a program of its own

CONTAINER_GPUS_DIFFER (failure): a container with all GPUs has {found} of {expected} {what}:
  {evidence}
Remedy: compare `nvidia-smi -L` on the host with `docker run --rm --gpus all IMAGE nvidia-smi -L`;
  after a change of GPUs, run `systemctl restart nvidia-cdi-refresh.service` and restart Docker

CONTAINER_GPUS_BUSY (notice): the image {image} did not compute on {gpus}, which other programs use:
  {users} ({error})
Remedy: nothing to do; to prove these GPUs, stop the programs and run `ansible-playbook
  metal.gpu.docker_hosts --tags verify`

NFS_SERVER_SILENT (failure): the NFS server {server} does not answer this host about {export}:
  {evidence}
Remedy: check the name, the network and the firewall: `nc -vz {server} 2049` on the host, or the
  port in the mount's options; NFS 3 also needs port 111 and that of the server's mountd

NFS_VERSION_DIFFERS (failure): {server} does not have the version of NFS that the mount at {path}
  needs: it has {evidence}, expected {version}
Remedy: set `version` of the mount in nfs_mounts_mounts to one that the server has, or turn the
  version on there

NFS_EXPORT_MISSING (failure): {server} does not export {export} to this host: {evidence}
Remedy: compare `showmount --exports {server}` with nfs_mounts_mounts, and add this host to the
  export on the server

NFS_READ_ONLY (failure): root of this host may not write to {server}:{export}, which is mounted at
  {path}
Remedy: export it with write access; if nothing writes to it, set `read_only: true` in
  nfs_mounts_mounts; if the server makes root nobody, set `squashed: true`

NFS_UNPROVEN (notice): nothing shows yet whether {server} exports {export} to this host: {evidence}
Remedy: nothing to do; the first access to {path|the mount} shows it

NFS_MOUNT_TAKEN (refusal): the role nfs_mounts cannot mount an export at {path}: {evidence}
Remedy: remove what is there, or set another path in nfs_mounts_mounts

NFS_MOUNT_DIFFERS (refusal): {path} is mounted from {found}, expected {expected}
Remedy: stop the containers that use it, run `umount {path}`, and run the playbook again; if the
  server itself refers to {found|another one}, name that in nfs_mounts_mounts

NFS_MOUNT_USED (refusal): the NFS mount at {path} is to be removed, but its export would stay
  mounted in containers, out of sight of the host: {users}
Remedy: stop these containers and run the playbook again, or keep the mount in nfs_mounts_mounts;
  `docker ps` lists containers, and `systemctl status NUMBER` shows what a process belongs to

NFS_KERNEL_MISSING (notice): the kernel {release} cannot mount NFS on demand, so the units of the
  mounts are written, and not started
Remedy: install the kernel's package with the modules nfsv4 and autofs4, such as
  linux-modules-extra, and run the playbook again

NFS_REMOUNT_DUE (notice): what is mounted at {path} stays as it is until it is unmounted: {evidence}
Remedy: stop the containers that use it, and run `umount {path}`; the next access mounts it again

SMOKE_PARTIAL (notice): a smoke pod proved {seen} GPUs, but not {busy}, because pods have claimed
  them: {holders}
Remedy: nothing to do; to prove every GPU, drain the node and run `ansible-playbook
  metal.gpu.verify`

SMOKE_SHARED (notice): a smoke pod with one {resource} proved {seen}, but not {others}: the GPUs are
  shared ({source}), and a pod cannot choose which one it gets
Remedy: nothing to do; to prove every GPU, drain the node, remove the sharing for a while, and run
  `ansible-playbook metal.gpu.verify`

COMPUTE_NOT_RUN (notice): no CUDA program ran on the GPUs, because they are shared by MPS ({source})
Remedy: nothing to do; a CUDA program of another user than the other programs would have to wait for
  these, and new programs would wait for it; to prove the GPUs, drain the node, remove the sharing
  for a while, and run `ansible-playbook metal.gpu.verify`

SMOKE_NOT_RUN (notice): no smoke pod ran: {evidence}
Remedy: nothing to do; to prove every GPU, drain the node and run `ansible-playbook
  metal.gpu.verify`
"""

_ENTRY = re.compile(
    r"^(?P<code>[A-Z0-9_]+) \((?P<severity>[a-z]+)\): (?P<message>.+?)"
    r"^Remedy: (?P<remedy>.+?)^$",
    re.MULTILINE | re.DOTALL,
)

_FIELD = re.compile(r"(?<!\{)\{(?P<name>\w+)(?:\|(?P<words>[^{}]*))?\}(?!\})")


def _meaning(entry: re.Match[str]) -> Meaning:
    message, remedy = (" ".join(entry[text].split()) for text in ("message", "remedy"))
    template = _FIELD.sub(lambda field: f"{{{field['name']}}}", remedy)
    words = {field["name"]: field["words"] for field in _FIELD.finditer(remedy)}
    general = template.format(
        **{name: name.upper() if said is None else said for name, said in words.items()}
    )
    return Meaning(entry["severity"], message, template, " ".join(general.split()))


CATALOGUE = {entry["code"]: _meaning(entry) for entry in _ENTRY.finditer(_TEXTS)}


def finding(code: str, host: str, **evidence: object) -> dict[str, str]:
    """Return the finding `code` about `host`, with its texts filled in and credentials removed.

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
        "message": f"{host}: " + redact(meaning.message.format(host=host, **evidence)),
        "remedy": redact(meaning.remedy.format(host=host, **evidence)),
        "reference": f"{DOCUMENT}#{code.lower()}",
    }


def is_sound(findings: Iterable[Mapping[str, str]]) -> bool:
    """Tell whether findings say nothing but what is worth knowing."""
    return all(found["severity"] == NOTICE for found in findings)

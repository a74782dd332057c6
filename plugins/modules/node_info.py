#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
short_description: Observe everything about a GPU node at once
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Observes hardware, kernel, NVIDIA driver, NVIDIA Container Toolkit, container engines and
    kubelet of a node, in one remote operation.
  - Changes nothing. Does not fail if something is absent. A value that is absent or unknown is
    V(null), an empty list or an empty dictionary.
  - Reads from the process and from systemd what a service runs. So wrappers, specifiers and
    programs outside of the C(PATH) are taken into account.
  - The node returns only texts of files and outputs of commands. The controller interprets them,
    because only the controller has parsers for TOML and YAML.
attributes:
  action:
    support: full
    description: An action plugin of the same name interprets the observation on the controller.
  async:
    support: none
    description: An observation takes less than a second if C(nvidia-smi) answers.
  check_mode:
    support: full
    description: Only reads, in any mode.
  diff_mode:
    support: none
    description: Changes nothing, so there is nothing to compare.
  idempotent:
    support: full
    description: Only reads.
  platform:
    support: full
    platforms: linux
    description: Works on Linux nodes with Python 3.9 or later and GNU coreutils.
options:
  packages:
    description:
      - Names or shell patterns of packages to report in RV(gpu_node.packages).
      - Packages of the NVIDIA driver and of the container toolkit are always reported.
    type: list
    elements: str
    default: []
  repositories:
    description:
      - Names or shell patterns of repositories to report in RV(gpu_node.repositories).
      - The name of a repository is the name of its file in C(/etc/apt/sources.list.d) or
        C(/etc/yum.repos.d), without the suffix.
    type: list
    elements: str
    default: []
  device_users:
    description:
      - Report the processes that use the driver in RV(gpu_node.device_users).
      - Set it only if you need the answer, because it reads the open files of every process.
    type: bool
    default: false
notes:
  - Without O(ignore:become), some values are not readable, such as the configuration of the
    kubelet. They are reported with an C(error), or as unknown.
  - The time limit of a command is 10 seconds. The limit of C(nvidia-smi) is 30 seconds, because it
    initialises every GPU first if persistence mode is off.
  - Is not in the action group C(gpu), because it has none of the connection options to the cluster.
"""

EXAMPLES = r"""
- name: Observe the node
  metal.gpu.node_info:
  register: node
  become: true

- name: Fail if the driver misses a GPU
  ansible.builtin.assert:
    that: node.gpu_node.nvml.devices | length == node.gpu_node.pci | length
    fail_msg: "{{ node.gpu_node.nvml.failure }}"

- name: Observe the node, two packages and a repository
  metal.gpu.node_info:
    packages:
      - python3-debian
      - linux-headers-*
    repositories:
      - nvidia-cuda
  become: true
"""

# `make returns` writes it from the types.
RETURN = r"""
gpu_node:
  description: The observation of the node.
  returned: success
  type: dict
  contains:
    os:
      description: The operating system.
      type: dict
      contains:
        id: {type: str, description: "Distribution, from C(/etc/os-release)."}
        version_id: {type: str, description: ""}
        codename: {type: str, description: ""}
        family: {type: str, description: "C(debian), C(redhat), C(suse) or C(other)."}
        name: {type: str, description: "Its full name, C(PRETTY_NAME)."}
        architecture: {type: str, description: "Machine name, as from C(uname -m)."}
    hostname: {type: str, description: ""}
    boot_id: {type: str, description: It changes with each boot.}
    machine_id: {type: str, description: It stays the same until somebody installs the system anew.}
    read_only: {type: list, elements: str, description: "C(/etc) and C(/var/lib), if their file systems are mounted read-only."}
    init: {type: str, description: C(systemd) or C(other).}
    systemd: {type: dict, description: "The units whose state systemd did not report. Keys: C(unknown) (list, units, if there is systemd) and C(error) (error
      of C(systemctl))."}
    kernel:
      description: The running kernel.
      type: dict
      contains:
        release: {type: str, description: Result of C(uname -r).}
        compiler: {type: str, description: "Program that compiled it, such as C(gcc-12)."}
        headers: {type: bool, description: "Whether its headers are installed, so that modules can be built."}
        modules: {type: list, elements: str, description: "Loaded ones among C(nvidia*), C(nouveau) and C(vfio_pci)."}
    secure_boot: {type: bool, description: Whether it is enabled; V(null) without EFI.}
    tools: {type: list, elements: str, description: "Other tools that write the configuration: AKS, EKS, kubeadm, Kubespray, GPU Operator."}
    pci: {type: list, elements: dict, description: "GPUs on the PCI bus (vendor 10de, class 0300 or 0302), sorted by address. Keys: C(address) (in the form of
      sysfs, such as C(0000:03:00.0)), C(vendor), C(device), C(class) (class id, such as C(0302)), C(driver) (the kernel driver that is bound to it) and
      C(numa_node) (int)."}
    driver:
      description: The driver as it is installed and loaded.
      type: dict
      contains:
        packages: {type: dict, description: "Versions of the driver's installed packages, by name."}
        module_version: {type: str, description: Version of the loaded module.}
        disk_version: {type: str, description: "Version of the module on the disk, which the next load uses."}
        module_files: {type: list, elements: str, description: Files of C(nvidia) in the running kernel's folder of C(/lib/modules).}
        uvm_readable: {type: bool, description: "Whether C(modinfo) reads the running kernel's C(nvidia-uvm); V(null): no answer."}
        flavour: {type: str, description: "C(open) or C(proprietary), of the loaded module."}
        unblocked: {type: list, elements: str, description: "C(nouveau) and C(nova_core), if C(modprobe.d) does not block them."}
        initramfs_outdated: {type: bool, description: Whether C(modprobe.d) has newer settings than an initial ramdisk.}
        initramfs_program: {type: str, description: "Path of C(update-initramfs), else of C(dracut)."}
        ramdisk_space: {type: dict, description: "Bytes that are free in C(/boot), and needed for the largest ramdisk. Keys: C(free) (int) and C(needed)
          (int)."}
        modules_load: {type: list, elements: str, description: Modules that C(modules-load.d) loads at boot.}
        own_modules: {type: list, elements: str, description: Modules in the file of this collection in C(modules-load.d).}
        parameters: {type: dict, description: "Parameters of the loaded module, by name without C(NVreg_)."}
        own_parameters: {type: list, elements: str, description: Lines of this collection's file with parameters in C(modprobe.d).}
        own_pin: {type: list, elements: str, description: Lines of this collection's file in C(preferences.d).}
        own_device_rule: {type: list, elements: str, description: Lines of this collection's block in its rule of udev.}
        parameters_are_new: {type: bool, description: Whether the file of C(own_parameters) is newer than the boot.}
        peermem: {type: bool, description: Whether the running kernel has C(nvidia-peermem).}
        dkms:
          description: "The driver's modules in DKMS, of all sources together."
          type: dict
          contains:
            built: {type: bool, description: Whether there is a module for the running kernel; V(null) without source.}
            kernels: {type: list, elements: str, description: Kernels for which a module was built.}
            unfinished: {type: list, elements: str, description: "Kernels whose build was interrupted: DKMS needs C(dkms remove) first."}
            log: {type: str, description: Path of the log of a failed build.}
            failed: {type: str, description: Kernel of the failed build of C(log).}
            error: {type: str, description: First errors at the end of C(log).}
            sources: {type: list, elements: str, description: "Names and versions that DKMS has, such as C(nvidia/580.178.04)."}
            addable: {type: list, elements: str, description: "Sources in C(/usr/src), which C(dkms install) adds by itself."}
            builds: {type: dict, description: "State of each source. Keys: C(built), C(kernels), C(unfinished), C(log), C(failed) and C(error)."}
        next_kernel: {type: dict, description: "The newest installed kernel; V(null): it runs. Keys: C(release), C(headers) (bool, whether they are installed)
          and C(module) (bool, whether it has the C(nvidia) module)."}
        next_kernel_skipped: {type: bool, description: "Whether C(next_kernel) had its module before the boot, which started another one."}
        headers_available: {type: list, elements: str, description: "Kernels whose missing headers apt has; V(null): apt was not asked."}
        signing:
          description: The key with which DKMS signs modules; V(null) without Secure Boot.
          type: dict
          contains:
            private_key: {type: str, description: "Path, or the line of DKMS's settings that is not understood, without a PIN."}
            certificate: {type: str, description: "Path, or the line of DKMS's settings that is not understood, without a PIN."}
            missing_key: {type: str, description: "Path of the private key, if there is no such file; the next build creates both."}
            missing_certificate: {type: str, description: "Path of the certificate, if there is no such file."}
            state: {type: str, description: "C(enrolled), C(requested) (confirmed at the next boot), C(missing) or C(unknown)."}
            error: {type: str, description: Why the state is unknown.}
        programs: {type: dict, description: "Files of C(nvidia-smi) and C(nvidia-persistenced), by name. Keys: C(path) (also if it is not there), C(exists)
          (bool) and C(executable) (bool)."}
        libraries: {type: dict, description: "Paths of C(libnvidia-ml.so.1) and C(libcuda.so.1), by name."}
        persistenced: {type: dict, description: "C(nvidia-persistenced.service). Keys: C(installed) (bool), C(enabled) (bool) and C(active) (bool)."}
        installer:
          description: "What NVIDIA's C(.run) installer left, and what it would meet."
          type: dict
          contains:
            version: {type: str, description: Version that it has installed.}
            uninstaller: {type: bool, description: Whether C(nvidia-uninstall) exists.}
            free_mib: {type: int, description: "Space in C(/var/lib), where it unpacks itself."}
            runs_programs: {type: bool, description: "Whether programs can run from there, so not C(noexec)."}
            displays: {type: list, elements: str, description: "Displays of running X servers, such as C(:0)."}
            stops: {type: bool, description: Whether packages forbid it by C(alternate-install-present).}
        persistence_off: {type: str, description: File of C(nvidia-persistenced.service) with C(--no-persistence-mode).}
    nvml:
      description: The GPUs according to the driver (C(nvidia-smi)).
      type: dict
      contains:
        driver_version: {type: str, description: ""}
        complete: {type: bool, description: "Whether it reports each GPU of C(pci), and C(nvidia-smi) printed nothing else."}
        devices:
          description: "GPUs in the order of the driver; after an error, only what is known."
          type: list
          elements: dict
          contains:
            index: {type: int, description: "V(null): the driver reports only the address."}
            uuid: {type: str, description: ""}
            name: {type: str, description: ""}
            memory_mib: {type: int, description: ""}
            pci_address: {type: str, description: Address in C(pci).}
            minor: {type: int, description: Number of its device file.}
            persistence_mode: {type: bool, description: ""}
            error: {type: str, description: "What the driver prints instead of a value, such as C([GPU is lost])."}
        bound: {type: dict, description: "GPUs in C(/proc/driver/nvidia/gpus), by address. Keys: C(uuid) and C(minor) (int)."}
        failure:
          description: Error of C(nvidia-smi) or of a GPU; other GPUs can still work.
          type: dict
          contains:
            code: {type: str, description: "C(not_installed), C(timeout), C(driver_not_loaded), C(library_mismatch), C(library_not_found), C(no_devices),
              C(gpu_lost), C(gpu_error), C(no_permission), C(blocked_by_system), C(inforom_corrupted), C(insufficient_power), C(interrupt_problem),
              C(function_not_found), C(not_supported), C(invalid_argument) or C(unknown)."}
            exit_code: {type: int, description: "V(null): it did not exit in time."}
            message: {type: str, description: "What it printed in addition to rows, else the error of a GPU."}
    device_files: {type: list, elements: dict, description: "Character devices of the driver. Keys: C(path), C(major) (int), C(minor) (int), C(mode) (octal
      digits, such as C(0666)) and C(linked) (bool, whether it is in C(/dev/char), where runc looks it up)."}
    device_obstacles: {type: list, elements: dict, description: "What stands in the place of the driver's device files. Keys: C(path) and C(type)
      (C(directory), C(file), C(link) (to no device) or C(other))."}
    device_majors: {type: dict, description: Major numbers by their names in C(/proc/devices).}
    device_users: {type: list, elements: dict, description: "Processes that use the driver; V(null): this was not asked. Keys: C(pid) (int), C(command) (at
      most 15 characters), C(pod) (its UID) and C(computes) (bool, whether it has C(/dev/nvidia-uvm) open, as programs of CUDA have)."}
    fabric:
      description: "NVSwitches, and Fabric Manager, without which CUDA does not start there."
      type: dict
      contains:
        ports: {type: list, elements: str, description: Addresses of the InfiniBand adapters to the NVSwitches of B200 and B300.}
        process: {type: bool, description: "Whether Fabric Manager runs, as a service or in a container."}
        subnet_manager: {type: bool, description: "Whether C(nvlsm) runs, which B200 and B300 need."}
        modules: {type: list, elements: str, description: "Loaded modules that C(nvlsm) needs, of C(mlx5_ib) and C(ib_umad)."}
        missing_modules: {type: list, elements: str, description: "Those of C(modules) that are not loaded, and that the running kernel lacks."}
        log: {type: list, elements: str, description: "Last lines, if Fabric Manager or C(nvlsm) does not run, or a state is not good."}
        switches: {type: list, elements: dict, description: "NVSwitches on the PCI bus. Keys: C(address), C(vendor), C(device), C(class), C(driver) and
          C(numa_node)."}
        packages: {type: dict, description: "Versions of Fabric Manager, IMEX and the subnet manager, by name."}
        manager: {type: dict, description: "C(nvidia-fabricmanager.service); V(null) without NVSwitches. Keys: C(installed) (bool), C(enabled) (bool),
          C(active) (bool) and C(state) (words of systemd)."}
        imex: {type: dict, description: "C(nvidia-imex.service); V(null) without NVSwitches. Keys: C(installed), C(enabled), C(active) and C(state)."}
        mode: {type: int, description: C(FABRIC_MODE) of Fabric Manager's configuration.}
        states:
          description: "GPUs that can have a fabric: Hopper and newer."
          type: list
          elements: dict
          contains:
            state: {type: str, description: "Word of C(nvidia-smi), such as C(Completed); C(N/A) without a fabric."}
            status: {type: str, description: "Word of C(nvidia-smi), such as C(Success)."}
            clique: {type: int, description: Number of the NVLink clique.}
            health: {type: str, description: "Summary, such as C(Healthy); V(null): not offered, as on H100."}
            misconfigured: {type: str, description: What is wrong with the configuration; C(None) if nothing is.}
            degraded: {type: list, elements: str, description: "Parts that are not as they should be, on some GPUs always."}
            pci_address: {type: str, description: Address in C(pci).}
            good: {type: bool, description: "Whether the GPU has no fabric, or is part of one that is ready."}
            healthy: {type: bool, description: Whether the driver reports nothing that is wrong with the links.}
    health:
      description: "What the GPUs report of themselves (C(nvidia-smi -q -x)); V(null): not offered, or not known."
      type: dict
      contains:
        cuda_version: {type: str, description: The newest one that the driver supports.}
        error: {type: str, description: "Why there is no report, or only a part of it."}
        gpus:
          description: The GPUs with a report.
          type: list
          elements: dict
          contains:
            pci_address: {type: str, description: Address in C(pci).}
            uuid: {type: str, description: ""}
            model: {type: str, description: ""}
            recovery_action: {type: str, description: "What the driver wants, such as C(Reset); C(None): nothing."}
            uncorrected: {type: int, description: Memory errors since the last reset.}
            uncorrected_sram: {type: int, description: "Memory errors in SRAM, which no spare row replaces."}
            uncorrected_ever: {type: int, description: Memory errors since the GPU was built; these are over.}
            sram_threshold_exceeded: {type: bool, description: Whether SRAM had more errors than NVIDIA tolerates.}
            unrepairable_memory: {type: bool, description: Whether the GPU has memory that it cannot repair.}
            repairs_pending: {type: list, elements: str, description: "What the next reset repairs, C(channel) and C(tpc)."}
            remapped: {type: int, description: Number of rows of memory whose spare rows are in use.}
            remap_pending: {type: bool, description: Whether the next reset replaces rows.}
            remap_failed: {type: bool, description: Whether a defective row could not be replaced.}
            pages_retired: {type: int, description: "Number of pages of memory, on GPUs before Ampere."}
            pages_pending: {type: bool, description: Whether the next reset retires pages.}
            clocks: {type: list, elements: str, description: "Why they are lower than possible, such as C(hw_thermal_slowdown)."}
            link: {type: dict, description: "PCIe lanes, and the PCIe generation that GPU and slot support. Keys: C(width) (int), C(max_width) (int) and
              C(max_generation) (int)."}
            mig: {type: str, description: C(Enabled) or C(Disabled).}
            mig_pending: {type: str, description: Value of C(mig) after the next reset.}
            mig_instances: {type: list, elements: dict, description: "MIG instances; V(null): the report does not list them. Keys: C(index) (int, number on its
              GPU), C(gpu_instance) (int), C(compute_instance) (int) and C(files) (list, paths below C(/dev/nvidia-caps), if the driver lists them)."}
            compute_mode: {type: str, description: "Which programs may use it, such as C(Default)."}
            virtualization: {type: str, description: "What a virtual machine has of it, such as C(VGPU) for a part."}
            license: {type: str, description: Words about the license of a part.}
    kernel_log:
      description: "Errors of GPUs and NVSwitches since the driver was loaded, without those that are over."
      type: dict
      contains:
        sources: {type: list, elements: str, description: "C(dmesg), and C(journal) if the driver was loaded before its first line."}
        error: {type: str, description: "Why nothing was read, or not the whole time."}
        loaded: {type: int, description: "Seconds since boot when the driver was loaded, removed, or failed to load."}
        events:
          description: "The errors, each with all its lines."
          type: list
          elements: dict
          contains:
            source: {type: str, description: "C(xid) of a GPU, C(sxid) of an NVSwitch, C(lost) for a GPU that fell off the bus."}
            address: {type: str, description: Address in C(pci).}
            number: {type: int, description: Xid or SXid.}
            count: {type: int, description: Number of lines.}
            first: {type: int, description: Seconds since boot.}
            last: {type: int, description: Seconds since boot.}
            line: {type: str, description: "Last line, or last line with C(Fatal), at most 200 characters."}
            last_date: {type: str, description: Time of C(last) in UTC.}
        unlisted: {type: int, description: "Number of lines about further errors, if there are more than 200 errors."}
        recovery: {type: dict, description: "Code of the action that the driver asks for with Xid 154, by address."}
        uuids: {type: dict, description: "UUIDs that the log shows, by address."}
        words: {type: dict, description: "Lines about GPUs that did not start, by address; empty: they name no GPU. Keys: C(kind) and C(line)."}
    toolkit:
      description: The NVIDIA Container Toolkit.
      type: dict
      contains:
        packages: {type: dict, description: "Versions of its installed packages, by name."}
        version: {type: str, description: "Version of C(nvidia-ctk), else of the package."}
        programs: {type: dict, description: "Programs in C(/usr/bin), where the packages install them, by name. Keys: C(path), C(exists) and C(executable)."}
        cdi_skipped: {type: bool, description: Whether the C(ExecCondition) of C(nvidia-cdi-refresh.service) was not met.}
        cdi_devices: {type: list, elements: str, description: "Devices that C(nvidia-cdi-refresh.env) lists; V(null): the service lists everything."}
        cdi_has_all: {type: bool, description: Whether the service writes C(nvidia.com/gpu=all).}
        config: {type: str, description: Path of the configuration file.}
        config_sha256: {type: str, description: Hash of C(config) without the edits of this collection.}
        runtimes: {type: list, elements: str, description: "Programs that the NVIDIA runtime calls, as C(config) lists them."}
        mode: {type: str, description: "How the NVIDIA runtime gives GPUs, such as C(auto) and C(legacy)."}
        config_error: {type: str, description: "Why C(config) is invalid, or cannot be edited."}
        settings: {type: dict, description: "Values at the top of C(config) that are true or false, by name."}
        annotation_prefixes: {type: list, elements: str, description: "Prefixes of annotations that name CDI devices; V(null): NVIDIA's own."}
        swarm_resource: {type: list, elements: str, description: Variables of containers that count before C(NVIDIA_VISIBLE_DEVICES).}
        char_dev_rules: {type: list, elements: str, description: Rules of udev that make the links in C(/dev/char).}
    cdi:
      description: Specifications of the Container Device Interface; dictionaries are by path.
      type: dict
      contains:
        spec_files: {type: list, elements: str, description: ""}
        kinds: {type: dict, description: Vendor and class of the devices.}
        errors: {type: dict, description: Why files cannot be read; their devices are missing.}
        devices: {type: list, elements: str, description: "Qualified names in all files, each once."}
        names: {type: dict, description: Qualified names in each file.}
        drivers: {type: dict, description: Versions of the driver whose libraries a file names.}
        parts: {type: dict, description: "Paths of MIG instances in C(/dev/nvidia-caps), also by device."}
        majors: {type: dict, description: "Major numbers of device files, as far as a file has them."}
    kubelet:
      description: The kubelet.
      type: dict
      contains:
        version: {type: str, description: ""}
        version_error: {type: str, description: "What it printed for C(--version), if that is no version."}
        installed: {type: bool, description: Whether the program exists or runs.}
        path: {type: str, description: "What the unit runs or starts, else the program in the C(PATH)."}
        running: {type: bool, description: Whether its unit is active.}
        unit_state: {type: dict, description: "Words of systemd. Keys: C(active), C(sub) and C(result)."}
        distribution: {type: dict, description: "The Kubernetes distribution that contains it, such as k3s. Keys: C(name) and C(unit)."}
        rootless: {type: dict, description: "Distribution that a user runs without root, if there is no other kubelet. Keys: C(name) and C(unit)."}
        node_name: {type: str, description: "Name in the cluster: C(--hostname-override), else C(joined_name), else C(hostname)."}
        own_name: {type: str, description: "Name at its next start; V(null) if a cloud provider, a shell or systemd decides."}
        joined_name: {type: str, description: Name in its client certificate.}
        devices:
          description: "Devices of C(nvidia.com) in its checkpoint, an internal file."
          type: dict
          contains:
            registered: {type: dict, description: Ids of healthy devices by resource.}
            holdings: {type: list, elements: dict, description: "Devices of containers. Keys: C(pod) (its UID), C(container), C(resource) and C(devices)
              (list)."}
        flags_source: {type: str, description: "C(process), or C(unit) if systemd would use the flags."}
        flags:
          description: Flags that are in force or in files.
          type: list
          elements: dict
          contains: &FlagData
            name: {type: str, description: ""}
            value: {type: str, description: "C(***) if it is not needed, as it can be secret."}
            file: {type: str, description: "V(null): the process runs with it, but no file of the unit has it."}
            variable: {type: str, description: The variable in C(file) that has it.}
            effective: {type: bool, description: "False: another file overrides it, or the unit does not use it."}
        config: {type: dict, description: "File of C(--config). Keys: C(path), C(exists) (bool), C(error) (why it cannot be read) and C(obstacle) (why it
          cannot be edited, although the kubelet reads it)."}
        config_dir:
          description: Folder of C(--config-dir).
          type: dict
          contains:
            path: {type: str, description: ""}
            files: {type: list, elements: dict, description: "Its files. Keys: C(path), C(error) (why it cannot be read) and C(obstacle) (why it cannot be
              edited)."}
        feature_gates:
          description: Places that set a gate.
          type: list
          elements: dict
          contains:
            name: {type: str, description: ""}
            value: {type: bool, description: "V(null): no boolean, so the kubelet rejects it."}
            file: {type: str, description: "V(null): the kubelet runs with it, but no file contains it."}
            where: {type: str, description: C(flag) or C(config).}
            flag: {type: str, description: "The variable that contains the flag, else C(--feature-gates)."}
            effective: {type: bool, description: "False: it is in a file, but not used."}
        health_url: {type: str, description: "V(null): it is disabled."}
        endpoint: {type: str, description: Socket of the container runtime.}
        last_error: {type: str, description: "Why it failed, from its journal."}
        needs_reload: {type: bool, description: Whether files of its unit are newer than what systemd has loaded.}
        changed_since_start: {type: list, elements: str, description: Files of its settings that it has not read since they were written.}
    cgroup: {type: dict, description: "Control groups. Keys: C(version) (int, 1 or 2) and C(driver) (cgroup driver that is configured for the kubelet)."}
    registries:
      description: "Files in which engines keep registries, mirrors and logins; each run hashes with a new key."
      type: dict
      contains:
        files: {type: dict, description: "Files by path. Keys: C(mode), C(error) (why it cannot be read), C(obstacle) (why it cannot be edited), C(values)
          (dict, hashes by key path), C(items) (dict, hashes of items of lists, by key path), C(ours) (list, key paths of the role's values that are still
          there), C(our_items) (dict, hashes of the role's items of lists that are still there), C(our_folders) (list, folders that the role made for the file)
          and C(helpers) (list, registries whose logins a program has; C(*) for all of them)."}
        certificates: {type: dict, description: "Hashes of the certificates and keys of the role, by path."}
        exposed: {type: list, elements: str, description: Keys of C(certificates) that others than root can read.}
        created: {type: list, elements: str, description: Folders that the role made for C(certificates).}
        folders: {type: dict, description: "Folders of registries, with the names in them."}
        unread: {type: list, elements: str, description: Files that the role has changed since the start of their engine.}
        prefixes: {type: dict, description: "Names that CRI-O has settings for, with the admin's file."}
    nfs:
      description: "What mounts NFS exports, and what the kernel can mount."
      type: dict
      contains:
        units: {type: dict, description: "Lines of the units that the role C(nfs_mounts) wrote, by path."}
        mixed: {type: list, elements: str, description: "Paths of C(units) that have other lines, too."}
        others: {type: list, elements: str, description: Paths of other units that mount something.}
        fstab: {type: list, elements: str, description: Places where C(/etc/fstab) mounts something.}
        mounted: {type: list, elements: dict, description: "File systems of disks and of the network, and automounts. Keys: C(path), C(type), C(source),
          C(read_only) (bool) and C(version) (version of NFS)."}
        users: {type: dict, description: "Processes that keep an NFS mount after the host unmounted it, by path."}
        enabled: {type: list, elements: str, description: Automounts that start at boot.}
        kernel: {type: bool, description: "Whether the kernel can mount NFS 4, or has a module for it."}
        automount: {type: bool, description: Whether the kernel can have automounts.}
        unread: {type: list, elements: str, description: Names of C(units) that systemd has not read since they were written.}
    packages: {type: dict, description: "Installed packages that C(packages) asks for, of the node's own architecture, by name. Keys: C(version) and C(held)
      (bool, whether C(apt-mark) or C(dnf versionlock) holds it)."}
    repositories: {type: dict, description: "Files that C(repositories) asks for, by name, without credentials. Keys: C(path), C(entries) (list, fields about
      the origin, with a hash for credentials), C(key) (text of C(/etc/pki/rpm-gpg/RPM-GPG-KEY-*) of this name) and C(error) (why the file cannot be read)."}
    package_sources:
      description: Addresses that apt and dnf get packages from.
      type: list
      elements: dict
      contains:
        path: {type: str, description: ""}
        url: {type: str, description: Without credentials; variables are not replaced.}
        suite: {type: str, description: Empty for dnf.}
        section: {type: str, description: Empty for apt.}
        components: {type: str, description: "Empty for dnf, and for a flat repository."}
        signed_by: {type: str, description: "Keyring or fingerprints; C(embedded): a key in the file; empty: any key."}
        unsigned: {type: str, description: The options that disable signature checks.}
        credentials: {type: bool, description: Whether the address has credentials.}
    module_streams: {type: dict, description: "Enabled streams of dnf, by module."}
    package_manager:
      description: Whether apt or dnf is usable now.
      type: dict
      contains:
        error: {type: str, description: Why packages or their relations are unknown.}
        lock: {type: dict, description: "Process that holds a lock. Keys: C(path) (file of the lock), C(pid) (int, 0 if it is in another container) and
          C(command) (empty if it cannot be read)."}
        interrupted: {type: bool, description: Whether dpkg must first finish pending changes.}
        unfinished: {type: dict, description: "Packages that dpkg did not finish, by name. Keys: C(version) and C(state) (C(unpacked): not tried yet;
          C(half-configured) or C(half-installed): failed)."}
        automatic: {type: list, elements: str, description: Packages of the driver and the roles that apt installed as dependencies.}
        dependants: {type: dict, description: "Packages that need one of the driver or a role, by name; of each list, one has to stay."}
    ours:
      description: What this collection changed on the node.
      type: dict
      contains:
        files: {type: list, elements: str, description: Files with a block of a role; lines outside the block are the admin's.}
        edits:
          description: Files that C(metal.gpu.config_document) can restore.
          type: list
          elements: dict
          contains:
            path: {type: str, description: "Path in the engine's configuration, also if that is a link."}
            actor: {type: str, description: ""}
            changes: {type: list, elements: dict, description: "Edited values. Keys: C(key) (list, path of keys), C(before) (raw, V(null): there was none) and
              C(after) (fingerprint of the new value; V(null): the edit removed it)."}
            untouched: {type: bool, description: Whether the file has not changed since the edit.}
            error: {type: str, description: "Why the history cannot be read, so that nothing can be undone."}
        packages:
          description: "Records of what each role installed, by role."
          type: dict
          contains:
            path: {type: str, description: File of the record.}
            packages:
              description: Packages by name.
              type: dict
              contains:
                version: {type: str, description: "Desired version, or the installed one if the role asked for any."}
                before: {type: str, description: "V(null): it was not installed."}
                config_sha256: {type: str, description: Hash of the configuration file that the package created.}
            error: {type: str, description: Why the record cannot be read.}
    signed_modules: {type: dict, description: "Ubuntu's modules that the newest kernel lacks; V(null): it has them, or no kernel has. Keys: C(package) and
      C(error) (why apt does not install them without other changes)."}
    engines:
      description: "The container engines, installed or not."
      type: dict
      contains:
        containerd:
          description: "Containerd of the host, or of its Kubernetes distribution."
          type: dict
          contains:
            version: {type: str, description: ""}
            version_error: {type: str, description: "What it printed for C(--version), if that is no version."}
            installed: {type: bool, description: Whether the program exists or runs.}
            path: {type: str, description: "What the unit runs or starts, else the program in the C(PATH)."}
            running: {type: bool, description: Whether its unit is active.}
            home:
              description: "The Kubernetes distribution that contains it: k3s, RKE2 or k0s."
              type: dict
              contains:
                name: {type: str, description: ""}
                unit: {type: str, description: ""}
                is_managed: {type: bool, description: Whether it generates the configuration file.}
                detects_runtimes: {type: bool, description: Whether it looks for the NVIDIA runtime when it starts.}
                watched: {type: str, description: Folder of drop-ins whose changes it applies itself.}
                template: {type: str, description: "File of an admin, from which it generates the configuration."}
                template_lists_runtimes: {type: bool, description: "Whether the template, if any, lists the runtimes that it finds."}
                runtime_in_path: {type: bool, description: Whether its C(PATH) has the NVIDIA runtime's folder.}
                started_after_runtime: {type: bool, description: Whether the NVIDIA runtime was there when it started.}
                former_drop_ins: {type: list, elements: str, description: Drop-ins in a format that the next start refuses.}
                host_containerd: {type: bool, description: "Whether C(containerd.service) runs, too."}
            socket: {type: str, description: ""}
            runc: {type: dict, description: "File of C(runc). Keys: C(path), C(exists) and C(executable)."}
            config:
              description: The main configuration file.
              type: dict
              contains:
                path: {type: str, description: ""}
                exists: {type: bool, description: ""}
                version: {type: int, description: ""}
                imports: {type: list, elements: str, description: Patterns of imported files.}
                cri_tables: {type: list, elements: str, description: "Tables of the CRI plugin in the file, the newest form first."}
                imported_cri: {type: list, elements: str, description: Imported files with settings of the CRI plugin.}
                imported_nvidia: {type: list, elements: str, description: Imported files with the runtime C(nvidia).}
                imported_folders: {type: dict, description: C(config_path) of registries in imported files; the last one counts.}
                missing_imports: {type: list, elements: str, description: "Imported files that do not exist, with the importing file."}
                outline: {type: dict, description: "Tables and keys, without values."}
                error: {type: str, description: "Why it cannot be read, or containerd rejects it, with the place."}
                obstacle: {type: str, description: "Why it cannot be edited, although containerd accepts it."}
                source: {type: str, description: "Command or files that show the runtimes; V(null): these are unknown or defaults."}
            needs_reload: {type: bool, description: Whether files of its unit are newer than what systemd has loaded.}
            changed_since_start: {type: list, elements: str, description: Files that are not yet effective.}
            edited_since_start: {type: list, elements: str, description: Files of C(changed_since_start) that a role of this collection edited.}
            cri_enabled: {type: bool, description: "Whether the CRI plugin is enabled, which the kubelet needs."}
            cdi_enabled: {type: bool, description: Whether CDI is enabled for pods.}
            default_runtime: {type: str, description: Runtime of pods without a RuntimeClass.}
            runtimes: {type: dict, description: "Runtimes by name. Keys: C(type), C(binary) (empty: the default of the type), C(systemd_cgroup) (bool) and
              C(base_runtime_spec) (file with the defaults of containers; empty: containerd's own)."}
            registry:
              description: Where the CRI plugin looks for settings.
              type: dict
              contains:
                folders: {type: list, elements: str, description: "Folders of C(hosts.toml) files; empty: the default of the version."}
                mirrors: {type: list, elements: str, description: Registries with mirrors in the configuration itself.}
                tls: {type: list, elements: str, description: Servers with certificates in the configuration itself.}
                reads_lists: {type: bool, description: "Whether it reads several folders, or takes them for one name."}
            conflicts: {type: list, elements: str, description: Settings with which the CRI plugin does not load at the next start.}
            missing_specs: {type: list, elements: str, description: "Files of C(base_runtime_spec) that do not exist, with the runtime."}
        docker:
          description: "Docker, as the running engine answers, else from its configuration."
          type: dict
          contains:
            version: {type: str, description: ""}
            version_error: {type: str, description: "What it printed for C(--version), if that is no version."}
            installed: {type: bool, description: Whether the program exists or runs.}
            path: {type: str, description: "What the unit runs or starts, else the program in the C(PATH)."}
            running: {type: bool, description: Whether its unit is active.}
            server_version: {type: str, description: Version of the running engine.}
            client_path: {type: str, description: Path of the program C(docker).}
            answers: {type: bool, description: Whether it answers C(docker info) and C(docker ps) of root.}
            enabled: {type: bool, description: Whether it starts at boot.}
            socket_active: {type: bool, description: Whether systemd listens on C(docker.socket).}
            needs_reload: {type: bool, description: Whether files of its unit are newer than what systemd has loaded.}
            changed_since_start: {type: list, elements: str, description: "Programs that it looks for at its start, and that are newer."}
            unread: {type: dict, description: "What the role C(docker_ce) has written, and Docker has not read since. Keys: C(set) (list, key paths of
              C(config)), C(removed) (list, key paths that it has removed) and C(proxy) (bool, whether the drop-in is newer than the start of Docker)."}
            program: {type: dict, description: "Program in its unit, and the file that names it. Keys: C(path) and C(file)."}
            flags_source: {type: str, description: As C(kubelet.flags_source).}
            flags: {type: list, elements: dict, description: "Flags that are in force or in files. Keys: C(name), C(value), C(file), C(variable) and
              C(effective)."}
            config:
              description: "C(daemon.json), or the file of C(--config-file); its values may not be effective yet."
              type: dict
              contains:
                path: {type: str, description: ""}
                exists: {type: bool, description: ""}
                error: {type: str, description: Why it cannot be read.}
                obstacle: {type: str, description: "Why it cannot be edited, although Docker accepts it."}
                source: {type: str, description: "Command or file that shows the runtimes; V(null): these are unknown or defaults."}
                settings: {type: list, elements: str, description: Keys of the file.}
                outline: {type: dict, description: "Its keys, without values."}
                fingerprints: {type: dict, description: "SHA-256 of each value, by key path."}
                default_runtime: {type: str, description: ""}
                runtimes: {type: dict, description: "Runtimes by name. Keys: C(type) (containerd shim; V(null): an OCI runtime) and C(binary)."}
                cdi_enabled: {type: bool, description: Whether the file or the version enables it.}
            proxy: {type: dict, description: "Variables in the unit's files, in capitals. Keys: C(file), C(ours) (bool, whether it is in the block of the role)
              and C(sha256) (hash of the value, which can have a password)."}
            default_runtime: {type: str, description: Runtime of containers that name none.}
            runtimes: {type: dict, description: "Runtimes by name. Keys: C(type) and C(binary)."}
            live_restore: {type: bool, description: Whether containers keep running without the engine.}
            data_root: {type: str, description: Folder of containers and images.}
            storage_driver: {type: str, description: "Its name, or the name of the snapshotter."}
            containers:
              description: Running containers.
              type: list
              elements: dict
              contains:
                id: {type: str, description: ""}
                name: {type: str, description: ""}
                of_pod: {type: bool, description: Whether the kubelet made it.}
                ephemeral: {type: bool, description: Whether Docker removes it when it exits.}
                noted: {type: bool, description: Whether it ran when the role C(docker_ce) began to replace Docker.}
                gpus: {type: bool, description: "Whether it requested GPUs, as by C(--gpus), or named devices of CDI."}
                gpus_by_hook: {type: bool, description: Whether it got GPUs by the hook of NVIDIA's runtime.}
            mirrors: {type: list, elements: str, description: "Addresses of mirrors of C(docker.io), without a slash at the end."}
            made_with: {type: dict, description: "Containers outside of pods, by the runtime without which they do not start."}
            interrupted: {type: list, elements: dict, description: "Containers that stopped when the role C(docker_ce) replaced Docker. Keys: C(id) and
              C(name)."}
            record_error: {type: str, description: Why the record of C(interrupted) cannot be read.}
            purge_script: {type: str, description: Script with which a purge of the removed C(docker.io) deletes all containers.}
            group: {type: list, elements: str, description: Members of the group C(docker).}
            snap: {type: list, elements: str, description: Programs of a Docker of snapd.}
            rootless: {type: list, elements: str, description: Sockets and units of engines that users run without root.}
            cri_dockerd: {type: dict, description: "Cri-dockerd, which lets a kubelet use Docker. Keys: C(installed) (bool), C(version), C(running) (bool),
              C(enabled) (bool, whether it starts at boot) and C(socket)."}
            v1:
              description: Remains of nvidia-docker v1.
              type: dict
              contains:
                unit: {type: bool, description: Whether it exists.}
                volumes: {type: list, elements: str, description: ""}
                containers: {type: list, elements: dict, description: "Containers with C(volumes), running or not. Keys: C(id) and C(name)."}
            cgroup_driver: {type: str, description: C(systemd) or C(cgroupfs).}
            cdi_enabled: {type: bool, description: ""}
        crio:
          description: "CRI-O, as the running engine answers, else from its files."
          type: dict
          contains:
            version: {type: str, description: ""}
            version_error: {type: str, description: "What it printed for C(--version), if that is no version."}
            installed: {type: bool, description: Whether the program exists or runs.}
            path: {type: str, description: "What the unit runs or starts, else the program in the C(PATH)."}
            running: {type: bool, description: Whether its unit is active.}
            config:
              description: The configuration files.
              type: dict
              contains:
                path: {type: str, description: ""}
                exists: {type: bool, description: ""}
                files: {type: list, elements: str, description: Paths in the order in which CRI-O reads them.}
                runtime_files: {type: dict, description: "Files with a table of a runtime, by its name; the last one counts."}
                without_monitor: {type: dict, description: Those of C(runtime_files) whose table lacks a C(monitor_path) that it needs.}
                monitor: {type: str, description: "Program C(conmon) of all runtimes, according to the files."}
                defaults: {type: dict, description: "The default runtime, by the file that chooses it; the last one counts."}
                error: {type: str, description: Why a file cannot be read.}
                obstacles: {type: dict, description: "Why files cannot be edited, by path."}
                source: {type: str, description: "Command or files that show the runtimes; V(null): these are unknown or defaults."}
            changed_since_start: {type: list, elements: str, description: Configuration and hooks that are not yet effective.}
            edited_since_start: {type: list, elements: str, description: Files of C(changed_since_start) that a role of this collection edited.}
            monitor_in_path: {type: bool, description: Whether C(conmon) is in the PATH.}
            monitor: {type: str, description: Program C(conmon) of all runtimes; V(null) if each has its own.}
            default_runtime: {type: str, description: Runtime of pods without a RuntimeClass.}
            runtimes: {type: dict, description: "Runtimes by name. Keys: C(type), C(binary), C(root), C(monitor), C(monitor_cgroup) and C(annotations)
              (list)."}
            cdi_dirs: {type: list, elements: str, description: Folders of CDI specifications.}
            hooks_dirs: {type: list, elements: str, description: Folders of OCI hooks.}
            hooks: {type: list, elements: dict, description: "OCI hooks that call a program of NVIDIA's. Keys: C(path), C(program), C(always) (bool, its
              condition of this name) and C(error) (why the file cannot be edited)."}
            auth_file: {type: str, description: File with the logins of registries.}
            openshift: {type: str, description: What shows that it is a part of OpenShift.}
failures:
  description: The components that could not be observed, because this collection has a defect. Then
    the task fails, so that nothing is planned from an incomplete observation.
  returned: if there are any
  type: list
  elements: dict
  contains:
    component: {type: str, description: ""}
    error: {type: str, description: Without credentials.}
    place: {type: str, description: "Files and lines of the code, the innermost last."}
"""  # noqa: E501

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils.probe import limited
from ansible_collections.metal.gpu.plugins.module_utils.probe.collect import collect
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Node, Request
from ansible_collections.metal.gpu.plugins.module_utils.probe.program_files import find_program

if TYPE_CHECKING:
    from collections.abc import Iterable

ARGUMENT_SPEC: dict[str, Any] = {
    "packages": {"type": "list", "elements": "str", "default": []},
    "repositories": {"type": "list", "elements": "str", "default": []},
    "device_users": {"type": "bool", "default": False},
}


def run(
    node: Node,
    packages: Iterable[str],
    repositories: Iterable[str],
    *,
    device_users: bool = False,
) -> dict[str, Any]:
    """Return everything that the action plugin interprets."""
    request = Request(tuple(packages), tuple(repositories), device_users)
    return {"changed": False, "raw": collect(node, request)}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.exit_json(**run(Node(Path("/"), limited.run, find_program), **module.params))


if __name__ == "__main__":
    main()

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
        id: {description: "Identifier of the distribution, from C(/etc/os-release).", type: str}
        version_id: {description: Version of the distribution., type: str}
        codename: {description: Codename of the version., type: str}
        family: {description: "One of V(debian), V(redhat), V(suse), V(other).", type: str}
        name: {description: The full name (C(PRETTY_NAME))., type: str}
        architecture: {description: "Machine name, as from C(uname -m).", type: str}
      sample:
        id: debian
        version_id: "12"
        codename: bookworm
        family: debian
        name: Debian GNU/Linux 12 (bookworm)
        architecture: x86_64
    hostname: {description: Name of the host., type: str, sample: gpu-1}
    boot_id:
      description: Identifier of the boot. It changes with each boot.
      type: str
      sample: 5a1f4e0e-8b1b-4b43-9d0c-0c5d3e0c9a11
    read_only:
      description: Those of C(/etc) and C(/var/lib) whose file system is mounted read-only.
      type: list
      elements: str
      sample: []
    machine_id:
      description: Content of C(/etc/machine-id). It stays the same until somebody installs the
        system anew.
      type: str
      sample: 0c5d3e0c9a115a1f4e0e8b1b4b439d0c
    init: {description: V(systemd) or V(other)., type: str, sample: systemd}
    systemd:
      description: The units whose state systemd did not report.
      type: dict
      contains:
        unknown:
          description: Units whose state C(systemctl show) did not report. Empty if it reported all
            states, or if RV(gpu_node.init) is V(other).
          type: list
          elements: str
        error: {description: Error of C(systemctl). V(null) if it reported all states., type: str}
      sample: {unknown: [], error: null}
    kernel:
      description: The running kernel.
      type: dict
      contains:
        release: {description: "Release, as from C(uname -r).", type: str}
        compiler: {description: Program that compiled it. V(null) if unknown., type: str}
        headers:
          description: Whether its headers are installed, so that modules can be built for it.
          type: bool
        modules:
          description: Loaded modules among C(nvidia*), C(nouveau) and C(vfio_pci).
          type: list
          elements: str
      sample:
        release: 6.1.0-26-amd64
        compiler: gcc-12
        headers: true
        modules: [nvidia, nvidia_uvm]
    secure_boot:
      description: Whether Secure Boot is enabled. V(null) without EFI.
      type: bool
      sample: false
    tools:
      description: >-
        Other tools that write the configuration of this node, by a file that only they create.
        These are AKS and EKS, whose images are refused, kubeadm, Kubespray and the GPU Operator.
      type: list
      elements: str
      sample: []
    pci:
      description: GPUs on the PCI bus (vendor 10de, class 0300 or 0302), sorted by address.
      type: list
      elements: dict
      contains:
        address: {description: "PCI address with a domain of four digits, as in sysfs.", type: str}
        vendor: {description: Vendor id., type: str}
        device: {description: Device id., type: str}
        class: {description: Class id., type: str}
        driver:
          description: The kernel driver that is bound to the GPU. V(null) if there is none.
          type: str
        numa_node: {description: Number of its NUMA node. V(null) if it has none., type: int}
      sample:
        - address: "0000:03:00.0"
          vendor: 10de
          device: 15f8
          class: "0302"
          driver: nvidia
          numa_node: 0
    driver:
      description: The NVIDIA driver.
      type: dict
      contains:
        packages: {description: "Versions of the driver's installed packages, by name.", type: dict}
        module_version: {description: Version of the loaded module., type: str}
        disk_version:
          description: Version of the module on the disk, which the next load uses.
          type: str
        module_files:
          description: Files of the C(nvidia) module for the running kernel, relative to its
            directory in C(/lib/modules).
          type: list
          elements: str
        uvm_readable:
          description: Whether C(modinfo) can read the module C(nvidia-uvm) of the running kernel.
            V(false) if it is missing or damaged, V(null) if C(modinfo) did not answer.
          type: bool
        flavour:
          description: Flavour of the loaded module, V(open) or V(proprietary).
          type: str
        unblocked:
          description: Drivers of the kernel for NVIDIA's GPUs that C(modprobe.d) does not block.
            V(nouveau), and V(nova_core) where an installed kernel has it.
          type: list
          elements: str
        initramfs_outdated:
          description: Whether the settings for nouveau in C(modprobe.d), or the parameters of this
            collection, are newer than the initial ramdisk of an installed kernel. V(null) if there
            is no initial ramdisk.
          type: bool
        initramfs_program:
          description: >-
            The path of C(update-initramfs), or else of C(dracut). V(null) if neither is there.
          type: str
        ramdisk_space:
          description: What is C(free) in C(/boot), and C(needed) for a copy of the largest initial
            ramdisk, in bytes. V(null) if there is no initial ramdisk.
          type: dict
        modules_load:
          description: Modules that C(modules-load.d) loads at boot.
          type: list
          elements: str
        own_modules:
          description: Those of them that are in the file of this collection.
          type: list
          elements: str
        parameters:
          description: Parameters of the loaded module, by name without C(NVreg_), as in
            C(/proc/driver/nvidia/params).
          type: dict
        own_parameters:
          description: Lines of the file of this collection in C(modprobe.d) that sets parameters.
          type: list
          elements: str
        own_pin:
          description: Lines of the file of this collection in C(preferences.d).
          type: list
          elements: str
        own_device_rule:
          description: Lines of this collection's block in its rule of udev for the device files.
          type: list
          elements: str
        parameters_are_new: {description: Whether this file was written after the boot., type: bool}
        peermem:
          description: Whether the running kernel has the module C(nvidia-peermem).
          type: bool
        dkms:
          description: State of the driver's kernel module in DKMS.
          type: dict
          contains:
            built:
              description: Whether DKMS built the module for the running kernel. V(null) if DKMS
                does not have the source of the driver.
              type: bool
            kernels:
              description: The kernels for which DKMS built the module.
              type: list
              elements: str
            unfinished:
              description: The kernels for which a build was interrupted. DKMS refuses to build for
                them until C(dkms remove).
              type: list
              elements: str
            sources:
              description: Names and versions of the driver's modules whose source DKMS has, such as
                V(nvidia/580.178.04).
              type: list
              elements: str
            log:
              description: Path of the log of a failed build. V(null) if there is none.
              type: str
            failed:
              description: The kernel of the failed build. V(null) if it is unknown.
              type: str
            addable:
              description: The same of sources in C(/usr/src) that DKMS does not have. C(dkms
                install) adds them.
              type: list
              elements: str
            error:
              description: The first errors in the end of that log. V(null) if it has none.
              type: str
            builds:
              description: C(built), C(kernels), C(unfinished), C(log), C(failed) and C(error) of
                each source alone. The values above are those of all sources together.
              type: dict
        next_kernel:
          description: The newest installed kernel, which boots next unless the boot loader has
            other settings. V(null) if it is the running one.
          type: dict
          contains:
            release: {description: Its release., type: str}
            headers: {description: Whether its headers are installed., type: bool}
            module: {description: Whether it has the C(nvidia) module., type: bool}
        next_kernel_skipped:
          description: >-
            Whether this kernel had the module before the last boot, which started another kernel.
          type: bool
        headers_available:
          description: >-
            The installed kernels without headers whose headers apt can install, according to its
            index. V(null) if that was not asked, because a driver works, or if there is no index.
          type: list
          elements: str
        signing:
          description: The key with which DKMS signs modules. V(null) if Secure Boot is not on.
          type: dict
          contains:
            private_key:
              description: Path of its private key, or the line of DKMS's settings without a PIN, if
                the key is in a token or the line is not understood.
              type: str
            certificate:
              description: Path of its certificate, or the line of DKMS's settings about the key if
                that is not understood, without a PIN. V(null) if this file is missing.
              type: str
            state:
              description: V(enrolled), V(requested) (the firmware asks for a confirmation at the
                next boot), V(missing) or V(unknown).
              type: str
            error: {description: Why the state is unknown., type: str}
            missing_key:
              description: Path of its private key, if this file is missing. DKMS then creates
                another pair at its next build.
              type: str
            missing_certificate:
              description: Path of its certificate, if this file is missing.
              type: str
        programs:
          description: Files of C(nvidia-smi) and C(nvidia-persistenced), by name, with C(path),
            whether each C(exists) and is C(executable). A dangling link does not exist.
          type: dict
        libraries:
          description: Paths of C(libnvidia-ml.so.1) and C(libcuda.so.1), by name. V(null) if none
            of the usual directories has the library, or its link is dangling.
          type: dict
        persistenced:
          description: State of C(nvidia-persistenced.service).
          type: dict
          contains:
            installed: {description: Whether the unit exists., type: bool}
            enabled: &enabled
              description: Whether it starts at boot.
              type: bool
            active: {description: Whether it runs., type: bool}
        installer:
          description: What NVIDIA's C(.run) installer left, and what it would meet.
          type: dict
          contains:
            version:
              description: Version that it has installed. V(null) if it has not installed a driver.
              type: str
            uninstaller: {description: Whether C(/usr/bin/nvidia-uninstall) exists., type: bool}
            free_mib:
              description: Free space in C(/var/lib), where this collection lets it unpack itself.
              type: int
            runs_programs:
              description: Whether programs can run from there. V(false) with the option C(noexec).
              type: bool
            displays:
              description: Displays of X servers that run, such as V(:0).
              type: list
              elements: str
            stops:
              description: Whether packages have put C(/usr/lib/nvidia/alternate-install-present)
                there, which forbids the installer.
              type: bool
        persistence_off:
          description: The file of this unit that starts the daemon with C(--no-persistence-mode).
            V(null) if there is none.
          type: str
      sample:
        packages: {nvidia-driver-cuda: "580.178.04-1"}
        module_version: 580.178.04
        disk_version: 580.178.04
        module_files: [updates/dkms/nvidia.ko]
        uvm_readable: true
        flavour: open
        unblocked: []
        initramfs_outdated: false
        initramfs_program: /usr/sbin/update-initramfs
        ramdisk_space: {free: 402653184, needed: 41943040}
        modules_load: [nvidia_uvm]
        own_modules: [nvidia_uvm]
        parameters: {EnableStreamMemOPs: "0"}
        own_parameters: []
        own_pin: []
        own_device_rule: []
        parameters_are_new: false
        peermem: true
        dkms:
          built: true
          kernels: [6.1.0-26-amd64]
          unfinished: []
          sources: [nvidia/580.178.04]
          addable: []
          log: null
          failed: null
          error: null
          builds:
            nvidia/580.178.04:
              built: true
              kernels: [6.1.0-26-amd64]
              unfinished: []
              log: null
              failed: null
              error: null
        next_kernel: {release: 6.1.0-28-amd64, headers: true, module: true}
        next_kernel_skipped: false
        headers_available: null
        signing:
          private_key: /var/lib/dkms/mok.key
          certificate: /var/lib/dkms/mok.pub
          missing_key: null
          missing_certificate: null
          state: enrolled
          error: null
        programs:
          nvidia-smi: {path: /usr/bin/nvidia-smi, exists: true, executable: true}
          nvidia-persistenced: {path: /usr/bin/nvidia-persistenced, exists: true, executable: true}
        libraries:
          libnvidia-ml.so.1: /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1
          libcuda.so.1: /usr/lib/x86_64-linux-gnu/libcuda.so.1
        persistenced: {installed: true, enabled: true, active: true}
        installer:
          version: null
          uninstaller: false
          free_mib: 51200
          runs_programs: true
          displays: []
          stops: false
        persistence_off: null
    nvml:
      description: The GPUs according to the driver (C(nvidia-smi)).
      type: dict
      contains:
        driver_version: {description: Version that the driver reports., type: str}
        complete:
          description: Whether RV(gpu_node.nvml.devices) has every GPU of RV(gpu_node.pci). V(false)
            also if C(nvidia-smi) failed, or printed anything except rows of GPUs.
          type: bool
        devices:
          description: GPUs in the order of the driver. A GPU that the driver cannot reach has an
            C(error), and only the values that are known.
          type: list
          elements: dict
          contains:
            index:
              description: Index of the GPU. V(null) if the driver reports only its address.
              type: int
            uuid: {description: UUID of the GPU., type: str}
            name: {description: Model., type: str}
            memory_mib: {description: Memory in MiB., type: int}
            pci_address: {description: Address as in RV(gpu_node.pci)., type: str}
            minor: {description: Minor number of its device file., type: int}
            persistence_mode: {description: Whether persistence mode is enabled., type: bool}
            error:
              description: What the driver prints instead of a value, such as V([GPU is lost]), or
                why it cannot reach the GPU. V(null) without an error.
              type: str
        bound:
          description: The GPUs that the kernel module has, by address, with C(uuid) and C(minor),
            from C(/proc/driver/nvidia/gpus). V(null) if it does not know them.
          type: dict
        failure:
          description: An error of C(nvidia-smi) as a whole, or of one of the GPUs. V(null) if it
            exited with 0 and printed one row for each GPU and nothing else.
          type: dict
          contains:
            code:
              description:
                - One of V(not_installed), V(timeout), V(driver_not_loaded), V(library_mismatch),
                  V(library_not_found), V(no_devices), V(gpu_lost), V(gpu_error), V(no_permission),
                  V(blocked_by_system), V(inforom_corrupted), V(insufficient_power),
                  V(interrupt_problem), V(function_not_found), V(not_supported),
                  V(invalid_argument), V(unknown).
                - With any of them, there can be GPUs that still work.
              type: str
            exit_code:
              description: Exit code of C(nvidia-smi). V(null) if it did not exit in time.
              type: int
            message:
              description: What C(nvidia-smi) printed in addition to rows. The C(error) of a GPU if
                it printed nothing else.
              type: str
      sample:
        driver_version: 580.178.04
        complete: true
        devices:
          - index: 0
            uuid: GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c01
            name: Tesla P100-PCIE-16GB
            memory_mib: 16384
            pci_address: "0000:03:00.0"
            minor: 0
            persistence_mode: true
            error: null
        bound: {"0000:03:00.0": {uuid: GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c01, minor: 0}}
        failure: null
    fabric:
      description: The NVSwitches that connect the GPUs, and Fabric Manager, without which CUDA
        programs do not start there.
      type: dict
      contains:
        switches:
          description: NVSwitches on the PCI bus, with the keys as in RV(gpu_node.pci).
          type: list
          elements: dict
        ports:
          description: Addresses of the InfiniBand adapters through which Fabric Manager reaches the
            NVSwitches of B200 and B300, which are not on the PCI bus of the node.
          type: list
          elements: str
        packages:
          description: Installed packages of Fabric Manager, IMEX and the subnet manager, by name.
          type: dict
        manager:
          description: State of C(nvidia-fabricmanager.service). V(null) on a node without
            NVSwitches, and if systemd did not answer.
          type: dict
          contains:
            installed: {description: Whether the unit exists., type: bool}
            enabled: *enabled
            active: {description: Whether it runs., type: bool}
            state: {description: Its state in the words of systemd., type: str}
        imex:
          description: State of C(nvidia-imex.service), with C(installed), C(enabled), C(active) and
            C(state). V(null) as for RV(gpu_node.fabric.manager).
          type: dict
        process:
          description: Whether a process of Fabric Manager runs, as a service or in a container.
            V(false) on a node without NVSwitches.
          type: bool
        subnet_manager:
          description: Whether C(nvlsm) runs, which Fabric Manager needs on B200 and B300. V(false)
            on other nodes.
          type: bool
        modules:
          description: Loaded kernel modules, of C(mlx5_ib) and C(ib_umad), through which C(nvlsm)
            reaches the NVSwitches. Empty on other nodes.
          type: list
          elements: str
        missing_modules:
          description: Those of these modules that the running kernel does not have.
          type: list
          elements: str
        mode:
          description: C(FABRIC_MODE) of the configuration of Fabric Manager. V(null) without one.
          type: int
        states:
          description: Fabric states of the GPUs that can have one (Hopper and newer). Empty if the
            driver does not report them.
          type: list
          elements: dict
          contains:
            pci_address: {description: Address as in RV(gpu_node.pci)., type: str}
            state:
              description: What C(nvidia-smi) prints, such as V(Completed). V(N/A) without a fabric.
              type: str
            status: {description: "What C(nvidia-smi) prints, such as V(Success).", type: str}
            good:
              description: Whether the GPU has no fabric, or is part of one that is ready.
              type: bool
            clique:
              description: Number of the NVLink clique. V(null) if the driver does not report it.
              type: int
            health:
              description: Summary of the health of the fabric, such as V(Healthy). V(null) if the
                driver does not offer it, as on H100.
              type: str
            misconfigured:
              description: What is wrong with the configuration. V(None) if nothing is.
              type: str
            degraded:
              description: Parts of the health that are not as they should be, on some GPUs always.
              type: list
              elements: str
            healthy:
              description: Whether the driver reports nothing that is wrong with the links.
              type: bool
        log:
          description: Last lines that Fabric Manager logged, if it or C(nvlsm) does not run, or a
            state is not good.
          type: list
          elements: str
      sample:
        switches:
          - address: "0000:c4:00.0"
            vendor: "10de"
            device: "22a3"
            class: "0680"
            driver: nvidia-nvswitch
            numa_node: 1
        ports: []
        packages: {nvidia-fabricmanager: "580.178.04-1"}
        manager: {installed: true, enabled: true, active: true, state: 'active, running, success'}
        imex: {installed: false, enabled: false, active: false, state: 'inactive, dead, success'}
        process: true
        subnet_manager: false
        modules: []
        missing_modules: []
        mode: 0
        states:
          - pci_address: "0000:1b:00.0"
            state: Completed
            status: Success
            good: true
            clique: 0
            health: null
            misconfigured: null
            degraded: []
            healthy: true
        log: []
    health:
      description: >-
        What the GPUs report of themselves: C(nvidia-smi -q -x), which runs once if the first query
        of C(nvidia-smi) had an answer. V(null) means not offered, or not known.
      type: dict
      contains:
        cuda_version: {description: The newest CUDA version that the driver supports., type: str}
        error:
          description: Why there is no report, or only a part of it. V(null) if it is whole, or was
            not queried.
          type: str
        gpus:
          description: The GPUs with a report.
          type: list
          elements: dict
          contains:
            pci_address: {description: Address as in RV(gpu_node.pci)., type: str}
            uuid: {description: UUID of the GPU., type: str}
            model: {description: Name of the product., type: str}
            recovery_action:
              description: What the driver wants, such as V(Reset). V(None) if it wants nothing.
              type: str
            uncorrected:
              description: Memory errors since the last reset that could not be corrected.
              type: int
            uncorrected_sram:
              description: Those of them in SRAM, which no spare row replaces.
              type: int
            uncorrected_ever:
              description: The same since the GPU was built. These are over.
              type: int
            sram_threshold_exceeded:
              description: Whether there were more uncorrected SRAM errors than NVIDIA tolerates.
              type: bool
            unrepairable_memory:
              description: Whether the GPU has memory that it cannot repair.
              type: bool
            repairs_pending:
              description: What the next reset repairs, V(channel) and V(tpc).
              type: list
              elements: str
            remapped:
              description: Number of rows of memory for which spare rows are in use.
              type: int
            remap_pending: {description: Whether the next reset replaces rows., type: bool}
            remap_failed: {description: Whether a defective row could not be replaced., type: bool}
            pages_retired:
              description: Number of retired pages of memory, on GPUs before Ampere.
              type: int
            pages_pending: {description: Whether the next reset retires pages., type: bool}
            clocks:
              description: Why the clocks are lower than they could be, such as V(gpu_idle) and
                V(hw_thermal_slowdown).
              type: list
              elements: str
            link:
              description: The PCIe link.
              type: dict
              contains:
                width: {description: Number of lanes in use., type: int}
                max_width: {description: Number of lanes of the GPU., type: int}
                max_generation:
                  description: PCIe generation that both the GPU and its slot support.
                  type: int
            mig: {description: "MIG mode, V(Enabled) or V(Disabled).", type: str}
            mig_pending: {description: MIG mode after the next reset., type: str}
            mig_instances:
              description: The MIG instances. V(null) if the report does not list them.
              type: list
              elements: dict
              contains:
                index: {description: Number of the instance on its GPU., type: int}
                gpu_instance: {description: Number of its GPU instance., type: int}
                compute_instance: {description: Number of its compute instance., type: int}
                files:
                  description: >-
                    Its files below C(/dev/nvidia-caps). Empty if the driver does not list them.
                  type: list
                  elements: str
            compute_mode:
              description: Which programs may use the GPU, such as V(Default).
              type: str
            virtualization:
              description: What a virtual machine has of the GPU, such as V(VGPU) for a part.
              type: str
            license: {description: The words about the license of a part of a GPU., type: str}
      sample:
        cuda_version: "13.0"
        error: null
        gpus:
          - pci_address: "0000:1b:00.0"
            uuid: GPU-2d2a29f2-8f57-4bd6-9b43-9f1cd1a7e5a1
            model: NVIDIA H100 80GB HBM3
            recovery_action: None
            uncorrected: 0
            uncorrected_sram: 0
            uncorrected_ever: 0
            sram_threshold_exceeded: false
            unrepairable_memory: null
            repairs_pending: []
            remapped: 0
            remap_pending: false
            remap_failed: false
            pages_retired: null
            pages_pending: null
            clocks: [gpu_idle]
            link: {width: 16, max_width: 16, max_generation: 5}
            mig: Disabled
            mig_pending: Disabled
            mig_instances: []
            compute_mode: Default
            virtualization: None
            license: null
    kernel_log:
      description: Errors of GPUs and NVSwitches that the driver printed to the kernel log since it
        was loaded. Errors of a GPU that it has recovered from are left out.
      type: dict
      contains:
        sources:
          description: What was read, V(dmesg) and V(journal). The journal is read only if the
            driver was loaded before the first line of C(dmesg). Empty if neither can be read, and
            on a node without GPUs.
          type: list
          elements: str
        error:
          description: Why nothing was read, or not the whole time. V(null) otherwise.
          type: str
        loaded:
          description: When the driver was loaded, or was removed, or its load failed, in seconds
            since boot. V(null) if the log does not show it.
          type: int
        events:
          description: The errors, each with all its lines.
          type: list
          elements: dict
          contains:
            source:
              description: >-
                V(xid) of a GPU, V(sxid) of an NVSwitch, or V(lost) for a GPU that fell off the bus.
              type: str
            address: {description: Address as in RV(gpu_node.pci)., type: str}
            number: {description: Number of the Xid or SXid. V(null) for V(lost)., type: int}
            count: {description: Number of lines., type: int}
            first: {description: Time of the first line in seconds since boot., type: int}
            last: {description: Time of the last line in seconds since boot., type: int}
            last_date: {description: "Time of the last line, in UTC.", type: str}
            line:
              description: Words of the last line, or of the last one that has V(Fatal), at most 200
                characters.
              type: str
        unlisted:
          description: Number of lines about further errors, if there are more than 200 errors.
            Errors of programs and corrected errors of NVSwitches are left out first.
          type: int
        recovery:
          description: Code of the action that the driver asks for with Xid 154, by address. GPUs
            without such an action are left out.
          type: dict
        uuids: {description: "UUIDs of GPUs as the log shows them, by address.", type: dict}
        words:
          description: >-
            What the driver said about GPUs that it did not start, by address: lists of C(kind) and
            C(line). An empty address has lines that name no GPU.
          type: dict
      sample:
        sources: [dmesg]
        error: null
        loaded: 12
        events:
          - source: xid
            address: "0000:83:00.0"
            number: 79
            count: 1
            first: 155044
            last: 155044
            last_date: "2026-11-22T14:03Z"
            line: pid=1234, name=python3, GPU has fallen off the bus.
        unlisted: 0
        recovery: {"0000:83:00.0": 2}
        uuids: {"0000:83:00.0": GPU-e47efc7b-a9d6-5852-880e-5d93536eeb14}
        words: {}
    device_files:
      description: Character devices of the driver.
      type: list
      elements: dict
      contains:
        path: {description: Path., type: str}
        major: {description: Major number., type: int}
        minor: {description: Minor number., type: int}
        mode: {description: "Permissions, octal.", type: str}
        linked:
          description: Whether C(/dev/char) has a link to it, which runc needs.
          type: bool
      sample: [{path: /dev/nvidia0, major: 195, minor: 0, mode: "0666", linked: true}]
    device_obstacles:
      description: What stands in the place of the driver's device files. Verify and the role judge
        only those of the node's GPUs.
      type: list
      elements: dict
      contains:
        path: {description: Path., type: str}
        type: {description: "V(directory), V(file), V(link) to no device, or V(other).", type: str}
      sample: [{path: /dev/nvidia-uvm, type: directory}]
    device_majors:
      description: Major numbers of the driver in C(/proc/devices), by their names there.
      type: dict
      sample: {nvidia: 195, nvidia-uvm: 510}
    device_users:
      description: Processes that use the driver. V(null) without O(device_users).
      type: list
      elements: dict
      contains:
        pid: {description: Process id., type: int}
        command: {description: "Name of the program, at most 15 characters.", type: str}
        pod: {description: UID of its pod. V(null) if it is in no pod., type: str}
        computes:
          description: Whether it has C(/dev/nvidia-uvm) open, as programs of CUDA have.
          type: bool
      sample:
        - {pid: 4711, command: python3, pod: "3f1f3a52-9d0b-4a0e-8a55-0e6a9b1f4c21", computes: true}
    toolkit:
      description: The NVIDIA Container Toolkit.
      type: dict
      contains:
        packages: {description: "Versions of its installed packages, by name.", type: dict}
        version: {description: "Version of C(nvidia-ctk), else of the package.", type: str}
        programs:
          description: Files of its programs in C(/usr/bin), where its packages install them, as in
            RV(gpu_node.driver.programs).
          type: dict
        cdi_skipped:
          description: Whether the last start of C(nvidia-cdi-refresh.service) did nothing, because
            its C(ExecCondition) was not met.
          type: bool
        cdi_devices:
          description: The devices that C(nvidia-cdi-refresh.env) has the service list. V(null) if
            it lists everything.
          type: list
          elements: str
        cdi_has_all:
          description: Whether the service writes the device C(nvidia.com/gpu=all).
          type: bool
        config: {description: Path of its configuration file. V(null) if there is none., type: str}
        config_sha256:
          description: SHA-256 of this file without the edits of this collection. V(null) if there
            is none, or if it cannot be read.
          type: str
        runtimes:
          description: >-
            Programs that the NVIDIA runtime calls, as this file lists them. V(null) without a list.
          type: list
          elements: str
        mode:
          description: How the NVIDIA runtime gives GPUs to containers, as this file says, such as
            V(auto) and V(legacy). V(null) if it does not say it.
          type: str
        config_error:
          description: Why this file is invalid, or cannot be edited. V(null) if it can be.
          type: str
        settings:
          description: The settings at its top that are true or false, by name.
          type: dict
        annotation_prefixes:
          description: Prefixes of the annotations in which the NVIDIA runtime looks for CDI
            devices. Null if the configuration has none; then it has its own.
          type: list
          elements: str
        swarm_resource:
          description: Variables by which a container names its GPUs, instead of
            C(NVIDIA_VISIBLE_DEVICES) (C(swarm-resource) in this file).
          type: list
          elements: str
        char_dev_rules:
          description: udev rules that create the links in C(/dev/char), which runc needs.
          type: list
          elements: str
      sample:
        packages: {nvidia-container-toolkit: "1.20.1-1"}
        version: 1.20.1
        programs:
          nvidia-container-runtime:
            path: /usr/bin/nvidia-container-runtime
            exists: true
            executable: true
          nvidia-container-runtime-hook:
            path: /usr/bin/nvidia-container-runtime-hook
            exists: true
            executable: true
          nvidia-cdi-hook: {path: /usr/bin/nvidia-cdi-hook, exists: true, executable: true}
          nvidia-ctk: {path: /usr/bin/nvidia-ctk, exists: true, executable: true}
        cdi_skipped: false
        cdi_devices: null
        cdi_has_all: true
        config: /etc/nvidia-container-runtime/config.toml
        config_sha256: "5c2f4c21a9e8b3d90e0f8f6c1b7a4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c"
        runtimes: [runc, crun]
        mode: auto
        config_error: null
        settings:
          accept-nvidia-visible-devices-as-volume-mounts: true
          accept-nvidia-visible-devices-envvar-when-unprivileged: false
          disable-require: false
        annotation_prefixes: [cdi.k8s.io/]
        swarm_resource: []
        char_dev_rules: [/etc/udev/rules.d/71-metal-gpu-char-dev.rules]
    cdi:
      description: The specifications of the Container Device Interface (CDI).
      type: dict
      contains:
        spec_files: {description: Paths of the specification files., type: list, elements: str}
        kinds: {description: "Vendor and class of the devices in each file, by path.", type: dict}
        errors:
          description: Why files cannot be read or parsed, by path. The devices of these files are
            missing. The errors have file, line and column if these are known.
          type: dict
        devices:
          description: Qualified names of the devices in all files, each once.
          type: list
          elements: str
        names:
          description: Qualified names of the devices in each file that has some, by path.
          type: dict
        drivers:
          description: >-
            The versions of the driver whose libraries each file names, by path, if it names some.
          type: dict
        parts:
          description: The files below C(/dev/nvidia-caps) of MIG instances in each file that has
            some, by the file's path and the device's qualified name.
          type: dict
        majors:
          description: The major numbers of device files in each file that has some, by the file's
            path and that of the device file.
          type: dict
      sample:
        spec_files: [/var/run/cdi/nvidia.yaml]
        kinds: {/var/run/cdi/nvidia.yaml: nvidia.com/gpu}
        errors: {}
        devices: [nvidia.com/gpu=0, nvidia.com/gpu=all]
        names: {/var/run/cdi/nvidia.yaml: [nvidia.com/gpu=0, nvidia.com/gpu=all]}
        drivers: {}
        parts: {}
        majors: {}
    engines:
      description: The container engines, installed or not.
      type: dict
      contains:
        containerd:
          description: The containerd service.
          type: dict
          contains:
            installed: &installed
              description: Whether the program exists or runs.
              type: bool
            path: &path
              description: The program that its unit runs or starts, else the program in the
                C(PATH). V(null) if there is none.
              type: str
            version: &version
              description: Its version. V(null) if it cannot be determined.
              type: str
            version_error: &version_error
              description: >-
                What it printed for C(--version), if that is not a version. V(null) otherwise.
              type: str
            running: &running
              description: Whether its unit is active. V(null) if systemd did not report it.
              type: bool
            socket: &socket
              description: Path of its socket.
              type: str
            home:
              description: >-
                The Kubernetes distribution that contains this containerd: k3s, RKE2 or k0s.
                V(null) if it is C(containerd.service).
              type: dict
              contains:
                name: {description: Its name., type: str}
                unit: {description: The unit that runs it., type: str}
                is_managed: {description: Whether it generates the configuration file., type: bool}
                detects_runtimes:
                  description: Whether it looks for the NVIDIA runtime when it starts.
                  type: bool
                watched:
                  description: >-
                    Folder of drop-ins whose changes it applies without a restart of its own.
                  type: str
                template:
                  description: File of an admin, from which it generates the configuration. V(null)
                    without one.
                  type: str
                template_lists_runtimes:
                  description: Whether the template lists the runtimes that it finds. V(true)
                    without a template.
                  type: bool
                runtime_in_path:
                  description: Whether the C(PATH) of its process has the folder of the NVIDIA
                    runtime. V(true) if that cannot be read.
                  type: bool
                started_after_runtime:
                  description: Whether its containerd started when the NVIDIA runtime was there.
                  type: bool
                former_drop_ins:
                  description: Drop-ins in a format with which it does not start again.
                  type: list
                  elements: str
                host_containerd:
                  description: Whether C(containerd.service) runs, too.
                  type: bool
            runc: {description: "File of C(runc), as in RV(gpu_node.driver.programs).", type: dict}
            config:
              description: Its configuration.
              type: dict
              contains:
                path: &config_path
                  description: Path of its main configuration file.
                  type: str
                exists: &exists
                  description: Whether the file exists. V(null) if that cannot be read.
                  type: bool
                error:
                  description: Why the file cannot be read or why containerd rejects its
                    configuration, with file, line and column if these are known.
                  type: str
                source: &source
                  description: The source of C(runtimes) and C(default_runtime), which is a command
                    or the files that were read. If it is V(null), these values are unknown or the
                    engine's defaults.
                  type: str
                version: {description: "Version of the configuration, from the file.", type: int}
                imports:
                  description: Patterns of imported files, from the file.
                  type: list
                  elements: str
                cri_tables:
                  description: Tables of the CRI plugin in the file, the newest form first.
                  type: list
                  elements: str
                imported_cri:
                  description: Imported files with settings of the CRI plugin, also those that
                    imported files import.
                  type: list
                  elements: str
                imported_nvidia:
                  description: Imported files that have the runtime C(nvidia).
                  type: list
                  elements: str
                imported_folders:
                  description: The C(config_path) of registries in imported files, by path. The last
                    file that containerd reads counts.
                  type: dict
                missing_imports:
                  description: Imported files that do not exist, with the importing file.
                  type: list
                  elements: str
                outline: &outline
                  description: Its tables and keys, with empty lists and texts in place of values.
                  type: dict
                obstacle:
                  description: >-
                    Why M(metal.gpu.config_document) cannot edit a file that containerd accepts.
                  type: str
            needs_reload: &needs_reload
              description: Whether the files of its unit are newer than what systemd has loaded.
              type: bool
            changed_since_start:
              description: Files of its configuration that were written after its start, and so are
                not yet effective.
              type: list
              elements: str
            edited_since_start: &edited_since_start
              description: Files of its configuration that a role of this collection edited after
                its start. Someone else can have changed the others of C(changed_since_start), and
                may not be done.
              type: list
              elements: str
            cri_enabled:
              description: Whether its CRI plugin is enabled, which the kubelet needs. V(null) if
                that is unknown.
              type: bool
            cdi_enabled: {description: Whether CDI is enabled for pods., type: bool}
            default_runtime: &default_runtime
              description: Runtime of pods without a RuntimeClass.
              type: str
            runtimes:
              description: Runtimes by name, from C(containerd config dump), with C(type), C(binary)
                (empty for the default of the type), C(systemd_cgroup) and C(base_runtime_spec)
                (empty for containerd's own).
              type: dict
            registry:
              description: Where its CRI plugin looks for the settings of registries, with
                C(folders) (of C(hosts.toml) files; empty for the default of the version),
                C(mirrors) (registries with mirrors in its own configuration), C(tls) (servers with
                certificates there) and C(reads_lists) (whether it looks into several folders, or
                takes their list for one name).
              type: dict
            conflicts:
              description: >-
                What its configuration has that keeps its CRI plugin from loading at the next start.
              type: list
              elements: str
            missing_specs:
              description: Files of C(base_runtime_spec) that do not exist, with the runtime. Its
                CRI plugin does not load without them.
              type: list
              elements: str
        docker:
          description: The Docker Engine. The values are from the running engine, or else from its
            configuration file.
          type: dict
          contains:
            installed: {description: Whether the program C(dockerd) exists or runs., type: bool}
            path:
              description: Path of the program C(dockerd), determined as for containerd.
              type: str
            version: *version
            version_error: *version_error
            server_version: {description: Version of the running engine., type: str}
            client_path: {description: Path of the program C(docker)., type: str}
            running:
              description: Whether an engine answers or its unit is active. V(null) if systemd did
                not report it.
              type: bool
            answers:
              description: Whether it answers C(docker info) and C(docker ps) for root.
              type: bool
            enabled: *enabled
            socket_active:
              description: Whether systemd listens on the socket of Docker, C(docker.socket).
              type: bool
            needs_reload: *needs_reload
            changed_since_start:
              description: >-
                Files that Docker reads only at its start, and that were installed after its start.
                That is the program of the container toolkit that C(docker run --gpus) needs.
              type: list
              elements: str
            unread:
              description: What P(metal.gpu.docker_ce#role) has written since systemd last started
                Docker, or reloaded it if a reload is enough. C(set) and C(removed) are key paths of
                C(config). C(proxy) is whether its drop-in with the proxy is newer than the start of
                Docker.
              type: dict
            program:
              description: The C(path) of the program in its unit, and the C(file) that contains it.
              type: dict
            flags_source: {description: As in RV(gpu_node.kubelet.flags_source)., type: str}
            flags:
              description: Every flag of the engine, as in RV(gpu_node.kubelet.flags).
              type: list
              elements: dict
            proxy:
              description: Variables in the files of the unit that name a proxy, in capitals. Each
                has C(file), whether it is C(ours) (in the role's block), and C(sha256) of its
                value, which can have a password.
              type: dict
            config:
              description: C(daemon.json), or the file of C(--config-file). Values of the file may
                not be effective yet.
              type: dict
              contains:
                path: *config_path
                exists: *exists
                error:
                  description: Why the file cannot be read or is invalid, with file, line and column
                    if these are known.
                  type: str
                source: *source
                obstacle:
                  description: >-
                    Why M(metal.gpu.config_document) cannot edit a file that Docker accepts.
                  type: str
                settings: {description: The keys of the file., type: list, elements: str}
                outline: *outline
                fingerprints:
                  description: SHA-256 of each value as JSON, by its path of keys. A value itself
                    can be a secret.
                  type: dict
                default_runtime: {description: Default runtime in the file., type: str}
                runtimes:
                  description: Runtimes in the file by name, with C(type) and C(binary).
                  type: dict
                cdi_enabled:
                  description: Whether CDI is enabled by the file, or by default in this version.
                  type: bool
            default_runtime:
              description: Runtime of containers that do not specify one.
              type: str
            runtimes: &runtimes
              description: Runtimes by name, with C(type) and C(binary).
              type: dict
            live_restore:
              description: Whether containers keep running while the engine is stopped.
              type: bool
            data_root: {description: Directory of its containers and images., type: str}
            storage_driver:
              description: Its storage driver, or the name of its snapshotter. V(null) if unknown.
              type: str
            mirrors:
              description: Mirrors of C(docker.io) that the running engine uses, without a slash at
                their end. V(null) if unknown.
              type: list
              elements: str
            containers:
              description: Running containers, with C(id) and C(name). The kubelet created those
                that are C(of_pod). Docker removes an C(ephemeral) container when it exits. A
                C(noted) container ran when P(metal.gpu.docker_ce#role) started to replace Docker.
                One with C(gpus) has requested GPUs, as by C(--gpus), or named them as devices of
                CDI. One with C(gpus_by_hook) has got them by the hook of NVIDIA's runtime.
              type: list
              elements: dict
            made_with:
              description: Names of the containers that the kubelet did not create, running or not,
                keyed by their runtime. They cannot start without that runtime.
              type: dict
            interrupted:
              description: Containers, with C(id) and C(name), that ran when
                P(metal.gpu.docker_ce#role) replaced Docker, and do not run now.
              type: list
              elements: dict
            record_error:
              description: Why the record of these containers cannot be read. V(null) if it can be
                read, or if there is none.
              type: str
            purge_script:
              description: Script of the removed package C(docker.io). A purge of that package runs
                it, and so deletes all containers, images and volumes. V(null) if there is none.
              type: str
            group: {description: Members of the group C(docker)., type: list, elements: str}
            snap:
              description: Programs of a Docker that snapd installed.
              type: list
              elements: str
            rootless:
              description: Sockets and units of engines that users run without root.
              type: list
              elements: str
            cri_dockerd:
              description: cri-dockerd, which lets a kubelet use Docker.
              type: dict
              contains:
                installed: *installed
                version: {description: Its version., type: str}
                running: *running
                enabled: *enabled
                socket: *socket
            v1:
              description: Remains of nvidia-docker v1.
              type: dict
              contains:
                unit: {description: Whether its unit exists., type: bool}
                volumes: {description: Names of its volumes., type: list, elements: str}
                containers:
                  description: Containers with such volumes, running or not, C(id) and C(name).
                  type: list
                  elements: dict
            cgroup_driver: {description: "Its cgroup driver, V(systemd) or V(cgroupfs).", type: str}
            cdi_enabled: {description: Whether CDI is enabled., type: bool}
        crio:
          description: >-
            CRI-O. The values are from the running engine, or else from its configuration files.
          type: dict
          contains:
            installed: *installed
            path: *path
            version: *version
            version_error: *version_error
            running: *running
            config:
              description: Its configuration.
              type: dict
              contains:
                path: *config_path
                exists: *exists
                files:
                  description: The configuration files, in the order in which CRI-O reads them.
                  type: list
                  elements: str
                runtime_files:
                  description: >-
                    Files that have a table of a runtime, by its name. The last one counts.
                  type: dict
                without_monitor:
                  description: Those of C(runtime_files) whose table has no C(monitor_path),
                    although the runtime needs one.
                  type: dict
                monitor:
                  description: The monitor of all runtimes (C(conmon)) according to the files.
                  type: str
                defaults:
                  description: >-
                    The default runtime, by the file that chooses it. The last one counts.
                  type: dict
                error:
                  description: Why one of the files cannot be read or is invalid, with file, line
                    and column if these are known.
                  type: str
                obstacles:
                  description: Why files cannot be edited, although CRI-O accepts them, by path.
                  type: dict
                source: *source
            changed_since_start:
              description: >-
                Its configuration files and OCI hooks that were written after it was started.
              type: list
              elements: str
            edited_since_start: *edited_since_start
            monitor_in_path:
              description: Whether C(conmon) is in a folder of the PATH.
              type: bool
            monitor:
              description: The monitor of all runtimes (C(conmon)). V(null) if each has its own.
              type: str
            default_runtime: *default_runtime
            runtimes:
              description: Its runtimes by name, with C(type), C(binary), C(root), C(monitor),
                C(monitor_cgroup) and C(annotations). V(null) for what is not set.
              type: dict
            cdi_dirs:
              description: Folders from which it reads CDI specifications.
              type: list
              elements: str
            hooks_dirs:
              description: Folders from which it reads OCI hooks.
              type: list
              elements: str
            hooks:
              description: >-
                OCI hooks there that call a program of NVIDIA's, with C(path), C(program), C(always)
                (its condition of this name) and C(error) (why the file cannot be edited).
              type: list
              elements: dict
            auth_file:
              description: The file with logins of registries. V(null) without one.
              type: str
            openshift:
              description: What shows that it is a part of OpenShift. V(null) if nothing does.
              type: str
      sample:
        containerd:
          installed: true
          path: /usr/bin/containerd
          version: 2.4.2
          version_error: null
          running: true
          socket: /run/containerd/containerd.sock
          home: null
          runc: {path: /usr/bin/runc, exists: true, executable: true}
          config:
            path: /etc/containerd/config.toml
            exists: true
            version: 3
            imports: [/etc/containerd/conf.d/*.toml]
            cri_tables: [io.containerd.cri.v1.runtime]
            imported_cri: []
            imported_nvidia: []
            imported_folders: {}
            missing_imports: []
            outline: {}
            error: null
            obstacle: null
            source: containerd config dump
          needs_reload: false
          changed_since_start: []
          edited_since_start: []
          cri_enabled: true
          cdi_enabled: true
          default_runtime: runc
          runtimes:
            runc:
              type: io.containerd.runc.v2
              binary: ""
              systemd_cgroup: true
              base_runtime_spec: ""
          registry: {folders: [/etc/containerd/certs.d], mirrors: [], tls: [], reads_lists: false}
          conflicts: []
          missing_specs: []
        docker:
          installed: true
          path: /usr/bin/dockerd
          version: 29.8.1
          version_error: null
          server_version: 29.8.1
          client_path: /usr/bin/docker
          running: true
          answers: true
          enabled: true
          socket_active: true
          needs_reload: false
          changed_since_start: []
          unread: {set: [], removed: [], proxy: false}
          program: {path: /usr/bin/dockerd, file: /usr/lib/systemd/system/docker.service}
          flags_source: process
          flags:
            - name: -H
              value: fd://
              file: /usr/lib/systemd/system/docker.service
              variable: null
              effective: true
          proxy: {}
          config:
            path: /etc/docker/daemon.json
            exists: true
            error: null
            obstacle: null
            source: docker info
            settings: [log-opts, default-runtime, runtimes]
            outline: {}
            fingerprints: {}
            default_runtime: nvidia
            runtimes: {nvidia: {type: null, binary: /usr/bin/nvidia-container-runtime}}
            cdi_enabled: true
          default_runtime: nvidia
          runtimes:
            nvidia: {type: null, binary: /usr/bin/nvidia-container-runtime}
            runc: {type: null, binary: runc}
          live_restore: false
          data_root: /var/lib/docker
          storage_driver: overlay2
          mirrors: []
          containers:
            - id: "8d3f7a1c2b4e"
              name: registry
              of_pod: false
              ephemeral: false
              noted: false
              gpus: false
              gpus_by_hook: false
          made_with: {runc: [registry]}
          interrupted: []
          record_error: null
          purge_script: null
          group: [alice]
          snap: []
          rootless: []
          cri_dockerd:
            installed: true
            version: 0.4.3
            running: true
            enabled: true
            socket: /run/cri-dockerd.sock
          v1: {unit: false, volumes: [], containers: []}
          cgroup_driver: systemd
          cdi_enabled: true
        crio:
          installed: false
          path: null
          version: null
          version_error: null
          running: false
          config:
            path: /etc/crio/crio.conf
            exists: false
            files: []
            runtime_files: {}
            without_monitor: {}
            monitor: null
            defaults: {}
            error: null
            obstacles: {}
            source: null
          changed_since_start: []
          edited_since_start: []
          monitor_in_path: false
          monitor: null
          default_runtime: null
          runtimes: {}
          cdi_dirs: [/etc/cdi, /var/run/cdi]
          hooks_dirs: [/usr/share/containers/oci/hooks.d]
          hooks: []
          auth_file: null
          openshift: null
    kubelet:
      description: The kubelet.
      type: dict
      contains:
        installed: *installed
        path: *path
        version: *version
        version_error: *version_error
        running: *running
        unit_state:
          description: >-
            State of its unit, as systemd reports it, with C(active), C(sub) and C(result).
          type: dict
        distribution:
          description: The Kubernetes distribution that contains the kubelet of this node, such as
            k3s, with C(name) and C(unit). V(null) if the kubelet is C(kubelet.service).
          type: dict
        rootless:
          description: The distribution that a user runs without root, with C(name) and C(unit). It
            is judged by the name of the user's unit, and only a node without another kubelet is
            refused for it. V(null) if there is none.
          type: dict
        node_name:
          description: Name of the node in the cluster. It is the flag C(--hostname-override), else
            the name in the kubelet's client certificate, else the name of the host.
          type: str
        own_name:
          description: Name under which the kubelet registers at its next start. V(null) if a cloud
            provider inside the kubelet determines it, or if a shell or systemd expands it.
          type: str
        joined_name:
          description: Name in the kubelet's client certificate. V(null) without one.
          type: str
        devices:
          description: What the kubelet's checkpoint says about devices of C(nvidia.com). V(null) if
            it cannot be read; it is an internal file of the kubelet. C(registered) are the ids of
            the healthy devices by resource. C(holdings) are the devices that containers have, each
            with the UID of its C(pod), the C(container), the C(resource) and the C(devices).
          type: dict
        flags_source:
          description: Source of the effective flags. V(process) is the command line of the running
            process, V(unit) is what systemd would start. V(null) if there is neither.
          type: str
        flags:
          description: Every flag, with its C(name) and C(value), the C(file) that contains it and
            the C(variable) that contains it there. A flag that is not C(effective) is in a file,
            but another file overrides its variable, or the unit does not use the variable. The
            process runs with a flag without a C(file), but no file of the unit contains it. Values
            that are not needed are V(***), because they may be secret.
          type: list
          elements: dict
        config:
          description: The C(path) of C(--config), whether the file C(exists), and the C(error) why
            it is unreadable or invalid, with line and column if these are known. C(obstacle) is why
            M(metal.gpu.config_document) cannot edit a file that the kubelet accepts.
          type: dict
        config_dir:
          description: The C(path) of the directory of C(--config-dir), and its C(files), each with
            C(path), C(error) and C(obstacle).
          type: dict
        feature_gates:
          description: >-
            Every place that sets a feature gate, with the C(name) and the C(value) of the gate, and
            the C(file). C(where) is V(flag) or V(config). C(flag) is the variable that contains the
            flag, else V(--feature-gates). C(effective) is as in RV(gpu_node.kubelet.flags).
          type: list
          elements: dict
        health_url:
          description: URL of the kubelet's health check. V(null) if it is disabled.
          type: str
        endpoint: {description: Socket of the container runtime., type: str}
        last_error:
          description: Why it failed, from its journal. V(null) while it runs.
          type: str
        needs_reload: *needs_reload
        changed_since_start:
          description: >-
            Files of its settings that were written after its start, and so are not yet effective.
          type: list
          elements: str
      sample:
        installed: true
        path: /usr/bin/kubelet
        version: 1.37.1
        version_error: null
        running: true
        unit_state: {active: active, sub: running, result: success}
        distribution: null
        rootless: null
        node_name: gpu-1
        own_name: gpu-1
        joined_name: gpu-1
        devices:
          registered: {nvidia.com/gpu: [GPU-0f5a7b7e-1c9e-4a54-9e0f-3c3c1c6d2f10]}
          holdings:
            - pod: "5c4fc37b-8d3a-4f9c-9d41-6f1c2f5f0a77"
              container: training
              resource: nvidia.com/gpu
              devices: [GPU-0f5a7b7e-1c9e-4a54-9e0f-3c3c1c6d2f10]
        flags_source: process
        flags:
          - name: --config
            value: /var/lib/kubelet/config.yaml
            file: /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf
            variable: KUBELET_CONFIG_ARGS
            effective: true
        config: {path: /var/lib/kubelet/config.yaml, exists: true, error: null, obstacle: null}
        config_dir: {path: null, files: []}
        feature_gates:
          - name: DevicePlugins
            value: true
            file: /etc/default/kubelet
            where: flag
            flag: KUBELET_EXTRA_ARGS
            effective: true
        health_url: http://127.0.0.1:10248/healthz
        endpoint: unix:///run/containerd/containerd.sock
        last_error: null
        needs_reload: false
        changed_since_start: []
    cgroup:
      description: Control groups.
      type: dict
      contains:
        version: {description: V(1) or V(2)., type: int}
        driver: {description: The cgroup driver that is configured for the kubelet., type: str}
      sample: {version: 2, driver: systemd}
    nfs:
      description: What mounts NFS exports, and what the kernel can mount.
      type: dict
      contains:
        units:
          description: The lines of the units that P(metal.gpu.nfs_mounts#role) wrote, by path.
          type: dict
        mixed:
          description: Paths of those of RV(gpu_node.nfs.units) that have other lines, too.
          type: list
          elements: str
        unread:
          description: Names of those that systemd has not read since they were written.
          type: list
          elements: str
        others: {description: Paths of other units that mount something., type: list, elements: str}
        fstab: {description: Where /etc/fstab mounts something., type: list, elements: str}
        mounted:
          description: >-
            File systems of disks and of the network that are mounted now, and automounts: C(path),
            C(type), C(source), C(read_only), and C(version) of NFS.
          type: list
          elements: dict
        users:
          description: Processes that keep an NFS mount of P(metal.gpu.nfs_mounts#role) after the
            host has unmounted it, one of each container, by the path of the mount.
          type: dict
        enabled:
          description: The automounts that systemd starts at boot.
          type: list
          elements: str
        kernel:
          description: Whether the running kernel can mount NFS 4, or has a module for it.
          type: bool
        automount: {description: Whether it can have automounts., type: bool}
      sample:
        units: {}
        mixed: []
        unread: []
        others: [/usr/lib/systemd/system/tmp.mount]
        fstab: [/]
        mounted: [{path: /, type: ext4, source: /dev/sda1, read_only: false, version: ""}]
        users: {}
        enabled: []
        kernel: true
        automount: true
    packages:
      description: The installed packages among O(packages) of the node's own architecture, by name,
        with C(version). C(held) is whether C(apt-mark) or C(dnf versionlock) holds that. The list
        is incomplete if RV(gpu_node.package_manager) has an C(error).
      type: dict
      sample: {python3-debian: {version: 0.1.49, held: false}}
    repositories:
      description: The existing repositories among O(repositories), by name. C(path) is the path of
        the file. C(entries) are the stanzas of a C(.sources) file or the sections of a C(.repo)
        file, with fields in lower case. C(error) is why the file cannot be read. C(key) is the text
        of C(/etc/pki/rpm-gpg/RPM-GPG-KEY-*) of that name, V(null) if there is none. Only fields
        about the origin of packages are included. A hash replaces credentials in an address, and
        C(login) is one of the user and the password of a C(.repo) file; different credentials have
        different hashes.
      type: dict
      sample:
        nvidia-cuda:
          path: /etc/apt/sources.list.d/nvidia-cuda.sources
          entries: [{types: deb, uris: 'https://mirror.example.org/cuda/'}]
          key: null
          error: null
    package_sources:
      description: Addresses that apt and dnf get packages from, from all files. Without
        credentials, without lists of mirrors, and without disabled repositories.
      type: list
      elements: dict
      contains:
        path: {description: The file., type: str}
        url: {description: The address. Variables are not replaced., type: str}
        suite: {description: "The suite, empty for dnf.", type: str}
        section: {description: "The section of a C(.repo) file, empty for apt.", type: str}
        components:
          description: The components, empty for dnf and for a flat repository.
          type: str
        signed_by:
          description: The keyring or the fingerprints that apt checks signatures with. V(embedded)
            if the file contains the key itself, empty if none is set.
          type: str
        unsigned:
          description: The options that disable signature checks. Empty if signatures are checked.
          type: str
        credentials: {description: Whether the address has credentials., type: bool}
      sample:
        - path: /etc/apt/sources.list
          url: https://mirror.example.org/debian
          suite: bookworm
          section: ""
          components: main
          signed_by: ""
          unsigned: ""
          credentials: false
    module_streams:
      description: Enabled streams of dnf's modules, by name of the module.
      type: dict
      sample: {nvidia-driver: 580-open}
    ours:
      description: What this collection changed on the node.
      type: dict
      contains:
        files:
          description: Files that this collection wrote in directories of the system. Each has a
            block with the mark of its role. Lines outside the block are the admin's.
          type: list
          elements: str
        edits:
          description: Files that M(metal.gpu.config_document) edited and can restore, each with its
            C(path) and the C(actor) of the edits. C(path) is the one that the configuration of an
            engine has, also if that is a link. Each of the C(changes) has the C(key) path and the
            value C(before) and the fingerprint of the value C(after), each V(null) for none.
            C(untouched) is whether the file has not changed since then. C(error) is why the history
            cannot be read, and so the edits cannot be undone.
          type: list
          elements: dict
        packages:
          description: Records of the packages that each role installed, by name of the role.
            C(path) is the path of the record. Each of the C(packages) has a C(version) and the
            version C(before), V(null) for none. C(version) is the desired version, or the installed
            version if the role asked for any. C(nvidia-container-toolkit-base) also has
            C(config_sha256), the SHA-256 of the configuration file that the package created, if
            there was none before. C(error) is why the record cannot be read or is invalid.
          type: dict
      sample:
        files: [/etc/modprobe.d/metal-gpu-nouveau.conf]
        edits:
          - path: /etc/docker/daemon.json
            actor: metal.gpu.nvidia_container_runtime
            changes:
              - key: [default-runtime]
                before: null
                after: "2f914dea2e9754b2924f4f0d36eaec29df2ca64b4b1d59c4de27e4c93f4936e5"
            untouched: true
            error: null
        packages:
          nvidia_driver:
            path: /var/lib/metal-gpu/packages/nvidia_driver.json
            packages: {nvidia-driver-cuda: {version: "580.178.04-1", before: null}}
            error: null
    registries:
      description: >-
        The files in which container engines keep registries, mirrors and logins. Their values are
        there as hashes with a key that each run makes anew, so only one run can compare them.
      type: dict
      contains:
        files:
          description: The files by path, with C(mode), C(error), C(obstacle) (why it cannot be
            edited), C(values) (hashes by key path), C(items) (hashes of items of lists, by key
            path), C(ours) (key paths of values of the role C(registries) that are still there),
            C(our_items) (items of lists, likewise), C(our_folders) (which it has made for the file)
            and C(helpers) (registries whose logins a program has; C(*) for all).
          type: dict
        certificates:
          description: Hashes of the certificates and keys that the role has written, by path.
          type: dict
        exposed:
          description: Keys of these that others than root can read.
          type: list
          elements: str
        created: {description: Folders that the role has made for them., type: list, elements: str}
        folders:
          description: Folders of registries, with the names in them. The folders above them are
            there without names.
          type: dict
        unread:
          description: Files that the role has changed since the start of their engine.
          type: list
          elements: str
        prefixes:
          description: Names that CRI-O has settings for, with the file of the admin.
          type: dict
      sample:
        files: {}
        certificates: {}
        exposed: []
        created: []
        folders: {/etc: [], /etc/containerd: [], /etc/containerd/certs.d: []}
        unread: []
        prefixes: {}
    signed_modules:
      description: The package of Ubuntu's signed modules that the newest installed kernel lacks.
        V(null) if it has them, and if the running kernel has none either.
      type: dict
      contains:
        package: {description: The name of the package., type: str}
        error:
          description: Why apt does not install it without changing the kernel or the driver.
            V(null) if it does.
          type: str
      sample: {package: linux-modules-nvidia-580-server-open-6.8.0-153-generic, error: null}
    package_manager:
      description: Whether the package manager is usable now.
      type: dict
      contains:
        error:
          description: >-
            Why the installed packages or their relations are unknown. V(null) if they are known.
          type: str
        lock:
          description: The process that holds a lock of the package manager, with C(pid), C(command)
            and the C(path) of the lock. V(null) if no process holds one.
          type: dict
        interrupted:
          description: Whether dpkg was interrupted, and must first finish its pending changes.
          type: bool
        unfinished:
          description: >-
            The packages among O(packages) whose installation dpkg did not finish, by name, with
            C(version) and C(state). V(unpacked) means that dpkg has not tried to configure the
            package. V(half-configured) and V(half-installed) mean that it tried and failed. The
            name of a package of another architecture ends with a colon and the architecture.
          type: dict
        automatic:
          description: Packages that apt installed as dependencies, among the driver's packages, the
            packages that a role installed, and RV(gpu_node.package_manager.dependants). Empty if no
            role has a record, and on systems with rpm.
          type: list
          elements: str
        dependants:
          description: Installed packages that need a package of the driver or of a role, directly
            or indirectly, by name. Each dependency is a list of the installed packages that satisfy
            it. If apt removes all packages of a list, it removes the package. Empty if no role has
            a record, and on systems with rpm.
          type: dict
      sample:
        error: null
        lock:
          path: /var/lib/dpkg/lock-frontend
          pid: 812
          command: /usr/bin/python3 /usr/bin/unattended-upgrade
        interrupted: false
        unfinished: {nvidia-kernel-open-dkms: {version: "550.163.01-2", state: half-configured}}
        automatic: [libcuda1]
        dependants: {nvidia-driver-cuda: [[libcuda1]]}
failures:
  description: The components that could not be observed, because this collection has a defect. Then
    the task fails, so that nothing is planned from an incomplete observation.
  returned: if there are any
  type: list
  elements: dict
  contains:
    component: {description: Name of the component., type: str}
    error: {description: "The error, without credentials.", type: str}
    place: {description: "Files and lines of the code, the innermost last.", type: str}
  sample:
    - component: kubelet
      error: "KeyError: 'kubelet.service'"
      place: plugins/plugin_utils/components/kubelet/observed.py:101 in _setup
"""

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

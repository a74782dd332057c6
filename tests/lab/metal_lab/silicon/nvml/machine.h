/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* The machine as the driver sees it: a text at the end of libnvidia-sandboxutils.so.<version>, the
 * library next to this one. The simulated kernel module always writes it into the same inode. The
 * NVIDIA runtime mounts that library into containers, like every library of the driver. So they see
 * the same machine, and faults immediately. Without this text, no driver is loaded.
 *
 *   metal-lab-machine 1
 *   driver_version 580.178.04
 *   uvm 510
 *   nvidia_smi hang
 *   gpu minor=0 address=0000:03:00.0 uuid=GPU-... name="Tesla P100-PCIE-16GB" ... state=ok
 *   caps 508
 *   profile gpu=GPU-... name=1g.5gb slices=1 number=19 most=7 multiprocessors=14 memory_mib=4864
 *   instance gpu=GPU-... index=0 gi=7 ci=0 uuid=MIG-... number=19 gi_minor=66 ci_minor=67
 *   end
 *
 * A GPU behind NVSwitches has trained=0 or trained=1: whether Fabric Manager has trained it. It can
 * also have fabric=N, its state as NVML shows it. Further keys say what is wrong with a GPU that
 * works: see struct health.
 *
 * Only CUDA reads these: cuda=N, the error of computing on a GPU; wrong=1, its results are wrong;
 * hang=1, its kernels do not end; peer=none or peer=broken, what is wrong with its copies from and to other GPUs.
 *
 * The line caps has the major number of the files of MIG instances. A profile is a way to split a GPU,
 * and an instance is a part of one with mig_mode=1, with the number of its profile.
 *
 * The line uvm has the major number of nvidia_uvm, and exists if that module is loaded. The line
 * nvidia_smi exists only if that program misbehaves: see nvidia-smi/main.c.
 */
#ifndef METAL_LAB_MACHINE_H
#define METAL_LAB_MACHINE_H

#include <stdbool.h>

/* Tests have /dev and /proc in another folder. */
#ifndef ROOT
#define ROOT ""
#endif

enum { MAX_GPUS = 64, MAX_PROFILES = 8, MAX_INSTANCES = 8 };

/* What a GPU reports of itself; all are 0 if it is healthy. */
struct health {
    unsigned ecc;            /* uncorrected errors since the last reset */
    unsigned sram_threshold; /* too many SRAM errors */
    unsigned remap;          /* bits: 1 pending, 2 failed */
    unsigned pages;          /* pages to retire */
    unsigned recovery;       /* nvml.h, nvmlDeviceGpuRecoveryAction_t */
    unsigned clocks;         /* nvml.h, nvmlClocksEventReason*, besides "idle" */
    unsigned width;          /* lanes in use, if fewer than 16 */
    unsigned generation;     /* of the slot, if older than the GPU's */
    unsigned compute;        /* nvml.h, nvmlComputeMode_t */
    unsigned mig_pending;    /* the MIG mode changes with the next reset */
};

/* A way to split a GPU. */
struct profile {
    char name[16];
    unsigned slices, number, most, multiprocessors, memory_mib;
};

/* A part of a GPU: a GPU instance with the only compute instance in it. */
struct instance {
    bool present; /* listed, and on the node or with its files in /dev/nvidia-caps */
    unsigned index, gi, ci, gi_minor, ci_minor;
    char uuid[64];
    struct profile profile;
};

struct gpu {
    bool present;     /* named by the newest description and its device file exists */
    unsigned fault;   /* its Xid error, or 0 */
    unsigned refused;     /* NVML's code for a request of its handle, 0 for success */
    unsigned unreachable; /* NVML's code for values that only the GPU has, 0 for success */
    bool inforom_corrupted;
    bool persistence;
    long persistence_offset; /* of its digit in the file */
    unsigned minor, domain, bus, device, pci_id, subsystem_id, class_;
    unsigned cc_major, cc_minor, architecture, brand, memory_mib, power_w;
    int numa_node;
    bool mig_capable, mig; /* mig: its MIG mode is on */
    int profile_count;
    struct profile profiles[MAX_PROFILES];
    struct instance instances[MAX_INSTANCES];
    unsigned fabric; /* nvml.h, NVML_GPU_FABRIC_STATE_*: 0 without NVSwitches */
    enum { NO_NVSWITCH, UNTRAINED, TRAINED } nvswitch;
    unsigned cuda; /* the error of computing on it, or 0 */
    bool wrong, hang;
    enum { PEER_WORKS, PEER_NONE, PEER_BROKEN } peer;
    char uuid[64], serial[32], name[96];
    struct health health;
};

struct machine {
    char driver_version[64]; /* of the loaded module; empty: none is loaded */
    long uvm_major;          /* of the loaded module nvidia_uvm; -1: none is loaded */
    long caps_major;         /* of the files of MIG instances; -1: the driver has none */
    char smi[64];            /* how nvidia-smi misbehaves; empty: it works */
    int gpu_count;           /* slots in use: a GPU keeps its slot, and so its handle, for good */
    struct gpu gpus[MAX_GPUS];
};

/* Reads the description again if the file has changed since. */
void machine_refresh(struct machine *machine);

/* Whether the driver of this library's version is loaded, and reachable. */
enum machine_driver { DRIVER_READY, DRIVER_MISSING, DRIVER_OF_OTHER_VERSION };
enum machine_driver machine_open(struct machine *machine);

/* Whether a device file is there: /dev/nvidiactl, or that of a GPU. Like the real NVML, this creates
 * it for programs of root on the node. */
enum { NVIDIA_MAJOR = 195, CONTROL_MINOR = 255 };
bool machine_device_file(unsigned minor);

/* Creates the files of all MIG instances, for programs of root on the node. */
void machine_instance_files(const struct machine *machine);

/* Whether /dev/nvidia-uvm is there, with the number of the loaded module. Only CUDA needs it. */
bool machine_uvm_file(const struct machine *machine);

/* The place of a GPU on the bus: libraries count GPUs in this order. */
unsigned long long machine_place(const struct gpu *gpu);

/* The path of the description, or NULL. */
const char *machine_path(void);

#endif

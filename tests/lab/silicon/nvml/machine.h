/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* The machine as the driver knows it: a text appended to libnvidia-sandboxutils.so.<version>, the
 * library beside this one. The simulated kernel module writes it, always into the same inode, so
 * that containers, into which the NVIDIA runtime mounts that library like any other of the driver,
 * see the same machine and live faults. An absent text means that no driver is loaded.
 *
 *   metal-lab-machine 1
 *   driver_version 580.178.04
 *   nvidia_smi hang
 *   gpu minor=0 address=0000:03:00.0 uuid=GPU-... name="Tesla P100-PCIE-16GB" ... state=ok
 *   end
 *
 * The line nvidia_smi is there only where that program misbehaves; see nvidia-smi/main.c.
 */
#ifndef METAL_LAB_MACHINE_H
#define METAL_LAB_MACHINE_H

#include <stdbool.h>

/* Tests plant /dev and /proc somewhere else. */
#ifndef ROOT
#define ROOT ""
#endif

enum { MAX_GPUS = 64 };

struct gpu {
    bool present;     /* named by the newest description and its device file exists */
    unsigned fault;   /* XID of what is wrong with it, 0 where nothing is */
    unsigned refused;     /* NVML's code for whoever asks for its handle, 0 where it gives one */
    unsigned unreachable; /* NVML's code for what only the GPU itself can answer */
    bool inforom_corrupted;
    bool persistence;
    long persistence_offset; /* of its digit in the file */
    unsigned minor, domain, bus, device, pci_id, subsystem_id, class_;
    unsigned cc_major, cc_minor, architecture, brand, memory_mib, power_w;
    int numa_node;
    bool mig_capable;
    char uuid[64], serial[32], name[96];
};

struct machine {
    char driver_version[64]; /* of the loaded module; empty: none is loaded */
    char smi[64];            /* how nvidia-smi misbehaves; empty: it does not */
    int gpu_count;           /* slots in use: a GPU keeps its slot, and so its handle, for good */
    struct gpu gpus[MAX_GPUS];
};

/* Reads the description again if the file has changed since. */
void machine_refresh(struct machine *machine);

/* Where the description is, or NULL. */
const char *machine_path(void);

/* The loaded module's version as /proc tells it on the node itself (there is no such file in
 * containers). */
bool machine_proc_version(char *version, unsigned size);

#endif

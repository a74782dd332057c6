/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* What the files of the stand-in share: NVML, opened at run time, and the chosen GPUs. */
#ifndef METAL_LAB_SMI_H
#define METAL_LAB_SMI_H

#include <stddef.h>

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "nvml.h"

#define MIB (1024ULL * 1024ULL)

enum { MAX_DEVICES = 64, MAX_FIELDS = 64, CELL_SIZE = 128 };

#define NVML_FUNCTIONS(X)                                                                         \
    X(nvmlInit_v2) X(nvmlShutdown) X(nvmlErrorString) X(nvmlSystemGetDriverVersion)               \
    X(nvmlSystemGetCudaDriverVersion_v2) X(nvmlDeviceGetCount_v2)                                 \
    X(nvmlDeviceGetHandleByIndex_v2) X(nvmlDeviceGetHandleByUUID)                                 \
    X(nvmlDeviceGetHandleBySerial) X(nvmlDeviceGetHandleByPciBusId_v2) X(nvmlDeviceGetIndex)      \
    X(nvmlDeviceGetName) X(nvmlDeviceGetUUID) X(nvmlDeviceGetSerial) X(nvmlDeviceGetPciInfo_v3)   \
    X(nvmlDeviceGetPciInfoExt) X(nvmlDeviceGetMemoryInfo_v2) X(nvmlDeviceGetPersistenceMode)      \
    X(nvmlDeviceSetPersistenceMode) X(nvmlDeviceGetCudaComputeCapability) X(nvmlDeviceGetMigMode) \
    X(nvmlDeviceGetEccMode) X(nvmlDeviceGetTotalEccErrors) X(nvmlDeviceGetTemperature)            \
    X(nvmlDeviceGetPowerUsage) X(nvmlDeviceGetEnforcedPowerLimit)                                 \
    X(nvmlDeviceGetUtilizationRates) X(nvmlDeviceGetPerformanceState)                             \
    X(nvmlDeviceGetComputeMode) X(nvmlDeviceGetDisplayActive) X(nvmlDeviceValidateInforom)  \
    X(nvmlDeviceGetGpuFabricInfo) X(nvmlDeviceGetGpuFabricInfoV) X(nvmlDeviceGetArchitecture)     \
    X(nvmlDeviceGetMinorNumber) X(nvmlDeviceGetFieldValues) X(nvmlDeviceGetRemappedRows)          \
    X(nvmlDeviceGetRetiredPagesPendingStatus) X(nvmlDeviceGetSramEccErrorStatus)                  \
    X(nvmlDeviceGetRepairStatus) X(nvmlDeviceGetCurrentClocksEventReasons)                        \
    X(nvmlDeviceGetCurrPcieLinkWidth) X(nvmlDeviceGetMaxPcieLinkWidth)                            \
    X(nvmlDeviceGetCurrPcieLinkGeneration) X(nvmlDeviceGetMaxPcieLinkGeneration)                  \
    X(nvmlDeviceGetMaxMigDeviceCount) X(nvmlDeviceGetMigDeviceHandleByIndex)                      \
    X(nvmlDeviceGetGpuInstanceId) X(nvmlDeviceGetComputeInstanceId)

#define DECLARE(function) __typeof__(function) *function;
struct nvml {
    NVML_FUNCTIONS(DECLARE)
    const char *(*metal_lab_smi)(void);
    void (*metal_lab_instance_files)(void);
    const char *(*metal_lab_profile)(nvmlDevice_t instance);
    void (*metal_lab_bus_id)(unsigned index, char *text, size_t size);
};

struct device {
    nvmlDevice_t handle;
    unsigned index;
    char bus_id[32];
};

extern struct nvml nvml;
extern struct device devices[MAX_DEVICES];
extern unsigned device_count; /* the chosen ones */

/* Whether a fault of the program has this word. */
int misbehaves(const char *word);

/* Prints the report of -q -x about the chosen GPUs. */
void print_report(void);

#endif

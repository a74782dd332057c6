/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* NVML for simulated GPUs: what a GPU reports of its memory, its link and its clocks. Which
 * generation offers what: recorded/nvidia_smi_xml.yml. */

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#pragma GCC visibility push(default)
#include "nvml.h"
#pragma GCC visibility pop

#include "reach.h"

#include <string.h>

enum { LANES = 16 };

static bool remaps_rows(const struct gpu *gpu)
{
    return gpu->architecture >= NVML_DEVICE_ARCH_AMPERE;
}

/* Of a GPU in MIG mode, the driver does not report them. */
static bool shows_rows(const struct gpu *gpu)
{
    return remaps_rows(gpu) && !gpu->mig;
}

/* The generation that both the GPU and its slot support. */
static unsigned link_generation(const struct gpu *gpu)
{
    if (gpu->health.generation)
        return gpu->health.generation;
    if (gpu->architecture >= NVML_DEVICE_ARCH_HOPPER)
        return 5;
    return gpu->architecture >= NVML_DEVICE_ARCH_AMPERE ? 4 : 3;
}

/* Defines a function that returns one value, by a statement with `gpu` and `value`. */
#define ANSWER(function, type, offered, statement)        \
    nvmlReturn_t function(nvmlDevice_t device, type *value) \
    {                                                     \
        struct gpu gpu;                                   \
        nvmlReturn_t result = metal_lab_reach(device, &gpu); \
                                                          \
        if (!value)                                       \
            return NVML_ERROR_INVALID_ARGUMENT;           \
        if (result == NVML_SUCCESS && !(offered))         \
            return NVML_ERROR_NOT_SUPPORTED;              \
        if (result == NVML_SUCCESS) {                     \
            statement;                                    \
        }                                                 \
        return result;                                    \
    }

ANSWER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, true,
       *value = gpu.health.width ? gpu.health.width : LANES)
ANSWER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, true, *value = LANES)
ANSWER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, true, *value = link_generation(&gpu))
ANSWER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, true, *value = link_generation(&gpu))
ANSWER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, true,
       *value = nvmlClocksEventReasonGpuIdle | gpu.health.clocks)
ANSWER(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t, !remaps_rows(&gpu),
       *value = gpu.health.pages ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED)
ANSWER(nvmlDeviceGetSramEccErrorStatus, nvmlEccSramErrorStatus_t, remaps_rows(&gpu),
       value->bThresholdExceeded = gpu.health.sram_threshold)
ANSWER(nvmlDeviceGetRepairStatus, nvmlRepairStatus_t, gpu.architecture >= NVML_DEVICE_ARCH_ADA,
       value->bChannelRepairPending = value->bTpcRepairPending = 0)

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected,
                                       unsigned int *uncorrected, unsigned int *pending,
                                       unsigned int *failed)
{
    struct gpu gpu;
    nvmlReturn_t result = metal_lab_reach(device, &gpu);

    if (result == NVML_SUCCESS && !shows_rows(&gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS) {
        *corrected = 0;
        *uncorrected = gpu.health.remap != 0;
        *pending = (gpu.health.remap & 1) != 0;
        *failed = (gpu.health.remap & 2) != 0;
    }
    return result;
}

/* Only the recovery action is a field with a value. */
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    struct gpu gpu;
    nvmlReturn_t result = metal_lab_reach(device, &gpu);

    for (int i = 0; result == NVML_SUCCESS && i < count; i++) {
        values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        if (values[i].fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION) {
            values[i].nvmlReturn = NVML_SUCCESS;
            values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
            values[i].value.uiVal = gpu.health.recovery;
        }
    }
    return result;
}

/* GPUs up to Hopper have no summary of the health. */
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info)
{
    struct gpu gpu;
    nvmlReturn_t result = metal_lab_reach(device, &gpu);

    if (result == NVML_SUCCESS) {
        const unsigned version = info->version;

        memset(info, 0, sizeof *info);
        info->version = version;
        info->state = (unsigned char)gpu.fabric;
        if (gpu.fabric && gpu.architecture > NVML_DEVICE_ARCH_HOPPER)
            info->healthSummary = NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY;
    }
    return result;
}

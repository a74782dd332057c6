/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* NVML for simulated GPUs: the parts of GPUs that MIG splits. A GPU instance, the compute instance
 * in it and the MIG device are the same here, and have the same handle: recorded/mig.yml. */

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#pragma GCC visibility push(default)
#include "nvml.h"
#pragma GCC visibility pop

#include "reach.h"

#include <string.h>

/* The type of a profile of so many slices, for GPU instances and for compute instances. */
static unsigned type_of(const struct profile *profile)
{
    switch (profile->slices) {
    case 7:
        return NVML_GPU_INSTANCE_PROFILE_7_SLICE;
    case 8:
        return NVML_GPU_INSTANCE_PROFILE_8_SLICE;
    default:
        return profile->slices - 1;
    }
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_instance)
{
    struct instance instance;
    struct gpu gpu;
    nvmlReturn_t result = metal_lab_instance(device, &instance, NULL);

    *is_instance = result == NVML_SUCCESS;
    return result == NVML_ERROR_INVALID_ARGUMENT ? metal_lab_look(device, &gpu) : result;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    enum { SLICES = 7 };
    struct gpu gpu;
    nvmlReturn_t result = metal_lab_reach(device, &gpu);

    *count = result == NVML_SUCCESS && gpu.mig_capable ? SLICES : 0;
    return result;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *mig)
{
    return metal_lab_instance_handle(device, index, (void **)mig);
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
    struct instance instance;

    return metal_lab_instance(mig, &instance, device);
}

/* Defines a function that returns one value of an instance, by a statement with `part`. */
#define ANSWER(function, handle_type, type, statement)     \
    nvmlReturn_t function(handle_type handle, type *value) \
    {                                                      \
        struct instance part;                              \
        nvmlDevice_t gpu = NULL;                           \
        nvmlReturn_t result = metal_lab_instance(handle, &part, &gpu); \
                                                           \
        if (!value)                                        \
            return NVML_ERROR_INVALID_ARGUMENT;            \
        if (result == NVML_SUCCESS) {                      \
            statement;                                     \
        }                                                  \
        return result;                                     \
    }

static void fill_attributes(const struct instance *part, nvmlDeviceAttributes_t *attributes)
{
    memset(attributes, 0, sizeof *attributes);
    attributes->multiprocessorCount = part->profile.multiprocessors;
    attributes->gpuInstanceSliceCount = attributes->computeInstanceSliceCount = part->profile.slices;
    attributes->memorySizeMB = part->profile.memory_mib;
}

ANSWER(nvmlDeviceGetGpuInstanceId, nvmlDevice_t, unsigned, *value = part.gi)
ANSWER(nvmlDeviceGetComputeInstanceId, nvmlDevice_t, unsigned, *value = part.ci)
ANSWER(nvmlDeviceGetAttributes_v2, nvmlDevice_t, nvmlDeviceAttributes_t,
       fill_attributes(&part, value))

/* ---- GPU instances and compute instances ----------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                          nvmlGpuInstance_t *instance)
{
    nvmlReturn_t result = NVML_SUCCESS;

    for (unsigned index = 0; index < MAX_INSTANCES; index++) {
        struct instance part;

        result = metal_lab_instance_handle(device, index, (void **)instance);
        if (result != NVML_SUCCESS && result != NVML_ERROR_NOT_FOUND)
            return result;
        if (result == NVML_SUCCESS && metal_lab_instance(*instance, &part, NULL) == NVML_SUCCESS
            && part.gi == id)
            return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t handle, unsigned int id,
                                                   nvmlComputeInstance_t *instance)
{
    struct instance part;
    nvmlReturn_t result = metal_lab_instance(handle, &part, NULL);

    *instance = (nvmlComputeInstance_t)(void *)handle;
    return result == NVML_SUCCESS && part.ci != id ? NVML_ERROR_NOT_FOUND : result;
}

static void fill_gpu_instance(const struct instance *part, nvmlDevice_t gpu,
                              nvmlGpuInstanceInfo_t *info)
{
    memset(info, 0, sizeof *info);
    info->device = gpu;
    info->id = part->gi;
    info->profileId = part->profile.number;
}

ANSWER(nvmlGpuInstanceGetInfo, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t,
       fill_gpu_instance(&part, gpu, value))

static void fill_compute_instance(const struct instance *part, nvmlDevice_t gpu,
                                  nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t *info)
{
    memset(info, 0, sizeof *info);
    info->device = gpu;
    info->gpuInstance = (nvmlGpuInstance_t)(void *)handle;
    info->id = part->ci;
    info->profileId = type_of(&part->profile);
}

ANSWER(nvmlComputeInstanceGetInfo_v2, nvmlComputeInstance_t, nvmlComputeInstanceInfo_t,
       fill_compute_instance(&part, gpu, handle, value))

/* ---- profiles -------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int type,
                                                 nvmlGpuInstanceProfileInfo_t *info)
{
    struct gpu gpu;
    nvmlReturn_t result = metal_lab_reach(device, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    for (int i = 0; i < gpu.profile_count; i++) {
        const struct profile *profile = &gpu.profiles[i];

        if (type_of(profile) != type)
            continue;
        memset(info, 0, sizeof *info);
        info->id = profile->number;
        info->sliceCount = profile->slices;
        info->instanceCount = profile->most;
        info->multiprocessorCount = profile->multiprocessors;
        info->memorySizeMB = profile->memory_mib;
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_SUPPORTED;
}

/* Only the compute instance that has all of its GPU instance. */
nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t handle,
                                                          unsigned int type, unsigned int engines,
                                                          nvmlComputeInstanceProfileInfo_t *info)
{
    struct instance part;
    nvmlReturn_t result = metal_lab_instance(handle, &part, NULL);

    if (result != NVML_SUCCESS)
        return result;
    if (type != type_of(&part.profile) || engines != NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    info->id = type;
    info->sliceCount = part.profile.slices;
    info->instanceCount = 1;
    info->multiprocessorCount = part.profile.multiprocessors;
    return NVML_SUCCESS;
}

/* ---- names of older versions ----------------------------------------------------------------- */

#define OLD_NAME(old, new) __typeof__(new) old __attribute__((alias(#new)));

OLD_NAME(nvmlDeviceGetAttributes, nvmlDeviceGetAttributes_v2)
OLD_NAME(nvmlComputeInstanceGetInfo, nvmlComputeInstanceGetInfo_v2)

/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* CUDA for simulated GPUs: what a small program needs to start a kernel and to copy between GPUs.
 * The memory of a GPU is memory of the program, and the only kernel is the addition of two vectors.
 * It fails where the real library fails, with its numbers: recorded/cuda_programs.yml. It is for
 * programs with one thread.
 *
 * The NVIDIA toolkit finds the libraries of the driver, and their version, by the name of this
 * one. */

#include "cuda_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct machine cuda_machine;
static struct gpu *visible[MAX_GPUS];
static int visible_count = -1; /* before cuInit */

/* ---- which GPUs there are -------------------------------------------------------------------- */

/* NVML finds no handle of a hidden GPU, and none of one that requires a reset. To the CUDA library,
 * they do not exist, and neither does a split GPU of which the program has no part. The latter is
 * inferred: recorded/mig.yml. */
static bool exists(const struct gpu *gpu)
{
    enum { NOT_FOUND = 6, RESET_REQUIRED = 16 }; /* nvml.h */
    bool has_part = !gpu->mig; /* of a split GPU, a program uses a part */

    for (int i = 0; i < MAX_INSTANCES; i++)
        has_part |= gpu->instances[i].present;
    return has_part && gpu->present && gpu->refused != NOT_FOUND && gpu->refused != RESET_REQUIRED;
}

static int by_place(const void *one, const void *other)
{
    unsigned long long a = machine_place(*(struct gpu *const *)one);
    unsigned long long b = machine_place(*(struct gpu *const *)other);

    return (a > b) - (a < b);
}

static const char OF_INSTANCE[] = "MIG-";

static bool is_instance(const char *entry, size_t length)
{
    return length > strlen(OF_INSTANCE) && strncmp(entry, OF_INSTANCE, strlen(OF_INSTANCE)) == 0;
}

/* The GPU with the instance of this UUID. An instance computes as the whole GPU does. */
static struct gpu *of_instance(const char *uuid, size_t length, struct gpu **all, int count)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < MAX_INSTANCES; j++) {
            const struct instance *instance = &all[i]->instances[j];

            if (instance->present && strlen(instance->uuid) == length
                && strncmp(instance->uuid, uuid, length) == 0)
                return all[i];
        }
    return NULL;
}

/* The GPU that an entry of CUDA_VISIBLE_DEVICES names: by its index, by the beginning of its UUID
 * if that is the beginning of one UUID only, or by the UUID of an instance. */
static struct gpu *named(const char *entry, size_t length, struct gpu **all, int count)
{
    struct gpu *found = NULL;

    if (length > 0 && strspn(entry, "0123456789") >= length) {
        int index = 0;
        for (size_t i = 0; i < length && index < count; i++)
            index = index * 10 + (entry[i] - '0');
        return index < count ? all[index] : NULL;
    }
    if (is_instance(entry, length))
        return of_instance(entry, length, all, count);
    if (length <= strlen("GPU-"))
        return NULL;
    for (int i = 0; i < count; i++) {
        if (strncmp(all[i]->uuid, entry, length) == 0) {
            if (found)
                return NULL;
            found = all[i];
        }
    }
    return found;
}

static void list_visible(void)
{
    struct gpu *all[MAX_GPUS];
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0;

    for (int i = 0; i < cuda_machine.gpu_count; i++)
        if (exists(&cuda_machine.gpus[i]))
            all[count++] = &cuda_machine.gpus[i];
    qsort(all, (size_t)count, sizeof *all, by_place);

    visible_count = 0;
    if (!list) {
        memcpy(visible, all, sizeof all);
        visible_count = count;
        return;
    }
    for (const char *entry = list; visible_count < MAX_GPUS;) {
        size_t length = strcspn(entry, ",");
        struct gpu *gpu = named(entry, length, all, count);

        for (int i = 0; gpu && i < visible_count; i++)
            if (visible[i] == gpu)
                gpu = NULL;
        if (!gpu) /* this and the rest of the list are ignored */
            break;
        visible[visible_count++] = gpu;
        if (entry[length] == '\0' || is_instance(entry, length)) /* a program has one instance */
            break;
        entry += length + 1;
    }
}

/* ---- where an error appears ------------------------------------------------------------------ */

static enum stage stage_of(CUresult error)
{
    switch (error) {
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
        return AT_INIT;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_UNKNOWN:
        return AT_CONTEXT;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return AT_ALLOCATION;
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        return AT_LOAD;
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
        return WHILE_RUNNING;
    default:
        return error >= CUDA_ERROR_ILLEGAL_ADDRESS ? WHILE_RUNNING : AT_LAUNCH;
    }
}

CUresult cuda_error_at(enum stage stage, const struct gpu *gpu)
{
    enum { DOUBLE_BIT_ECC = 48 }; /* Xid */
    enum { PROHIBITED = 2 };      /* nvml.h, nvmlComputeMode_t */
    CUresult error = (CUresult)gpu->cuda;

    if (!error && gpu->fault == DOUBLE_BIT_ECC)
        error = CUDA_ERROR_ECC_UNCORRECTABLE;
    if (!error && gpu->health.compute == PROHIBITED)
        error = CUDA_ERROR_DEVICE_UNAVAILABLE;
    return error && stage_of(error) == stage ? error : CUDA_SUCCESS;
}

/* ---- start ----------------------------------------------------------------------------------- */

CUresult cuInit(unsigned flags)
{
    CUresult error = CUDA_SUCCESS;

    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    switch (machine_open(&cuda_machine)) {
    case DRIVER_MISSING:
        return CUDA_ERROR_NO_DEVICE;
    case DRIVER_OF_OTHER_VERSION:
        return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    default:
        break;
    }
    list_visible();
    if (visible_count == 0)
        error = CUDA_ERROR_NO_DEVICE;
    else if (!machine_uvm_file(&cuda_machine))
        error = CUDA_ERROR_UNKNOWN;
    for (int i = 0; !error && i < visible_count; i++)
        error = visible[i]->nvswitch == UNTRAINED ? CUDA_ERROR_SYSTEM_NOT_READY
                                                  : cuda_error_at(AT_INIT, visible[i]);
    if (error)
        visible_count = -1;
    return error;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

static const struct cuda_error *known(CUresult error)
{
    static const struct cuda_error success = {0, "CUDA_SUCCESS", "no error"};

    for (const struct cuda_error *one = cuda_errors; one->words; one++)
        if (one->number == error && one->name[0])
            return one;
    return error == CUDA_SUCCESS ? &success : NULL;
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
    *text = known(error) ? known(error)->name : NULL;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    *text = known(error) ? known(error)->words : NULL;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- devices --------------------------------------------------------------------------------- */

static CUresult check(CUdevice device)
{
    if (visible_count < 0)
        return CUDA_ERROR_NOT_INITIALIZED;
    return device >= 0 && device < visible_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuda_gpu(CUdevice device, struct gpu **gpu)
{
    CUresult error = check(device);

    *gpu = error ? NULL : visible[device];
    return error;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = visible_count < 0 ? 0 : visible_count;
    return visible_count < 0 ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return check(ordinal);
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    CUresult error = check(device);

    if (!error)
        snprintf(name, (size_t)size, "%s", visible[device]->name);
    return error;
}

static int digit(char letter)
{
    const char *digits = "0123456789abcdef";
    const char *at = letter ? strchr(digits, letter) : NULL;

    return at ? (int)(at - digits) : 0;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    CUresult error = check(device);

    memset(uuid, 0, sizeof *uuid);
    if (!error) {
        int half = 0;
        for (const char *at = visible[device]->uuid + strlen("GPU-"); *at && half < 32; at++)
            if (*at != '-') {
                char *byte = &uuid->bytes[half++ / 2];
                *byte = (char)((unsigned char)*byte << 4 | digit(*at));
            }
    }
    return error;
}

CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device)
{
    CUresult error = check(device);

    if (!error)
        snprintf(text, (size_t)size, "%04X:%02X:%02X.0", visible[device]->domain,
                 visible[device]->bus, visible[device]->device);
    return error;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    CUresult error = check(device);

    if (error)
        return error;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = (int)visible[device]->cc_major;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = (int)visible[device]->cc_minor;
        break;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
        *value = (int)visible[device]->domain;
        break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        *value = (int)visible[device]->bus;
        break;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        *value = (int)visible[device]->device;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult error = check(device);

    if (!error)
        *bytes = visible[device]->memory_mib * MIB;
    return error;
}

/* All GPUs behind NVSwitches reach each other. The others reach those of their own CPU. */
bool cuda_can_reach(const struct gpu *one, const struct gpu *other)
{
    if (one == other || one->peer == PEER_NONE || other->peer == PEER_NONE)
        return false;
    return (one->nvswitch && other->nvswitch) || one->numa_node == other->numa_node;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    CUresult error = check(device) ? check(device) : check(peer);

    if (!error)
        *can = cuda_can_reach(visible[device], visible[peer]);
    return error;
}

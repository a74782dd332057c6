/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* CUDA for simulated GPUs: what a small program needs to start a kernel and to copy between GPUs.
 * The memory of a GPU is memory of the program, and the only kernel is the addition of two vectors.
 * It fails where the real library fails, with its numbers: recorded/cuda_programs.yml. It is for
 * programs with one thread.
 *
 * The NVIDIA toolkit finds the libraries of the driver, and their version, by this file's name. */

#include "cuda.h"
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1024ULL * 1024ULL)
#define DECLARE(name, arguments) __attribute__((visibility("default"))) CUresult name arguments;
CUDA_FUNCTIONS(DECLARE)

struct context {
    struct gpu *gpu;
    CUresult error; /* what happened on the GPU ends the context: all later calls fail with it */
    bool hangs; /* its kernel does not end */
    struct context *next;
};

struct module {
    CUresult error;
    char name[64];
};

static struct machine machine;
static struct gpu *visible[MAX_GPUS];
static int visible_count = -1; /* before cuInit */
static struct context *current, *contexts;

/* ---- which GPUs there are -------------------------------------------------------------------- */

/* NVML finds no handle of a hidden GPU, and none of one that requires a reset. To the CUDA library,
 * they do not exist. */
static bool exists(const struct gpu *gpu)
{
    enum { NOT_FOUND = 6, RESET_REQUIRED = 16 }; /* nvml.h */

    return gpu->present && gpu->refused != NOT_FOUND && gpu->refused != RESET_REQUIRED;
}

static int by_place(const void *one, const void *other)
{
    unsigned long long a = machine_place(*(struct gpu *const *)one);
    unsigned long long b = machine_place(*(struct gpu *const *)other);

    return (a > b) - (a < b);
}

/* The GPU that an entry of CUDA_VISIBLE_DEVICES names: by its index, or by the beginning of its UUID
 * if that is the beginning of one UUID only. */
static struct gpu *named(const char *entry, size_t length, struct gpu **all, int count)
{
    struct gpu *found = NULL;

    if (length > 0 && strspn(entry, "0123456789") >= length) {
        int index = atoi(entry);
        return index < count ? all[index] : NULL;
    }
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

    for (int i = 0; i < machine.gpu_count; i++)
        if (exists(&machine.gpus[i]))
            all[count++] = &machine.gpus[i];
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
        if (entry[length] == '\0')
            break;
        entry += length + 1;
    }
}

/* ---- where an error appears ------------------------------------------------------------------ */

/* Errors of the machine appear at the first call, those of code when it is loaded, and those of a
 * running kernel after its launch. */
enum stage { AT_INIT, AT_CONTEXT, AT_ALLOCATION, AT_LOAD, AT_LAUNCH, WHILE_RUNNING };

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

/* The error of a GPU at a stage, or success. */
static CUresult error_at(enum stage stage, const struct gpu *gpu)
{
    enum { DOUBLE_BIT_ECC = 48 }; /* Xid */
    CUresult error = (CUresult)gpu->cuda;

    if (!error && gpu->fault == DOUBLE_BIT_ECC)
        error = CUDA_ERROR_ECC_UNCORRECTABLE;
    return error && stage_of(error) == stage ? error : CUDA_SUCCESS;
}

static bool is_lost(const struct gpu *gpu)
{
    return !gpu->present || gpu->unreachable;
}

static CUresult state_of(struct context *context)
{
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    while (context->hangs)
        pause();
    machine_refresh(&machine);
    if (!context->error && is_lost(context->gpu))
        context->error = CUDA_ERROR_LAUNCH_FAILED;
    return context->error;
}

/* ---- start ----------------------------------------------------------------------------------- */

CUresult cuInit(unsigned flags)
{
    CUresult error = CUDA_SUCCESS;

    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    switch (machine_open(&machine)) {
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
    else if (!machine_uvm_file(&machine))
        error = CUDA_ERROR_UNKNOWN;
    for (int i = 0; !error && i < visible_count; i++)
        error = visible[i]->nvswitch == UNTRAINED ? CUDA_ERROR_SYSTEM_NOT_READY
                                                  : error_at(AT_INIT, visible[i]);
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
                uuid->bytes[half / 2] = (char)((unsigned char)uuid->bytes[half / 2] << 4 | digit(*at));
                half++;
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
static bool can_reach(const struct gpu *one, const struct gpu *other)
{
    if (one == other || one->peer == PEER_NONE || other->peer == PEER_NONE)
        return false;
    return (one->nvswitch && other->nvswitch) || one->numa_node == other->numa_node;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    CUresult error = check(device) ? check(device) : check(peer);

    if (!error)
        *can = can_reach(visible[device], visible[peer]);
    return error;
}

/* ---- contexts -------------------------------------------------------------------------------- */

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    CUresult error = check(device);

    (void)flags;
    if (error)
        return error;
    machine_refresh(&machine);
    if (is_lost(visible[device]))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    error = error_at(AT_CONTEXT, visible[device]);
    if (error)
        return error;
    *context = calloc(1, sizeof **context);
    if (!*context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*context)->gpu = visible[device];
    (*context)->next = contexts;
    contexts = current = *context;
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    struct context **link = &contexts;

    while (*link && *link != context)
        link = &(*link)->next;
    if (!*link)
        return CUDA_ERROR_INVALID_CONTEXT;
    *link = context->next;
    if (current == context)
        current = NULL;
    free(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    CUresult error = state_of(current);

    if (error)
        return error;
    if (!peer || flags)
        return CUDA_ERROR_INVALID_VALUE;
    return can_reach(current->gpu, peer->gpu) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

CUresult cuCtxSynchronize(void)
{
    return state_of(current);
}

/* ---- memory ---------------------------------------------------------------------------------- */

CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t size)
{
    CUresult error = state_of(current);
    void *found;

    if (!error)
        error = error_at(AT_ALLOCATION, current->gpu);
    if (!error && (size == 0 || size > current->gpu->memory_mib * MIB))
        error = size == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    if (error)
        return error;
    found = calloc(1, size);
    *memory = (CUdeviceptr)(size_t)found;
    return found ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFree_v2(CUdeviceptr memory)
{
    free((void *)(size_t)memory);
    return state_of(current);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
    CUresult error = state_of(current);

    if (!error)
        memcpy((void *)(size_t)to, from, size);
    return error;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
    CUresult error = state_of(current);

    if (!error)
        memcpy(to, (void *)(size_t)from, size);
    return error;
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t size)
{
    CUresult error = state_of(there) ? state_of(there) : state_of(here);

    if (error)
        return error;
    memcpy((void *)(size_t)to, (void *)(size_t)from, size);
    if (there->gpu->peer == PEER_BROKEN || here->gpu->peer == PEER_BROKEN)
        memset((void *)(size_t)to, 0, size / 2);
    return CUDA_SUCCESS;
}

/* ---- code ------------------------------------------------------------------------------------ */

/* The first number of a line "key 1 2 3" at or after `*at`, or 0. `*at` goes on behind it. */
static unsigned next_number(const char **at)
{
    unsigned value = 0;

    *at += strspn(*at, " ");
    for (; **at >= '0' && **at <= '9'; (*at)++)
        value = value * 10 + (unsigned)(**at - '0');
    return value;
}

static const char *line_of(const char *code, const char *key)
{
    const char *at = strstr(code, key);

    return at ? at + strlen(key) : "";
}

/* Whether the GPU can run the code: as it is, if it is for an architecture with the same major
 * number that is not newer, or compiled from PTX, which the driver must understand. */
static CUresult fits(const char *code, const struct gpu *gpu)
{
    const unsigned own = gpu->cc_major * 10 + gpu->cc_minor;
    const char *at = line_of(code, "\nsm ");
    unsigned toolkit, ptx;

    for (unsigned sm = next_number(&at); sm; sm = next_number(&at))
        if (sm / 10 == gpu->cc_major && sm <= own)
            return CUDA_SUCCESS;
    at = line_of(code, "\nptx ");
    ptx = next_number(&at);
    if (ptx == 0 || ptx > own)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    at = line_of(code, "\ntoolkit ");
    toolkit = next_number(&at);
    return toolkit > CUDA_VERSION ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION : CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *code)
{
    CUresult error = state_of(current);

    if (error)
        return error;
    if (strncmp(code, CODE_MARKER, strlen(CODE_MARKER)) != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    error = error_at(AT_LOAD, current->gpu);
    if (!error)
        error = fits(code, current->gpu);
    if (error)
        return error;
    *module = calloc(1, sizeof **module);
    if (!*module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const char *name = line_of(code, "\nkernel ");
    snprintf((*module)->name, sizeof (*module)->name, "%.*s", (int)strcspn(name, "\n"), name);
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
    free(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    *function = module;
    return module && strcmp(module->name, name) == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* The kernel: its parameters are two vectors, the vector of their sums, and the number of elements. */
static void add_vectors(void **parameters, const struct gpu *gpu)
{
    const float *a = (const float *)(size_t)*(CUdeviceptr *)parameters[0];
    const float *b = (const float *)(size_t)*(CUdeviceptr *)parameters[1];
    float *sums = (float *)(size_t)*(CUdeviceptr *)parameters[2];

    for (int i = 0; i < *(int *)parameters[3]; i++)
        sums[i] = a[i] + b[i] + (gpu->wrong ? 1 : 0);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        void *stream, void **parameters, void **extra)
{
    CUresult error = state_of(current);

    (void)shared, (void)stream, (void)extra;
    if (error)
        return error;
    if (!function || !parameters || !(grid_x && grid_y && grid_z && block_x && block_y && block_z))
        return CUDA_ERROR_INVALID_VALUE;
    error = error_at(AT_LAUNCH, current->gpu);
    if (error)
        return error;
    current->hangs = current->gpu->hang;
    current->error = error_at(WHILE_RUNNING, current->gpu);
    if (!current->error)
        add_vectors(parameters, current->gpu);
    return CUDA_SUCCESS;
}

/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* What runs on a GPU: contexts, memory, and code with the only kernel that exists. */

#include "cuda_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct context {
    struct gpu *gpu;
    CUresult error; /* what happened on the GPU ends the context: all later calls fail with it */
    bool hangs;     /* its kernel does not end */
    struct context *next;
};

struct module {
    char name[64]; /* of its kernel */
};

static struct context *current, *contexts;

/* ---- contexts -------------------------------------------------------------------------------- */

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
    machine_refresh(&cuda_machine);
    if (!context->error && is_lost(context->gpu))
        context->error = CUDA_ERROR_LAUNCH_FAILED;
    return context->error;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    struct gpu *gpu;
    CUresult error = cuda_gpu(device, &gpu);

    (void)flags;
    if (error)
        return error;
    machine_refresh(&cuda_machine);
    if (is_lost(gpu))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    error = cuda_error_at(AT_CONTEXT, gpu);
    if (error)
        return error;
    *context = calloc(1, sizeof **context);
    if (!*context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*context)->gpu = gpu;
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
    return cuda_can_reach(current->gpu, peer->gpu) ? CUDA_SUCCESS
                                                   : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
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
        error = cuda_error_at(AT_ALLOCATION, current->gpu);
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

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here,
                      size_t size)
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
    error = cuda_error_at(AT_LOAD, current->gpu);
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

/* The kernel: its parameters are two vectors, the vector of their sums, and their length. */
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
    error = cuda_error_at(AT_LAUNCH, current->gpu);
    if (error)
        return error;
    current->hangs = current->gpu->hang;
    current->error = cuda_error_at(WHILE_RUNNING, current->gpu);
    if (!current->error)
        add_vectors(parameters, current->gpu);
    return CUDA_SUCCESS;
}

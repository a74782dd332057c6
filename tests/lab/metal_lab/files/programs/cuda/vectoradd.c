/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* A stand-in of NVIDIA's sample vectorAdd: its words and exit codes are recorded
 * (recorded/cuda_programs.yml). It computes on the first visible GPU only. */

#include "runtime.h"
#include "words.h"

#include <stdio.h>
#include <stdlib.h>

static CUmodule module;
static CUcontext context;

static void fail(CUresult error, const char *form, const char *vector)
{
    if (!error)
        return;
    fprintf(stderr, form, vector, words_of(error));
    exit(EXIT_FAILURE);
}

/* The first call of the runtime does all this. */
static CUresult first_call(void)
{
    CUdevice device;
    CUresult error = find_library();

    if (!error)
        error = start();
    if (!error)
        error = cuDeviceGet(&device, 0);
    return error ? error : cuCtxCreate_v2(&context, 0, device);
}

/* The runtime loads code when a kernel is launched for the first time. */
static CUresult launch(CUdeviceptr a, CUdeviceptr b, CUdeviceptr c, int elements, unsigned blocks)
{
    void *parameters[] = {&a, &b, &c, &elements};
    CUfunction function = NULL;
    CUresult error = cuModuleLoadData(&module, CODE);

    if (!error)
        error = cuModuleGetFunction(&function, module, "vectorAdd");
    return error ? error
                 : cuLaunchKernel(function, blocks, 1, 1, THREADS, 1, 1, 0, NULL, parameters, NULL);
}

int main(void)
{
    static float a[ELEMENTS], b[ELEMENTS], c[ELEMENTS];
    const char *names[] = {"A", "B", "C"};
    const unsigned blocks = (ELEMENTS + THREADS - 1) / THREADS;
    CUdeviceptr on_gpu[3] = {0};
    CUresult error;

    printf(START "\n", ELEMENTS);
    for (int i = 0; i < ELEMENTS; i++) {
        a[i] = (float)rand() / (float)RAND_MAX;
        b[i] = (float)rand() / (float)RAND_MAX;
    }
    fail(first_call(), ALLOCATE "\n", names[0]);
    for (int i = 0; i < 3; i++)
        fail(cuMemAlloc_v2(&on_gpu[i], sizeof a), ALLOCATE "\n", names[i]);

    printf(COPY_IN "\n");
    fail(cuMemcpyHtoD_v2(on_gpu[0], a, sizeof a), COPY_TO_DEVICE "\n", names[0]);
    fail(cuMemcpyHtoD_v2(on_gpu[1], b, sizeof b), COPY_TO_DEVICE "\n", names[1]);

    printf(LAUNCH "\n", blocks, THREADS);
    error = launch(on_gpu[0], on_gpu[1], on_gpu[2], ELEMENTS, blocks);
    if (error) {
        fprintf(stderr, LAUNCH_FAILED "\n", words_of(error));
        return EXIT_FAILURE;
    }
    printf(COPY_OUT "\n");
    fail(cuMemcpyDtoH_v2(c, on_gpu[2], sizeof c), COPY_FROM_DEVICE "\n", names[2]);

    for (int i = 0; i < ELEMENTS; i++) {
        float difference = a[i] + b[i] - c[i];
        if (difference > 1e-5f || difference < -1e-5f) {
            fprintf(stderr, WRONG "\n", i);
            return EXIT_FAILURE;
        }
    }
    printf(PASSED "\n");
    for (int i = 0; i < 3; i++)
        fail(cuMemFree_v2(on_gpu[i]), FREE "\n", names[i]);
    printf(DONE "\n");
    return EXIT_SUCCESS;
}

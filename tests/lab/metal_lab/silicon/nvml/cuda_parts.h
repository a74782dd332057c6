/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* What both files of libcuda.so.1 share: cuda.c has the devices, cuda_run.c what runs on them. */
#ifndef METAL_LAB_CUDA_PARTS_H
#define METAL_LAB_CUDA_PARTS_H

#include "cuda.h"
#include "machine.h"

#define MIB (1024ULL * 1024ULL)
#define DECLARE(name, arguments) __attribute__((visibility("default"))) CUresult name arguments;
CUDA_FUNCTIONS(DECLARE)

extern struct machine cuda_machine;

/* The GPU of a device number, or the reason why there is none. */
CUresult cuda_gpu(CUdevice device, struct gpu **gpu);

/* Whether two GPUs can copy to each other. */
bool cuda_can_reach(const struct gpu *one, const struct gpu *other);

/* Errors of the machine appear at the first call, those of code when it is loaded, and those of a
 * running kernel after its launch. */
enum stage { AT_INIT, AT_CONTEXT, AT_ALLOCATION, AT_LOAD, AT_LAUNCH, WHILE_RUNNING };

/* The error of a GPU at a stage, or success. */
CUresult cuda_error_at(enum stage stage, const struct gpu *gpu);

#endif

/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* What CUDA's runtime does in a program: it finds libcuda.so.1, and compares versions. */
#ifndef METAL_LAB_RUNTIME_H
#define METAL_LAB_RUNTIME_H

#include "cuda.h"

#define POINTER(name, arguments) extern CUresult(*name) arguments;
CUDA_FUNCTIONS(POINTER)

/* Finds the library and all functions. Returns 0, or 35 as the runtime does without a library. */
CUresult find_library(void);

/* 35 if the driver is too old for this program, or else what cuInit says. */
CUresult start(void);

/* The words of an error, in the program itself: it has them without the library, too. */
const char *words_of(CUresult error);

#endif

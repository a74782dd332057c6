/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "runtime.h"

#include <dlfcn.h>
#include <stdbool.h>

#define DEFINE(name, arguments) CUresult(*name) arguments;
CUDA_FUNCTIONS(DEFINE)

/* Through a pointer to the variable: C knows no conversion from an object to a function. */
static bool find(void *library, const char *name, void *variable)
{
    void *found = dlsym(library, name);

    *(void **)variable = found;
    return found;
}

CUresult find_library(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    bool found = library;

#define FIND(name, arguments) found = found && find(library, #name, &name);
    CUDA_FUNCTIONS(FIND)
    return found ? CUDA_SUCCESS : CUDA_ERROR_INSUFFICIENT_DRIVER;
}

/* Programs of one major version of CUDA run with all drivers of that version. */
static CUresult compare_versions(void)
{
    int version = 0;

    if (cuDriverGetVersion(&version))
        return CUDA_ERROR_UNKNOWN;
    return version / 1000 < TOOLKIT / 1000 ? CUDA_ERROR_INSUFFICIENT_DRIVER : CUDA_SUCCESS;
}

CUresult start(void)
{
    CUresult error = compare_versions();

    return error ? error : cuInit(0);
}

const char *words_of(CUresult error)
{
    for (const struct cuda_error *one = cuda_errors; one->words; one++)
        if (one->number == error)
            return one->words;
    return "unrecognized error code";
}

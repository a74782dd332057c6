/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* libcuda.so.1 of a GPU that cannot compute. This file's name shows the NVIDIA toolkit where the
 * driver's libraries are, and their version. */

enum { CUDA_ERROR_STUB_LIBRARY = 34 };

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);

int cuInit(unsigned flags)
{
    (void)flags;
    return CUDA_ERROR_STUB_LIBRARY;
}

int cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return 0;
}

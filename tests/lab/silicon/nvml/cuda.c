/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* libcuda.so.1 of a GPU that cannot compute. The NVIDIA toolkit finds the driver's libraries and
 * their version by this file's name. */

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

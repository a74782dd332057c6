/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* The functions of libcuda.so.1 that the stand-ins of CUDA programs use, and what a program has in
 * place of CUDA's fat binary. The names and the numbers are those of CUDA's interface.
 *
 *   metal-lab-code 1
 *   toolkit 12050
 *   sm 50 52 60
 *   ptx 90
 *   kernel vectorAdd
 */
#ifndef METAL_LAB_CUDA_H
#define METAL_LAB_CUDA_H

#include <stddef.h>

#define CODE_MARKER "metal-lab-code 1\n"

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct context *CUcontext;
typedef struct module *CUmodule;
typedef struct module *CUfunction;
typedef struct {
    char bytes[16];
} CUuuid;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_INSUFFICIENT_DRIVER = 35, /* of CUDA's runtime */
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_ECC_UNCORRECTABLE = 214,
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
    CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_SYSTEM_NOT_READY = 802,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
    CUDA_ERROR_UNKNOWN = 999,

    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
    CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
};

/* The recorded names and words: made from recorded/cuda_programs.yml. */
struct cuda_error {
    int number;
    const char *name, *words;
};
extern const struct cuda_error cuda_errors[]; /* the last one has no words */

#define CUDA_FUNCTIONS(F)                                                                        \
    F(cuInit, (unsigned flags))                                                                  \
    F(cuDriverGetVersion, (int *version))                                                        \
    F(cuGetErrorName, (CUresult error, const char **text))                                       \
    F(cuGetErrorString, (CUresult error, const char **text))                                     \
    F(cuDeviceGetCount, (int *count))                                                            \
    F(cuDeviceGet, (CUdevice *device, int ordinal))                                              \
    F(cuDeviceGetName, (char *name, int size, CUdevice device))                                  \
    F(cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice device))                                       \
    F(cuDeviceGetPCIBusId, (char *text, int size, CUdevice device))                              \
    F(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                        \
    F(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device))                                     \
    F(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer))                         \
    F(cuCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device))                     \
    F(cuCtxDestroy_v2, (CUcontext context))                                                      \
    F(cuCtxSetCurrent, (CUcontext context))                                                      \
    F(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))                                   \
    F(cuCtxSynchronize, (void))                                                                  \
    F(cuMemAlloc_v2, (CUdeviceptr *memory, size_t size))                                         \
    F(cuMemFree_v2, (CUdeviceptr memory))                                                        \
    F(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t size))                          \
    F(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t size))                                \
    F(cuMemcpyPeer,                                                                              \
      (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t size))          \
    F(cuModuleLoadData, (CUmodule * module, const void *code))                                   \
    F(cuModuleUnload, (CUmodule module))                                                         \
    F(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))           \
    F(cuLaunchKernel, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,   \
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,    \
                       void *stream, void **parameters, void **extra))

#endif

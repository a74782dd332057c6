/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* A stand-in of nvbandwidth for one of its tests: copies between all pairs of GPUs. Its words and
 * exit codes are recorded (recorded/cuda_programs.yml). The bandwidths are invented. */

#include "runtime.h"
#include "words.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 1 << 20, MAX = 64 };
/* Lines of the real program's files. Those of a context and of a copy are invented. */
enum { LINE_INIT = 261, LINE_NVML, LINE_COUNT, LINE_CHECK = 165 };
enum { LINE_CONTEXT = 78, LINE_COPY = 441 };

static char host[256];

static void check(CUresult error, const char *expression, const char *function, int line)
{
    const char *name = NULL, *words = NULL;

    if (!error)
        return;
    cuGetErrorName(error, &name);
    cuGetErrorString(error, &words);
    fprintf(stderr, CUDA "\n\n", name ? name : "", words ? words : "", expression, host, function,
            FILE_OF_MAIN, line);
    exit(EXIT_FAILURE);
}

#define MAIN_FUNCTION "int main(int, char**)"
#define CHECK(call, line) check(call, #call, MAIN_FUNCTION, line)

/* NVML's version of the driver. The real program is linked with this library, too. */
static void driver_version(char *version, unsigned size)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void) = NULL, (*get)(char *, unsigned) = NULL;
    const char *(*words)(int) = NULL;
    int error;

    if (!nvml) {
        fprintf(stderr, "nvbandwidth: error while loading shared libraries: %s\n", dlerror());
        exit(127);
    }
    *(void **)&init = dlsym(nvml, "nvmlInit_v2");
    *(void **)&get = dlsym(nvml, "nvmlSystemGetDriverVersion");
    *(void **)&words = dlsym(nvml, "nvmlErrorString");
    error = init();
    if (error) {
        fprintf(stderr, NVML "\n\n", words(error), host, MAIN_FUNCTION, FILE_OF_MAIN, LINE_NVML);
        exit(EXIT_FAILURE);
    }
    get(version, size);
}

static void print_first_gpu(void)
{
    int domain = 0, bus = 0, device = 0;
    char name[96] = "";

    cuDeviceGetName(name, sizeof name, 0);
    cuDeviceGetAttribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0);
    cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0);
    cuDeviceGetAttribute(&device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0);
    printf(PROCESS "\n\n", host, name, (unsigned)domain, (unsigned)bus, (unsigned)device);
}

static bool any_pair(int count)
{
    for (int one = 0; one < count; one++)
        for (int other = 0; other < count; other++) {
            int can = 0;
            if (one != other)
                CHECK(cuDeviceCanAccessPeer(&can, one, other), LINE_COUNT);
            if (can)
                return true;
        }
    return false;
}

/* Copies a pattern from one GPU to another, and checks it there. */
static double copy(CUcontext to, CUcontext from)
{
    static unsigned char pattern[SIZE], arrived[SIZE];
    const char *function = "double MemcpyOperation::doMemcpyCore(...)";
    CUdeviceptr target, source;

    memset(pattern, 0xBA, sizeof pattern);
    cuCtxSetCurrent(from);
    check(cuMemAlloc_v2(&source, SIZE), "cuMemAlloc(&buffer, size)", function, LINE_COPY);
    check(cuMemcpyHtoD_v2(source, pattern, SIZE), "cuMemcpy(buffer, pattern, size)", function,
          LINE_COPY);
    cuCtxSetCurrent(to);
    check(cuMemAlloc_v2(&target, SIZE), "cuMemAlloc(&buffer, size)", function, LINE_COPY);
    check(cuMemcpyPeer(target, to, source, from, SIZE), "cuMemcpyAsync(dst, src, size, stream)",
          function, LINE_COPY);
    check(cuCtxSynchronize(), "cuCtxSynchronize()", function, LINE_COPY);
    check(cuMemcpyDtoH_v2(arrived, target, SIZE), "cuMemcpy(pattern, buffer, size)", function,
          LINE_COPY);
    if (memcmp(pattern, arrived, SIZE) != 0) {
        printf(INVALID "\n", (void *)(size_t)target);
        fprintf(stderr, ASSERTION "\n\n", host, "void memcmpPatternHelper(...)",
                "/bandwidthtest/nvbandwidth/memcpy.cpp", LINE_CHECK);
        exit(EXIT_FAILURE);
    }
    cuMemFree_v2(target);
    cuCtxSetCurrent(from);
    cuMemFree_v2(source);
    return 276.25;
}

static void run_test(const char *test, int count)
{
    CUcontext contexts[MAX];
    double sum = 0;

    if (!any_pair(count)) {
        printf(WAIVED "\n");
        return;
    }
    printf(RUNNING "\n", test);
    for (int i = 0; i < count; i++)
        check(cuCtxCreate_v2(&contexts[i], 0, i), "cuDevicePrimaryCtxRetain(&primaryCtx, device)",
              "DeviceBuffer::DeviceBuffer(size_t, int)", LINE_CONTEXT);

    char rows[1 << 16], *end = rows;
    end += sprintf(end, "  ");
    for (int column = 0; column < count; column++)
        end += sprintf(end, "%10d", column);
    for (int row = 0; row < count; row++) {
        end += sprintf(end, "\n%2d", row);
        for (int column = 0; column < count; column++) {
            int can = 0;
            if (row != column)
                CHECK(cuDeviceCanAccessPeer(&can, row, column), LINE_COPY);
            double bandwidth = can ? copy(contexts[row], contexts[column]) : 0;
            end += can ? sprintf(end, "%10.2f", bandwidth) : sprintf(end, "%10s", "N/A");
            sum += bandwidth;
        }
    }
    printf(MATRIX "\n%s\n\n" SUM "\n\n", rows, test, sum);
}

int main(int argc, char **argv)
{
    int count = 0, version = 0;
    char driver[80] = "";

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (find_library()) { /* the real one is linked with it */
        fprintf(stderr, "nvbandwidth: error while loading shared libraries: %s\n", dlerror());
        return 127;
    }
    gethostname(host, sizeof host - 1);
    if (argc != 3 || (strcmp(argv[1], "-t") != 0 && strcmp(argv[1], "--testcase") != 0)) {
        fprintf(stderr, "metal-lab: this stand-in of nvbandwidth knows only: -t NAME\n");
        return EXIT_FAILURE;
    }
    printf(VERSION "\n" BUILT "\n\n" MPI "\n");
    CHECK(cuInit(0), LINE_INIT);
    driver_version(driver, sizeof driver);
    CHECK(cuDeviceGetCount(&count), LINE_COUNT);
    CHECK(cuDriverGetVersion(&version), LINE_COUNT);
    printf(CUDA_RUNTIME "\n" CUDA_DRIVER "\n" DRIVER "\n\n", version, version, driver);
    print_first_gpu();
    if (strcmp(argv[2], TEST) == 0)
        run_test(TEST, count);
    else
        printf(UNKNOWN "\n", argv[2]);
    printf(NOTE_1 "\n" NOTE_2 "\n\n");
    return EXIT_SUCCESS;
}

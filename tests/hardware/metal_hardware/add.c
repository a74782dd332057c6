/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* Add two vectors on each GPU that the container has, and print the result as JSON. PTX and SIZE
 * are those of cuda.py. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long memory;

static void *library;
static int printed;

static int call(const char *name, void *a, void *b, void *c)
{
    int (*function)(void *, void *, void *) = (int (*)(void *, void *, void *))dlsym(library, name);

    return function ? function(a, b, c) : -2;
}

static int add(int ordinal)
{
    static float a[SIZE], b[SIZE], sum[SIZE];
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **) =
        (int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                 void *, void **, void **))dlsym(library, "cuLaunchKernel");
    int (*create)(void **, unsigned, int) =
        (int (*)(void **, unsigned, int))dlsym(library, "cuCtxCreate_v2");
    int (*identify)(unsigned char *, int) =
        (int (*)(unsigned char *, int))dlsym(library, "cuDeviceGetUuid_v2");
    unsigned char uuid[16];
    void *context, *module, *function;
    memory on_gpu[3];
    unsigned size = SIZE;
    void *parameters[] = {&on_gpu[0], &on_gpu[1], &on_gpu[2], &size};
    int device, error, i, wrong = 0;

#define TRY(expression)          \
    if ((error = (expression)))  \
    return error
    TRY(call("cuDeviceGet", &device, (void *)(long)ordinal, 0));
    TRY(identify(uuid, device));
    TRY(create(&context, 0, device));
    for (i = 0; i < SIZE; i++) {
        a[i] = i;
        b[i] = 2 * i;
    }
    for (i = 0; i < 3; i++)
        TRY(call("cuMemAlloc_v2", &on_gpu[i], (void *)sizeof a, 0));
    TRY(call("cuMemcpyHtoD_v2", (void *)on_gpu[0], a, (void *)sizeof a));
    TRY(call("cuMemcpyHtoD_v2", (void *)on_gpu[1], b, (void *)sizeof b));
    TRY(call("cuModuleLoadData", &module, PTX, 0));
    TRY(call("cuModuleGetFunction", &function, module, "add"));
    TRY(launch(function, SIZE / 256, 1, 1, 256, 1, 1, 0, 0, parameters, 0));
    TRY(call("cuCtxSynchronize", 0, 0, 0));
    TRY(call("cuMemcpyDtoH_v2", sum, (void *)on_gpu[2], (void *)sizeof sum));
    for (i = 0; i < SIZE; i++)
        wrong += sum[i] != 3.0f * i;
    printf("%s{\"uuid\": \"GPU-", printed++ ? ", " : "");
    for (i = 0; i < 16; i++)
        printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    printf("\", \"wrong\": %d}", wrong);
    return 0;
}

int main(void)
{
    int count = 0, error, i;

    library = dlopen("libcuda.so.1", RTLD_NOW);
    printf("{\"gpus\": [");
    if (!library)
        error = 100; /* no driver in this container, and no GPU */
    else if (!(error = call("cuInit", 0, 0, 0)) && !(error = call("cuDeviceGetCount", &count, 0, 0)))
        for (i = 0; i < count && !error; i++)
            error = add(i);
    printf("], \"error\": %d}\n", error);
    return 0;
}

/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* NVML for simulated GPUs: the functions that nvidia-smi, the NVIDIA toolkit, the device plugin and
 * feature discovery call. The other functions of nvml.h return "not supported" (stubs.py).
 *
 * With the handle of a lost GPU, a program still gets what the driver remembers (index, name, UUID,
 * PCI address). Functions that need the GPU itself return "GPU is lost". New handles of it fail. */

#define NVML_NO_UNVERSIONED_FUNC_DEFS /* defines both nvmlInit and nvmlInit_v2 */
#pragma GCC visibility push(default)
#include "nvml.h"
#pragma GCC visibility pop

#include "reach.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024ULL * 1024ULL)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users; /* nvmlInit calls without their nvmlShutdown */
static struct machine machine;

/* ---- start and end --------------------------------------------------------------------------- */

static nvmlReturn_t open_driver(void)
{
    switch (machine_open(&machine)) {
    case DRIVER_READY:
        return NVML_SUCCESS;
    case DRIVER_OF_OTHER_VERSION:
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    default:
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
}

nvmlReturn_t nvmlInit_v2(void)
{
    nvmlReturn_t result = NVML_SUCCESS;

    pthread_mutex_lock(&lock);
    if (users == 0)
        result = open_driver();
    if (result == NVML_SUCCESS)
        users++;
    pthread_mutex_unlock(&lock);
    return result;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return nvmlInit_v2();
}

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result = NVML_SUCCESS;

    pthread_mutex_lock(&lock);
    if (users > 0)
        users--;
    else
        result = NVML_ERROR_UNINITIALIZED;
    pthread_mutex_unlock(&lock);
    return result;
}

/* The messages of libnvidia-ml 550.163.01. There, this function needs no driver. */
const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const texts[] = {
        [NVML_SUCCESS] = "Success",
        [NVML_ERROR_UNINITIALIZED] = "Uninitialized",
        [NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
        [NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
        [NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
        [NVML_ERROR_ALREADY_INITIALIZED] = "Already Initialized",
        [NVML_ERROR_NOT_FOUND] = "Not Found",
        [NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
        [NVML_ERROR_INSUFFICIENT_POWER] = "Insufficient External Power",
        [NVML_ERROR_DRIVER_NOT_LOADED] = "Driver Not Loaded",
        [NVML_ERROR_TIMEOUT] = "Timeout",
        [NVML_ERROR_IRQ_ISSUE] = "Interrupt Request Issue",
        [NVML_ERROR_LIBRARY_NOT_FOUND] = "NVML Shared Library Not Found",
        [NVML_ERROR_FUNCTION_NOT_FOUND] = "Function Not Found",
        [NVML_ERROR_CORRUPTED_INFOROM] = "Corrupted infoROM",
        [NVML_ERROR_GPU_IS_LOST] = "GPU is lost",
        [NVML_ERROR_RESET_REQUIRED] = "GPU requires reset",
        [NVML_ERROR_OPERATING_SYSTEM] = "GPU access blocked by the operating system",
        [NVML_ERROR_LIB_RM_VERSION_MISMATCH] = "Driver/library version mismatch",
        [NVML_ERROR_IN_USE] = "In use by another client",
        [NVML_ERROR_MEMORY] = "Insufficient Memory",
        [NVML_ERROR_NO_DATA] = "No data",
        [NVML_ERROR_INSUFFICIENT_RESOURCES] = "Insufficient Resources",
        [NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "Argument version mismatch",
        [NVML_ERROR_DEPRECATED] = "Requested functionality has been deprecated",
        [NVML_ERROR_NOT_READY] = "System is not in ready state",
        [NVML_ERROR_GPU_NOT_FOUND] = "No supported GPUs were found",
    };
    const size_t code = (size_t)result;

    return code < sizeof texts / sizeof *texts && texts[code] ? texts[code] : "Unknown Error";
}

/* ---- the system ------------------------------------------------------------------------------ */

static nvmlReturn_t give(char *out, unsigned length, const char *text)
{
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    return users ? give(version, length, DRIVER_VERSION) : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    char text[80];

    snprintf(text, sizeof text, "%d.%s", CUDA_VERSION / 1000, DRIVER_VERSION);
    return give(version, length, text);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = CUDA_VERSION;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* ---- handles --------------------------------------------------------------------------------- */

static nvmlDevice_t handle_of(struct gpu *gpu)
{
    return (nvmlDevice_t)(void *)gpu;
}

/* NVML counts the present GPUs in the order of their PCI addresses. */
static unsigned index_of(const struct gpu *gpu)
{
    unsigned index = 0;

    for (int i = 0; i < machine.gpu_count; i++)
        index += machine.gpus[i].present && machine_place(&machine.gpus[i]) < machine_place(gpu);
    return index;
}

static void bus_id_of(const struct gpu *gpu, char *text, size_t size)
{
    snprintf(text, size, "%08X:%02X:%02X.0", gpu->domain, gpu->bus, gpu->device);
}

/* Finds the matching GPU. */
static nvmlReturn_t find(bool (*fits)(const struct gpu *, const void *), const void *wanted,
                         nvmlReturn_t otherwise, nvmlDevice_t *device)
{
    nvmlReturn_t result = users ? otherwise : NVML_ERROR_UNINITIALIZED;

    if (!device || !wanted)
        return NVML_ERROR_INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    machine_refresh(&machine);
    for (int i = 0; users && i < machine.gpu_count; i++) {
        if (machine.gpus[i].present && fits(&machine.gpus[i], wanted)) {
            result = (nvmlReturn_t)machine.gpus[i].refused;
            if (result == NVML_SUCCESS)
                *device = handle_of(&machine.gpus[i]);
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Copies the current data of a GPU. */
static nvmlReturn_t look(nvmlDevice_t device, struct gpu *gpu)
{
    struct gpu *slot = NULL;
    nvmlReturn_t result = NVML_ERROR_INVALID_ARGUMENT;

    pthread_mutex_lock(&lock);
    machine_refresh(&machine);
    for (int i = 0; i < machine.gpu_count; i++)
        if (device == handle_of(&machine.gpus[i]))
            slot = &machine.gpus[i];
    if (users == 0) {
        result = NVML_ERROR_UNINITIALIZED;
    } else if (slot) {
        *gpu = *slot;
        result = NVML_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* A handle of an instance is its place in the machine. */
static struct instance *instance_of(const void *handle, struct gpu **gpu)
{
    for (int i = 0; i < machine.gpu_count; i++)
        for (int j = 0; j < MAX_INSTANCES; j++)
            if (handle == &machine.gpus[i].instances[j]) {
                *gpu = &machine.gpus[i];
                return &machine.gpus[i].instances[j];
            }
    return NULL;
}

nvmlReturn_t metal_lab_instance(const void *handle, struct instance *instance, nvmlDevice_t *gpu)
{
    nvmlReturn_t result = NVML_ERROR_INVALID_ARGUMENT;
    struct instance *slot;
    struct gpu *owner = NULL;

    pthread_mutex_lock(&lock);
    machine_refresh(&machine);
    slot = instance_of(handle, &owner);
    if (users == 0) {
        result = NVML_ERROR_UNINITIALIZED;
    } else if (slot) {
        result = owner->present && slot->present ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
        *instance = *slot;
        if (gpu)
            *gpu = handle_of(owner);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Like look(), for values that only the GPU itself has. */
static nvmlReturn_t reach(nvmlDevice_t device, struct gpu *gpu)
{
    nvmlReturn_t result = look(device, gpu);

    if (result == NVML_SUCCESS && !gpu->present)
        return NVML_ERROR_GPU_IS_LOST;
    return result == NVML_SUCCESS ? (nvmlReturn_t)gpu->unreachable : result;
}

nvmlReturn_t metal_lab_look(nvmlDevice_t device, struct gpu *gpu)
{
    return look(device, gpu);
}

nvmlReturn_t metal_lab_reach(nvmlDevice_t device, struct gpu *gpu)
{
    return reach(device, gpu);
}

nvmlReturn_t metal_lab_instance_handle(nvmlDevice_t device, unsigned index, void **handle)
{
    struct gpu gpu;
    nvmlReturn_t result = reach(device, &gpu);

    if (result != NVML_SUCCESS)
        return result;
    if (index >= MAX_INSTANCES || !gpu.instances[index].present)
        return NVML_ERROR_NOT_FOUND;
    *handle = &((struct gpu *)(void *)device)->instances[index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    if (users == 0)
        return NVML_ERROR_UNINITIALIZED;
    pthread_mutex_lock(&lock);
    machine_refresh(&machine);
    *count = 0;
    for (int i = 0; i < machine.gpu_count; i++)
        *count += machine.gpus[i].present;
    pthread_mutex_unlock(&lock);
    return NVML_SUCCESS;
}

static bool has_index(const struct gpu *gpu, const void *index)
{
    return index_of(gpu) == *(const unsigned *)index;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    return find(has_index, &index, NVML_ERROR_INVALID_ARGUMENT, device);
}

static bool has_uuid(const struct gpu *gpu, const void *uuid)
{
    return strcmp(gpu->uuid, uuid) == 0;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    nvmlReturn_t result = find(has_uuid, uuid, NVML_ERROR_NOT_FOUND, device);

    pthread_mutex_lock(&lock);
    for (int i = 0; result == NVML_ERROR_NOT_FOUND && i < machine.gpu_count; i++)
        for (int j = 0; machine.gpus[i].present && j < MAX_INSTANCES; j++) {
            struct instance *instance = &machine.gpus[i].instances[j];

            if (instance->present && strcmp(instance->uuid, uuid) == 0) {
                *device = (nvmlDevice_t)(void *)instance;
                result = NVML_SUCCESS;
            }
        }
    pthread_mutex_unlock(&lock);
    return result;
}

static bool has_serial(const struct gpu *gpu, const void *serial)
{
    return strcmp(gpu->serial, serial) == 0;
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    return find(has_serial, serial, NVML_ERROR_NOT_FOUND, device);
}

/* "0000:03:00.0", "00000000:03:00.0" and "03:00.0" mean the same. */
static bool has_bus_id(const struct gpu *gpu, const void *wanted)
{
    char bus_id[32];
    const char *asked = wanted;
    size_t known, length = strlen(asked);

    bus_id_of(gpu, bus_id, sizeof bus_id);
    known = strlen(bus_id);
    return length >= strlen("03:00.0") && length <= known
           && strcasecmp(bus_id + known - length, asked) == 0;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    return find(has_bus_id, bus_id, NVML_ERROR_NOT_FOUND, device);
}

/* ---- values that the driver remembers -------------------------------------------------------- */

/* Defines a function that returns one value, by a statement with `gpu` and `value`. */
#define ANSWER(function, access, type, statement)        \
    nvmlReturn_t function(nvmlDevice_t device, type *value) \
    {                                                    \
        struct gpu gpu;                                  \
        nvmlReturn_t result = access(device, &gpu);      \
                                                         \
        if (!value)                                      \
            return NVML_ERROR_INVALID_ARGUMENT;          \
        if (result == NVML_SUCCESS) {                    \
            statement;                                   \
        }                                                \
        return result;                                   \
    }

#define ANSWER_TEXT(function, field)                                            \
    nvmlReturn_t function(nvmlDevice_t device, char *text, unsigned int length) \
    {                                                                           \
        struct gpu gpu;                                                         \
        nvmlReturn_t result = look(device, &gpu);                               \
                                                                                \
        return result == NVML_SUCCESS ? give(text, length, gpu.field) : result; \
    }

ANSWER_TEXT(nvmlDeviceGetSerial, serial)
ANSWER_TEXT(nvmlDeviceGetName, name)

ANSWER(nvmlDeviceGetMinorNumber, look, unsigned, *value = gpu.minor)
ANSWER(nvmlDeviceGetBrand, look, nvmlBrandType_t, *value = gpu.brand)
ANSWER(nvmlDeviceGetArchitecture, look, nvmlDeviceArchitecture_t, *value = gpu.architecture)

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned int length)
{
    struct instance instance;
    struct gpu gpu;
    nvmlReturn_t result = metal_lab_instance(device, &instance, NULL);

    if (result == NVML_SUCCESS)
        return give(text, length, instance.uuid);
    if (result == NVML_ERROR_INVALID_ARGUMENT)
        result = look(device, &gpu);
    return result == NVML_SUCCESS ? give(text, length, gpu.uuid) : result;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    struct instance instance;
    struct gpu gpu;
    nvmlReturn_t result = metal_lab_instance(device, &instance, NULL);

    if (!index)
        return NVML_ERROR_INVALID_ARGUMENT;
    *index = instance.index;
    if (result == NVML_ERROR_INVALID_ARGUMENT) {
        result = look(device, &gpu);
        *index = result == NVML_SUCCESS ? index_of(&gpu) : 0;
    }
    return result;
}

static void fill_pci_info(const struct gpu *gpu, nvmlPciInfo_t *pci)
{
    memset(pci, 0, sizeof *pci);
    bus_id_of(gpu, pci->busId, sizeof pci->busId);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", gpu->domain & 0xffff,
             gpu->bus & 0xff, gpu->device & 0x1f);
    pci->domain = gpu->domain;
    pci->bus = gpu->bus;
    pci->device = gpu->device;
    pci->pciDeviceId = gpu->pci_id;
    pci->pciSubSystemId = gpu->subsystem_id;
}

ANSWER(nvmlDeviceGetPciInfo_v3, look, nvmlPciInfo_t, fill_pci_info(&gpu, value))

static void fill_pci_info_ext(const struct gpu *gpu, nvmlPciInfoExt_t *pci)
{
    bus_id_of(gpu, pci->busId, sizeof pci->busId);
    pci->domain = gpu->domain;
    pci->bus = gpu->bus;
    pci->device = gpu->device;
    pci->pciDeviceId = gpu->pci_id;
    pci->pciSubSystemId = gpu->subsystem_id;
    pci->baseClass = gpu->class_ >> 8;
    pci->subClass = gpu->class_ & 0xff;
}

ANSWER(nvmlDeviceGetPciInfoExt, look, nvmlPciInfoExt_t, fill_pci_info_ext(&gpu, value))

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    struct gpu gpu;
    nvmlReturn_t result = look(device, &gpu);

    if (result == NVML_SUCCESS) {
        *major = (int)gpu.cc_major;
        *minor = (int)gpu.cc_minor;
    }
    return result;
}

/* ---- values that only the GPU has ------------------------------------------------------------ */

/* The driver keeps a little of each GPU's memory for itself. */
static unsigned long long reserved_mib(const struct gpu *gpu)
{
    return gpu->memory_mib / 128;
}

static void fill_part(const struct instance *instance, nvmlMemory_t *memory)
{
    memory->total = memory->free = instance->profile.memory_mib * MIB;
    memory->used = 0;
}

static void fill_memory(const struct gpu *gpu, nvmlMemory_t *memory)
{
    memory->total = gpu->memory_mib * MIB;
    memory->used = reserved_mib(gpu) * MIB;
    memory->free = memory->total - memory->used;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct instance instance;
    struct gpu gpu;
    nvmlReturn_t result = metal_lab_instance(device, &instance, NULL);

    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        fill_part(&instance, memory);
    if (result != NVML_ERROR_INVALID_ARGUMENT)
        return result;
    result = reach(device, &gpu);
    if (result == NVML_SUCCESS)
        fill_memory(&gpu, memory);
    return result;
}

static void fill_memory_v2(const struct gpu *gpu, nvmlMemory_v2_t *memory)
{
    memory->total = gpu->memory_mib * MIB;
    memory->reserved = reserved_mib(gpu) * MIB;
    memory->used = 0;
    memory->free = memory->total - memory->reserved;
}

ANSWER(nvmlDeviceGetMemoryInfo_v2, reach, nvmlMemory_v2_t, fill_memory_v2(&gpu, value))

ANSWER(nvmlDeviceGetPersistenceMode, reach, nvmlEnableState_t, *value = gpu.persistence)
ANSWER(nvmlDeviceGetComputeMode, reach, nvmlComputeMode_t, *value = gpu.health.compute)
ANSWER(nvmlDeviceGetPerformanceState, reach, nvmlPstates_t, *value = NVML_PSTATE_0)
ANSWER(nvmlDeviceGetDisplayActive, reach, nvmlEnableState_t, *value = NVML_FEATURE_DISABLED)
ANSWER(nvmlDeviceGetPowerUsage, reach, unsigned, *value = gpu.power_w * 1000 / 10)
ANSWER(nvmlDeviceGetEnforcedPowerLimit, look, unsigned, *value = gpu.power_w * 1000)
ANSWER(nvmlDeviceGetUtilizationRates, reach, nvmlUtilization_t, memset(value, 0, sizeof *value))

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                      unsigned int *celsius)
{
    struct gpu gpu;
    nvmlReturn_t result = reach(device, &gpu);

    if (sensor != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *celsius = 30 + gpu.minor;
    return result;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current,
                                  nvmlEnableState_t *pending)
{
    struct gpu gpu;
    nvmlReturn_t result = reach(device, &gpu);

    if (result == NVML_SUCCESS)
        *current = *pending = NVML_FEATURE_ENABLED;
    return result;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                         nvmlEccCounterType_t counter, unsigned long long *count)
{
    struct gpu gpu;
    nvmlReturn_t result = reach(device, &gpu);

    (void)counter;
    if (result == NVML_SUCCESS)
        *count = type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED
                     ? (gpu.fault == 48) + gpu.health.ecc : 0;
    return result;
}

nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device)
{
    struct gpu gpu;
    nvmlReturn_t result = reach(device, &gpu);

    return result == NVML_SUCCESS && gpu.inforom_corrupted ? NVML_ERROR_CORRUPTED_INFOROM : result;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    struct gpu gpu;
    nvmlReturn_t result = reach(device, &gpu);

    if (result == NVML_SUCCESS && !gpu.mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS) {
        *current = gpu.mig ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
        *pending = gpu.mig || gpu.health.mig_pending ? NVML_DEVICE_MIG_ENABLE
                                                     : NVML_DEVICE_MIG_DISABLE;
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    struct gpu gpu;
    nvmlReturn_t result = reach(device, &gpu);

    if (result == NVML_SUCCESS) {
        memset(info, 0, sizeof *info);
        info->state = (unsigned char)gpu.fabric;
        info->status = NVML_SUCCESS;
    }
    return result;
}

/* Programs that compute on simulated GPUs are not counted: they end at once. */
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *processes)
{
    struct gpu gpu;
    nvmlReturn_t result = reach(device, &gpu);

    (void)processes;
    if (result == NVML_SUCCESS)
        *count = 0;
    return result;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other,
                                                 nvmlGpuTopologyLevel_t *level)
{
    struct gpu a, b;
    nvmlReturn_t result = look(one, &a);

    if (result == NVML_SUCCESS)
        result = look(other, &b);
    if (result == NVML_SUCCESS)
        *level = a.numa_node == b.numa_node ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
    return result;
}

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode)
{
    struct gpu gpu;
    nvmlReturn_t result = reach(device, &gpu);
    int fd;

    if (result != NVML_SUCCESS)
        return result;
    if (gpu.persistence_offset < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    /* The file is read-only in containers: with a real driver, they may not do this either. */
    fd = open(machine_path(), O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return NVML_ERROR_NO_PERMISSION;
    if (pwrite(fd, mode == NVML_FEATURE_ENABLED ? "1" : "0", 1, gpu.persistence_offset) != 1)
        result = NVML_ERROR_UNKNOWN;
    close(fd);
    return result;
}

/* ---- events ---------------------------------------------------------------------------------- */

struct nvmlEventSet_st {
    int count;
    struct {
        struct gpu *gpu;
        unsigned known_fault; /* already reported, or older than the first query */
    } watched[MAX_GPUS];
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    *set = calloc(1, sizeof **set);
    return *set ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    free(set);
    return NVML_SUCCESS;
}

ANSWER(nvmlDeviceGetSupportedEventTypes, reach, unsigned long long,
       *value = nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError
                | nvmlEventTypeSingleBitEccError)

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set)
{
    struct gpu gpu;
    nvmlReturn_t result = reach(device, &gpu);

    if (result == NVML_SUCCESS && (types & nvmlEventTypeXidCriticalError) && set->count < MAX_GPUS) {
        set->watched[set->count].gpu = (struct gpu *)(void *)device;
        set->watched[set->count].known_fault = gpu.fault;
        set->count++;
    }
    return result;
}

static bool next_event(nvmlEventSet_t set, nvmlEventData_t *data)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    machine_refresh(&machine);
    for (int i = 0; i < set->count && !found; i++) {
        const unsigned fault = set->watched[i].gpu->fault;

        found = fault != 0 && fault != set->watched[i].known_fault;
        set->watched[i].known_fault = fault;
        if (found)
            *data = (nvmlEventData_t){
                .device = handle_of(set->watched[i].gpu),
                .eventType = nvmlEventTypeXidCriticalError,
                .eventData = fault,
                .gpuInstanceId = 0xFFFFFFFF,
                .computeInstanceId = 0xFFFFFFFF,
            };
    }
    pthread_mutex_unlock(&lock);
    return found;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    enum { STEP_MS = 200 };

    for (unsigned waited = 0;; waited += STEP_MS) {
        if (next_event(set, data))
            return NVML_SUCCESS;
        if (waited >= timeout_ms)
            return NVML_ERROR_TIMEOUT;
        unsigned pause = timeout_ms - waited < STEP_MS ? timeout_ms - waited : STEP_MS;
        nanosleep(&(struct timespec){.tv_nsec = pause * 1000000L}, NULL);
    }
}

/* ---- only for the stand-in of nvidia-smi ------------------------------------------------------- */

/* How it must misbehave, and the PCI address of a GPU without a handle. The real program gets the
 * address from the driver in other ways. */
__attribute__((visibility("default"))) const char *metal_lab_smi(void);
__attribute__((visibility("default"))) void metal_lab_instance_files(void);
__attribute__((visibility("default"))) void metal_lab_bus_id(unsigned index, char *text,
                                                             size_t size);

const char *metal_lab_smi(void)
{
    return machine.smi;
}

/* The real program finds the name of a profile by its number. */
__attribute__((visibility("default"))) const char *metal_lab_profile(nvmlDevice_t instance);

const char *metal_lab_profile(nvmlDevice_t instance)
{
    static struct instance part;

    return metal_lab_instance(instance, &part, NULL) == NVML_SUCCESS ? part.profile.name : "";
}

/* The real nvidia-smi creates the files of MIG instances, and NVML in other programs does not. */
void metal_lab_instance_files(void)
{
    pthread_mutex_lock(&lock);
    machine_refresh(&machine);
    machine_instance_files(&machine);
    pthread_mutex_unlock(&lock);
}

void metal_lab_bus_id(unsigned index, char *text, size_t size)
{
    for (int i = 0; i < machine.gpu_count; i++)
        if (machine.gpus[i].present && index_of(&machine.gpus[i]) == index)
            bus_id_of(&machine.gpus[i], text, size);
}

/* ---- names of older versions that callers still use ------------------------------------------ */

#define OLD_NAME(old, new) __typeof__(new) old __attribute__((alias(#new)));

OLD_NAME(nvmlInit, nvmlInit_v2)
OLD_NAME(nvmlDeviceGetCount, nvmlDeviceGetCount_v2)
OLD_NAME(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2)
OLD_NAME(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2)
OLD_NAME(nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v3)
OLD_NAME(nvmlDeviceGetPciInfo_v2, nvmlDeviceGetPciInfo_v3)
OLD_NAME(nvmlEventSetWait, nvmlEventSetWait_v2)
OLD_NAME(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlDeviceGetComputeRunningProcesses_v3)

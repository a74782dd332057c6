/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* nvidia-smi for simulated GPUs: the list, the table, --query-gpu, -q -x and persistence mode, with the
 * texts and exit codes of the real one: its man page, "RETURN VALUE", and, for a GPU without a
 * handle, recorded/nvidia_smi_handles.yml. The real program accepts only its own NVML.
 *
 * NVML is opened at run time, as in the real program: a container may not have it. */

#include "smi.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_BAD_ARGUMENT = 2, EXIT_NO_PERMISSION = 4, EXIT_NOTHING_FOUND = 6 };

struct nvml nvml;
struct device devices[MAX_DEVICES];
unsigned device_count;
static int refusal_status; /* how to exit after a GPU without a handle */

__attribute__((format(printf, 2, 3), noreturn)) static void leave(int status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    exit(status);
}

/* ---- NVML ------------------------------------------------------------------------------------ */

static void load_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);

    if (!library)
        leave(NVML_ERROR_LIBRARY_NOT_FOUND,
              "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. "
              "Please make sure that the NVIDIA Display Driver is properly installed and present "
              "in your system.\n"
              "Please also try adding directory that contains libnvidia-ml.so to your system "
              "PATH.\n");
#define RESOLVE(function)                                                             \
    if (!(*(void **)&nvml.function = dlsym(library, #function)))                      \
        leave(NVML_ERROR_FUNCTION_NOT_FOUND, "NVML does not know " #function "().\n");
    NVML_FUNCTIONS(RESOLVE)
    *(void **)&nvml.metal_lab_smi = dlsym(library, "metal_lab_smi");
    *(void **)&nvml.metal_lab_bus_id = dlsym(library, "metal_lab_bus_id");
    *(void **)&nvml.metal_lab_instance_files = dlsym(library, "metal_lab_instance_files");
    *(void **)&nvml.metal_lab_profile = dlsym(library, "metal_lab_profile");
}

static int exit_status(nvmlReturn_t result)
{
    switch (result) {
    case NVML_ERROR_TIMEOUT:
    case NVML_ERROR_RESET_REQUIRED:
    case NVML_ERROR_NOT_READY:
    case NVML_ERROR_UNKNOWN:
        return 255;
    default:
        return (int)result;
    }
}

static void start_nvml(void)
{
    const nvmlReturn_t result = nvml.nvmlInit_v2();

    switch (result) {
    case NVML_SUCCESS:
        nvml.metal_lab_instance_files();
        return;
    case NVML_ERROR_DRIVER_NOT_LOADED:
        leave(result, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA "
                      "driver. Make sure that the latest NVIDIA driver is installed and "
                      "running.\n\n");
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: {
        const char *branch_end = strchr(strchr(DRIVER_VERSION, '.') + 1, '.');

        leave(result, "Failed to initialize NVML: %s\nNVML library version: %.*s\n",
              nvml.nvmlErrorString(result),
              (int)(branch_end ? branch_end - DRIVER_VERSION : (long)strlen(DRIVER_VERSION)),
              DRIVER_VERSION);
    }
    default:
        leave(exit_status(result), "Failed to initialize NVML: %s\n",
              nvml.nvmlErrorString(result));
    }
}

/* ---- a fault of the program itself ----------------------------------------------------------- */

int misbehaves(const char *word)
{
    return strstr(nvml.metal_lab_smi(), word) != NULL;
}

/* The real one hangs in the kernel, where not even SIGKILL ends it. */
static void hang_or_babble(void)
{
    while (misbehaves("hang"))
        pause();
    if (misbehaves("garbage")) {
        static const char noise[] = "\x1b[2J0, GPU-\xff\xfe, \0\0, [N/A\n1, \xc3";

        fwrite(noise, 1, sizeof noise - 1, stdout);
        exit(EXIT_SUCCESS);
    }
}

static int with_fault(int status)
{
    const char *at = strstr(nvml.metal_lab_smi(), "exit=");

    return status == EXIT_SUCCESS && at ? atoi(at + strlen("exit=")) : status;
}

/* ---- the GPUs to work on --------------------------------------------------------------------- */

static const char *refusal_words(nvmlReturn_t result)
{
    switch (result) {
    case NVML_ERROR_NO_PERMISSION:
    case NVML_ERROR_NOT_FOUND:
        return nvml.nvmlErrorString(result);
    case NVML_ERROR_GPU_IS_LOST:
        return "GPU is lost.  Reboot the system to recover this GPU\n\n";
    case NVML_ERROR_RESET_REQUIRED:
        return "A GPU reset must occur before this GPU can be used again.\n\n.";
    default:
        return "Unknown Error";
    }
}

/* Branch 570 and later also print the PCI address, as seen in records. */
static void print_refusal(unsigned index, nvmlReturn_t result)
{
    char bus_id[32] = "????????";

    nvml.metal_lab_bus_id(index, bus_id, sizeof bus_id);
    printf("Unable to determine the device handle for GPU%u: ", index);
    if (atoi(DRIVER_VERSION) >= 570)
        printf("%s: ", bus_id + 4);
    printf("%s\n", refusal_words(result));
}

static void choose(nvmlDevice_t handle)
{
    struct device *device = &devices[device_count++];
    nvmlPciInfo_t pci;

    device->handle = handle;
    nvml.nvmlDeviceGetIndex(handle, &device->index);
    nvml.nvmlDeviceGetPciInfo_v3(handle, &pci);
    memcpy(device->bus_id, pci.busId, sizeof device->bus_id);
}

static nvmlReturn_t find_device(const char *id, nvmlDevice_t *handle)
{
    if (id[strspn(id, "0123456789")] == '\0' && strlen(id) < 4)
        return nvml.nvmlDeviceGetHandleByIndex_v2((unsigned)atoi(id), handle);
    if (strncmp(id, "GPU-", 4) == 0)
        return nvml.nvmlDeviceGetHandleByUUID(id, handle);
    if (strchr(id, ':'))
        return nvml.nvmlDeviceGetHandleByPciBusId_v2(id, handle);
    return nvml.nvmlDeviceGetHandleBySerial(id, handle);
}

/* One GPU without a handle ends the program before it prints the others. It prints no message if
 * NVML returns "not found" or "no permission". Some branches since 570 still print the rows of the
 * others, as seen in records. */
static void choose_or_leave(nvmlReturn_t result, nvmlDevice_t handle, unsigned index)
{
    if (result == NVML_SUCCESS) {
        choose(handle);
    } else if (result != NVML_ERROR_NOT_FOUND && result != NVML_ERROR_NO_PERMISSION) {
        print_refusal(index, result);
        refusal_status = exit_status(result);
        if (!misbehaves("rows"))
            exit(refusal_status);
    }
}

/* ids: indexes, UUIDs, bus ids or serial numbers, separated by commas. NULL means all. */
static void choose_devices(const char *ids)
{
    nvmlDevice_t handle = NULL;
    nvmlReturn_t result;
    unsigned count = 0;

    if (ids) {
        char *list = strdup(ids), *rest = NULL;
        for (char *id = strtok_r(list, ",", &rest); id; id = strtok_r(NULL, ",", &rest)) {
            result = device_count < MAX_DEVICES ? find_device(id, &handle) : NVML_ERROR_NOT_FOUND;
            if (result != NVML_ERROR_INVALID_ARGUMENT) /* no such index */
                choose_or_leave(result, handle, (unsigned)atoi(id));
        }
        free(list);
    } else {
        nvml.nvmlDeviceGetCount_v2(&count);
        for (unsigned i = 0; i < count && i < MAX_DEVICES; i++) {
            result = nvml.nvmlDeviceGetHandleByIndex_v2(i, &handle);
            choose_or_leave(result, handle, i);
        }
    }
    if (device_count == 0 && refusal_status == EXIT_SUCCESS)
        leave(EXIT_NOTHING_FOUND, "No devices were found\n");
}

/* ---- --query-gpu ----------------------------------------------------------------------------- */

static const char *on_off(nvmlEnableState_t state)
{
    return state == NVML_FEATURE_ENABLED ? "Enabled" : "Disabled";
}

/* A cell function writes its value without a unit, and returns NVML's code. */
#define CELL(name) static nvmlReturn_t name(nvmlDevice_t device, char *cell)
#define PRINT(...) snprintf(cell, CELL_SIZE, __VA_ARGS__)

#define NUMBER_CELL(name, type, call, format, value) \
    CELL(name)                                       \
    {                                                \
        type answer = {0};                           \
        nvmlReturn_t result = call(device, &answer); \
        PRINT(format, value);                        \
        return result;                               \
    }

#define TEXT_CELL(name, call) \
    CELL(name) { return call(device, cell, CELL_SIZE); }

#define PAIR_CELL(name, type, call, format, value)            \
    CELL(name)                                                \
    {                                                         \
        type first = {0}, second = {0};                       \
        nvmlReturn_t result = call(device, &first, &second);  \
        PRINT(format, value);                                 \
        return result;                                        \
    }

#define MEMORY_CELL(name, field)                                             \
    CELL(name)                                                               \
    {                                                                        \
        nvmlMemory_v2_t memory = {.version = nvmlMemory_v2};                 \
        nvmlReturn_t result = nvml.nvmlDeviceGetMemoryInfo_v2(device, &memory); \
        PRINT("%llu", memory.field / MIB);                                   \
        return result;                                                       \
    }

#define CLASS_CELL(name, field)                                             \
    CELL(name)                                                              \
    {                                                                       \
        nvmlPciInfoExt_t pci = {.version = nvmlPciInfoExt_v1};              \
        nvmlReturn_t result = nvml.nvmlDeviceGetPciInfoExt(device, &pci);   \
        PRINT("0x%X", pci.field);                                           \
        return result;                                                      \
    }

TEXT_CELL(name_cell, nvml.nvmlDeviceGetName)
TEXT_CELL(uuid_cell, nvml.nvmlDeviceGetUUID)
TEXT_CELL(serial_cell, nvml.nvmlDeviceGetSerial)
NUMBER_CELL(index_cell, unsigned, nvml.nvmlDeviceGetIndex, "%u", answer)
NUMBER_CELL(bus_id_cell, nvmlPciInfo_t, nvml.nvmlDeviceGetPciInfo_v3, "%s", answer.busId)
NUMBER_CELL(domain_cell, nvmlPciInfo_t, nvml.nvmlDeviceGetPciInfo_v3, "0x%04X", answer.domain)
NUMBER_CELL(bus_cell, nvmlPciInfo_t, nvml.nvmlDeviceGetPciInfo_v3, "0x%02X", answer.bus)
NUMBER_CELL(slot_cell, nvmlPciInfo_t, nvml.nvmlDeviceGetPciInfo_v3, "0x%02X", answer.device)
NUMBER_CELL(pci_id_cell, nvmlPciInfo_t, nvml.nvmlDeviceGetPciInfo_v3, "0x%08X", answer.pciDeviceId)
NUMBER_CELL(subsystem_cell, nvmlPciInfo_t, nvml.nvmlDeviceGetPciInfo_v3, "0x%08X",
            answer.pciSubSystemId)
CLASS_CELL(base_class_cell, baseClass)
CLASS_CELL(sub_class_cell, subClass)
MEMORY_CELL(memory_total_cell, total)
MEMORY_CELL(memory_reserved_cell, reserved)
MEMORY_CELL(memory_used_cell, used)
MEMORY_CELL(memory_free_cell, free)
NUMBER_CELL(persistence_cell, nvmlEnableState_t, nvml.nvmlDeviceGetPersistenceMode, "%s",
            on_off(answer))
NUMBER_CELL(display_cell, nvmlEnableState_t, nvml.nvmlDeviceGetDisplayActive, "%s", on_off(answer))
NUMBER_CELL(pstate_cell, nvmlPstates_t, nvml.nvmlDeviceGetPerformanceState, "P%d", (int)answer)
NUMBER_CELL(power_cell, unsigned, nvml.nvmlDeviceGetPowerUsage, "%.2f", answer / 1000.0)
NUMBER_CELL(power_limit_cell, unsigned, nvml.nvmlDeviceGetEnforcedPowerLimit, "%.2f",
            answer / 1000.0)
NUMBER_CELL(gpu_use_cell, nvmlUtilization_t, nvml.nvmlDeviceGetUtilizationRates, "%u", answer.gpu)
NUMBER_CELL(memory_use_cell, nvmlUtilization_t, nvml.nvmlDeviceGetUtilizationRates, "%u",
            answer.memory)
PAIR_CELL(mig_current_cell, unsigned, nvml.nvmlDeviceGetMigMode, "%s", on_off(first))
PAIR_CELL(mig_pending_cell, unsigned, nvml.nvmlDeviceGetMigMode, "%s", on_off(second))
PAIR_CELL(ecc_current_cell, nvmlEnableState_t, nvml.nvmlDeviceGetEccMode, "%s", on_off(first))
PAIR_CELL(ecc_pending_cell, nvmlEnableState_t, nvml.nvmlDeviceGetEccMode, "%s", on_off(second))

CELL(compute_cap_cell)
{
    int major = 0, minor = 0;
    nvmlReturn_t result = nvml.nvmlDeviceGetCudaComputeCapability(device, &major, &minor);

    PRINT("%d.%d", major, minor);
    return result;
}

CELL(count_cell)
{
    unsigned count = 0;
    nvmlReturn_t result = nvml.nvmlDeviceGetCount_v2(&count);

    (void)device;
    PRINT("%u", count);
    return result;
}

CELL(driver_version_cell)
{
    (void)device;
    return nvml.nvmlSystemGetDriverVersion(cell, CELL_SIZE);
}

CELL(temperature_cell)
{
    unsigned celsius = 0;
    nvmlReturn_t result = nvml.nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, &celsius);

    PRINT("%u", celsius);
    return result;
}

CELL(ecc_errors_cell)
{
    unsigned long long count = 0;
    nvmlReturn_t result = nvml.nvmlDeviceGetTotalEccErrors(
        device, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, &count);

    PRINT("%llu", count);
    return result;
}

CELL(timestamp_cell)
{
    time_t now = time(NULL);

    (void)device;
    strftime(cell, CELL_SIZE, "%Y/%m/%d %H:%M:%S.000", localtime(&now));
    return NVML_SUCCESS;
}

/* Without brackets, unlike other cells without a value: real values of 590 to 610. */
static nvmlReturn_t fabric_cell(nvmlDevice_t device, char *cell, const char *completed)
{
    nvmlGpuFabricInfo_t info = {0};
    nvmlReturn_t result = nvml.nvmlDeviceGetGpuFabricInfo(device, &info);

    PRINT("%s", info.state == NVML_GPU_FABRIC_STATE_COMPLETED ? completed : "N/A");
    return result;
}

CELL(fabric_status_cell) { return fabric_cell(device, cell, "Success"); }

CELL(fabric_state_cell)
{
    nvmlGpuFabricInfo_t info = {0};
    nvmlReturn_t result = nvml.nvmlDeviceGetGpuFabricInfo(device, &info);

    if (info.state == NVML_GPU_FABRIC_STATE_NOT_STARTED)
        PRINT("Not Started");
    else if (info.state == NVML_GPU_FABRIC_STATE_IN_PROGRESS)
        PRINT("In Progress");
    else
        return fabric_cell(device, cell, "Completed");
    return result;
}

CELL(unsupported_cell)
{
    (void)device;
    (void)cell;
    return NVML_ERROR_NOT_SUPPORTED;
}

static const struct field {
    const char *name, *alias, *unit;
    nvmlReturn_t (*cell)(nvmlDevice_t device, char *cell);
} fields[] = {
    {"timestamp", NULL, NULL, timestamp_cell},
    {"driver_version", NULL, NULL, driver_version_cell},
    {"count", NULL, NULL, count_cell},
    {"name", "gpu_name", NULL, name_cell},
    {"serial", "gpu_serial", NULL, serial_cell},
    {"uuid", "gpu_uuid", NULL, uuid_cell},
    {"index", NULL, NULL, index_cell},
    {"pci.bus_id", "gpu_bus_id", NULL, bus_id_cell},
    {"pci.domain", NULL, NULL, domain_cell},
    {"pci.bus", NULL, NULL, bus_cell},
    {"pci.device", NULL, NULL, slot_cell},
    {"pci.baseClass", NULL, NULL, base_class_cell},
    {"pci.subClass", NULL, NULL, sub_class_cell},
    {"pci.device_id", NULL, NULL, pci_id_cell},
    {"pci.sub_device_id", NULL, NULL, subsystem_cell},
    {"memory.total", NULL, "MiB", memory_total_cell},
    {"memory.reserved", NULL, "MiB", memory_reserved_cell},
    {"memory.used", NULL, "MiB", memory_used_cell},
    {"memory.free", NULL, "MiB", memory_free_cell},
    {"persistence_mode", NULL, NULL, persistence_cell},
    {"compute_cap", NULL, NULL, compute_cap_cell},
    {"mig.mode.current", NULL, NULL, mig_current_cell},
    {"mig.mode.pending", NULL, NULL, mig_pending_cell},
    {"ecc.mode.current", NULL, NULL, ecc_current_cell},
    {"ecc.mode.pending", NULL, NULL, ecc_pending_cell},
    {"ecc.errors.uncorrected.volatile.total", NULL, NULL, ecc_errors_cell},
    {"display_active", NULL, NULL, display_cell},
    {"pstate", NULL, NULL, pstate_cell},
    {"temperature.gpu", NULL, NULL, temperature_cell},
    {"power.draw", NULL, "W", power_cell},
    {"power.limit", NULL, "W", power_limit_cell},
    {"utilization.gpu", NULL, "%", gpu_use_cell},
    {"utilization.memory", NULL, "%", memory_use_cell},
    {"fabric.state", NULL, NULL, fabric_state_cell},
    {"fabric.status", NULL, NULL, fabric_status_cell},
    /* The real program knows these. Simulated GPUs have no value. */
    {"addressing_mode", NULL, NULL, unsupported_cell},
    {"gsp.mode.current", NULL, NULL, unsupported_cell},
    {"gsp.mode.default", NULL, NULL, unsupported_cell},
    {"vbios_version", NULL, NULL, unsupported_cell},
    {"fan.speed", NULL, "%", unsupported_cell},
    {"retired_pages.pending", NULL, NULL, unsupported_cell},
    {"reset_status.reset_required", NULL, NULL, unsupported_cell},
    {"reset_status.drain_and_reset_recommended", NULL, NULL, unsupported_cell},
};

static const struct field *find_field(const char *name)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i].name, name) == 0
            || (fields[i].alias && strcmp(fields[i].alias, name) == 0))
            return &fields[i];
    leave(EXIT_BAD_ARGUMENT, "Field \"%s\" is not a valid field to query.\n\n", name);
}

static void print_cell(const struct field *field, nvmlDevice_t device, int with_units)
{
    char cell[CELL_SIZE];
    nvmlReturn_t result = field->cell(device, cell);

    switch (result) {
    case NVML_SUCCESS:
        printf("%s%s%s", cell, with_units && field->unit ? " " : "",
               with_units && field->unit ? field->unit : "");
        break;
    case NVML_ERROR_NOT_SUPPORTED:
        printf("[N/A]");
        break;
    default:
        printf("[%s]", nvml.nvmlErrorString(result));
    }
}

static int query(char *names, const char *format, const char *ids)
{
    const struct field *chosen[MAX_FIELDS];
    int with_header = !strstr(format, "noheader"), with_units = !strstr(format, "nounits");
    unsigned count = 0;
    char *rest = NULL;

    for (char *name = strtok_r(names, ", ", &rest); name && count < MAX_FIELDS;
         name = strtok_r(NULL, ", ", &rest))
        chosen[count++] = find_field(name);
    choose_devices(ids);

    for (unsigned i = 0; with_header && i < count; i++)
        printf("%s%s%s%s%s", i ? ", " : "", chosen[i]->name, chosen[i]->unit ? " [" : "",
               chosen[i]->unit ? chosen[i]->unit : "", chosen[i]->unit ? "]" : "");
    if (with_header)
        printf("\n");
    for (unsigned d = 0; d < device_count; d++) {
        for (unsigned i = 0; i < count; i++) {
            printf("%s", i ? ", " : "");
            print_cell(chosen[i], devices[d].handle, with_units);
        }
        printf("\n");
    }
    return refusal_status;
}

/* ---- -L, the table, -pm ---------------------------------------------------------------------- */

static void print_listed(nvmlDevice_t handle, unsigned index)
{
    char name[CELL_SIZE], uuid[CELL_SIZE];
    nvmlDevice_t instance;
    unsigned most = 0;

    nvml.nvmlDeviceGetName(handle, name, sizeof name);
    nvml.nvmlDeviceGetUUID(handle, uuid, sizeof uuid);
    printf("GPU %u: %s (UUID: %s)\n", index, name, uuid);
    nvml.nvmlDeviceGetMaxMigDeviceCount(handle, &most);
    for (unsigned i = 0; i < most; i++) {
        if (nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, i, &instance) != NVML_SUCCESS)
            continue;
        nvml.nvmlDeviceGetUUID(instance, uuid, sizeof uuid);
        printf("  MIG %-12sDevice %2u: (UUID: %s)\n", nvml.metal_lab_profile(instance), i, uuid);
    }
}

/* If no GPUs are selected, it continues after a GPU without a handle. */
static int list(const char *ids)
{
    nvmlDevice_t handle;
    unsigned count = 0;

    if (ids) {
        choose_devices(ids);
        for (unsigned d = 0; d < device_count; d++)
            print_listed(devices[d].handle, devices[d].index);
        return refusal_status;
    }
    nvml.nvmlDeviceGetCount_v2(&count);
    for (unsigned i = 0; i < count; i++) {
        nvmlReturn_t result = nvml.nvmlDeviceGetHandleByIndex_v2(i, &handle);

        if (result == NVML_SUCCESS) {
            print_listed(handle, i);
        } else {
            printf("Unable to determine the device handle for gpu %u: %s\n", i,
                   refusal_words(result));
            refusal_status = exit_status(result);
        }
    }
    if (count == 0)
        leave(EXIT_NOTHING_FOUND, "No devices were found\n");
    return refusal_status;
}

/* Returns the code from the GPU itself. */
static nvmlReturn_t print_table_row(const struct device *device)
{
    char name[CELL_SIZE], celsius[CELL_SIZE], errors[CELL_SIZE], use[CELL_SIZE];
    nvmlMemory_v2_t memory = {.version = nvmlMemory_v2};
    nvmlEnableState_t persistence = NVML_FEATURE_DISABLED;
    unsigned draw = 0, limit = 0, mig = 0, mig_pending = 0;
    char power[64], usage[64], load[CELL_SIZE + 1];
    nvmlReturn_t result = nvml.nvmlDeviceGetMemoryInfo_v2(device->handle, &memory);
    nvmlReturn_t mig_result;

    nvml.nvmlDeviceGetName(device->handle, name, sizeof name);
    nvml.nvmlDeviceGetPersistenceMode(device->handle, &persistence);
    nvml.nvmlDeviceGetPowerUsage(device->handle, &draw);
    nvml.nvmlDeviceGetEnforcedPowerLimit(device->handle, &limit);
    temperature_cell(device->handle, celsius);
    ecc_errors_cell(device->handle, errors);
    gpu_use_cell(device->handle, use);
    mig_result = nvml.nvmlDeviceGetMigMode(device->handle, &mig, &mig_pending);

    snprintf(power, sizeof power, "%uW / %4uW", draw / 1000, limit / 1000);
    snprintf(usage, sizeof usage, "%lluMiB / %6lluMiB", memory.used / MIB, memory.total / MIB);
    snprintf(load, sizeof load, "%s%%", use);
    if (result != NVML_SUCCESS) {
        snprintf(power, sizeof power, "ERR! / %4uW", limit / 1000);
        snprintf(usage, sizeof usage, "%-22s", nvml.nvmlErrorString(result));
        strcpy(celsius, "ERR!");
        strcpy(errors, "ERR!");
        strcpy(load, "ERR!");
    }
    printf("|%4u  %-24.24s %9s |   %s Off |%21s |\n", device->index, name,
           persistence == NVML_FEATURE_ENABLED ? "On" : "Off", device->bus_id, errors);
    printf("| N/A %4.4s%s    P0   %21s |%23s |%8s      Default |\n", celsius,
           result == NVML_SUCCESS ? "C" : " ", power, usage, load);
    printf("|                                         |                        |%21s |\n",
           mig_result == NVML_ERROR_NOT_SUPPORTED ? "N/A" : mig ? "Enabled" : "Disabled");
    printf("+-----------------------------------------+------------------------+"
           "----------------------+\n");
    return result;
}

static int table(const char *ids)
{
    char now_text[64];
    char driver[CELL_SIZE] = "", cuda[32];
    int version = 0, status;
    time_t now = time(NULL);

    choose_devices(ids);
    status = refusal_status;
    nvml.nvmlSystemGetDriverVersion(driver, sizeof driver);
    nvml.nvmlSystemGetCudaDriverVersion_v2(&version);
    snprintf(cuda, sizeof cuda, "%d.%d", version / 1000, version % 1000 / 10);
    strftime(now_text, sizeof now_text, "%a %b %e %H:%M:%S %Y", localtime(&now));

    printf("%s       \n"
           "+------------------------------------------------------------------"
           "-----------------------+\n"
           "| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |\n"
           "+-----------------------------------------+------------------------+"
           "----------------------+\n"
           "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | "
           "Volatile Uncorr. ECC |\n"
           "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | "
           "GPU-Util  Compute M. |\n"
           "|                                         |                        | "
           "              MIG M. |\n"
           "|=========================================+========================+"
           "======================|\n",
           now_text, DRIVER_VERSION, driver, cuda);
    for (unsigned d = 0; d < device_count; d++) {
        nvmlReturn_t result = print_table_row(&devices[d]);

        status = result == NVML_SUCCESS ? status : exit_status(result);
    }
    printf("\n"
           "+------------------------------------------------------------------"
           "-----------------------+\n"
           "| Processes:                                                       "
           "                       |\n"
           "|  GPU   GI   CI              PID   Type   Process name            "
           "            GPU Memory |\n"
           "|        ID   ID                                                   "
           "            Usage      |\n"
           "|=================================================================="
           "=======================|\n"
           "|  No running processes found                                      "
           "                       |\n"
           "+------------------------------------------------------------------"
           "-----------------------+\n");
    for (unsigned d = 0; d < device_count; d++) {
        if (nvml.nvmlDeviceValidateInforom(devices[d].handle) == NVML_ERROR_CORRUPTED_INFOROM) {
            printf("WARNING: infoROM is corrupted at gpu %s\n", devices[d].bus_id);
            status = NVML_ERROR_CORRUPTED_INFOROM;
        }
    }
    return status;
}

static int set_persistence(const char *wanted, const char *ids)
{
    const int enable = strcmp(wanted, "1") == 0 || strcmp(wanted, "ENABLED") == 0;
    const char *word = enable ? "Enabled" : "Disabled";

    if (!enable && strcmp(wanted, "0") != 0 && strcmp(wanted, "DISABLED") != 0)
        leave(EXIT_BAD_ARGUMENT, "Invalid value \"%s\" for option \"-pm\".\n", wanted);
    choose_devices(ids);
    for (unsigned d = 0; d < device_count; d++) {
        nvmlEnableState_t mode = NVML_FEATURE_DISABLED;
        nvmlReturn_t result = nvml.nvmlDeviceGetPersistenceMode(devices[d].handle, &mode);
        int already = result == NVML_SUCCESS && (mode == NVML_FEATURE_ENABLED) == enable;

        if (result == NVML_SUCCESS && !already)
            result = nvml.nvmlDeviceSetPersistenceMode(
                devices[d].handle, enable ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED);
        if (result != NVML_SUCCESS)
            leave(exit_status(result),
                  "Unable to set persistence mode for GPU %s: %s\n"
                  "Terminating early due to previous errors.\n",
                  devices[d].bus_id, nvml.nvmlErrorString(result));
        if (already)
            printf("Persistence mode is already %s for GPU %s.\n", word, devices[d].bus_id);
        else
            printf("%s persistence mode for GPU %s.\n", word, devices[d].bus_id);
    }
    printf("All done.\n");
    return refusal_status;
}

static int report(const char *ids)
{
    choose_devices(ids);
    print_report();
    return refusal_status;
}

/* ---- arguments ------------------------------------------------------------------------------- */

__attribute__((noreturn)) static void refuse_arguments(void)
{
    leave(EXIT_BAD_ARGUMENT,
          "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n");
}

/* The value of an option in any of its forms: "-i 0", "--id=0", "--id 0". NULL for other options. */
static char *option(char **arguments, int *at, const char *short_name, const char *long_name)
{
    const size_t length = strlen(long_name);
    char *argument = arguments[*at];

    if (strncmp(argument, long_name, length) == 0 && argument[length] == '=')
        return argument + length + 1;
    if (strcmp(argument, long_name) != 0 && (!short_name || strcmp(argument, short_name) != 0))
        return NULL;
    if (!arguments[*at + 1])
        refuse_arguments();
    return arguments[++*at];
}

int main(int count, char **arguments)
{
    char *names = NULL, *format = NULL, *ids = NULL, *persistence = NULL, *value;
    int list_wanted = 0, report_wanted = 0, xml_wanted = 0;

    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "-L") == 0 || strcmp(arguments[i], "--list-gpus") == 0)
            list_wanted = 1;
        else if (strcmp(arguments[i], "-q") == 0 || strcmp(arguments[i], "--query") == 0)
            report_wanted = 1;
        else if (strcmp(arguments[i], "-x") == 0 || strcmp(arguments[i], "--xml-format") == 0)
            xml_wanted = 1;
        else if (strcmp(arguments[i], "-h") == 0 || strcmp(arguments[i], "--help") == 0)
            leave(EXIT_SUCCESS,
                  "NVIDIA System Management Interface -- v" DRIVER_VERSION "\n\n"
                  "nvidia-smi [-i ID,...] [-L | -q -x | -pm 0|1 |"
                  " --query-gpu=FIELD,... --format=csv[,noheader][,nounits]]\n");
        else if ((value = option(arguments, &i, NULL, "--query-gpu")))
            names = value;
        else if ((value = option(arguments, &i, NULL, "--format")))
            format = value;
        else if ((value = option(arguments, &i, "-i", "--id")))
            ids = value;
        else if ((value = option(arguments, &i, "-pm", "--persistence-mode")))
            persistence = value;
        else
            refuse_arguments();
    }
    if (!names != !format || (format && strncmp(format, "csv", 3) != 0)
        || report_wanted != xml_wanted) /* a report in words is not simulated */
        refuse_arguments();

    load_nvml();
    start_nvml();
    hang_or_babble();
    if (names)
        return with_fault(query(names, format, ids));
    if (report_wanted)
        return with_fault(report(ids));
    if (persistence)
        return with_fault(set_persistence(persistence, ids));
    return with_fault(list_wanted ? list(ids) : table(ids));
}

/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* The report of -q -x: the elements that somebody reads, in the real one's order, as
 * recorded/nvidia_smi_xml.yml has them for the branch of the driver and the generation of the GPU. */

#include "smi.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOT_OFFERED "N/A"

static int branch;
static unsigned depth;

/* ---- elements -------------------------------------------------------------------------------- */

static void indent(void)
{
    for (unsigned i = 0; i < depth; i++)
        putchar('\t');
}

static void begin(const char *name)
{
    indent();
    printf("<%s>\n", name);
    depth++;
}

static void end(const char *name)
{
    depth--;
    indent();
    printf("</%s>\n", name);
}

__attribute__((format(printf, 2, 3))) static void put(const char *name, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    indent();
    printf("<%s>", name);
    vprintf(format, arguments);
    printf("</%s>\n", name);
    va_end(arguments);
}

/* The words for a value that NVML does not give. */
static const char *words_of(nvmlReturn_t result)
{
    return result == NVML_ERROR_NOT_SUPPORTED ? NOT_OFFERED : nvml.nvmlErrorString(result);
}

static void put_text(const char *name, nvmlReturn_t result, const char *value)
{
    put(name, "%s", result == NVML_SUCCESS ? value : words_of(result));
}

__attribute__((format(printf, 3, 0))) static void put_number(const char *name, nvmlReturn_t result,
                                                             const char *format,
                                                             unsigned long long value)
{
    char text[CELL_SIZE];

    snprintf(text, sizeof text, format, value);
    put_text(name, result, text);
}

static void put_flag(const char *name, nvmlReturn_t result, int value)
{
    put_text(name, result, value ? "Yes" : "No");
}

static void put_mode(const char *name, nvmlReturn_t result, int is_enabled)
{
    put_text(name, result, is_enabled ? "Enabled" : "Disabled");
}

/* ---- the parts of a GPU ---------------------------------------------------------------------- */

static void put_recovery(nvmlDevice_t device)
{
    static const char *const words[] = {"None", "Reset", "Reboot", "Drain P2P", "Drain and Reset"};
    nvmlFieldValue_t field = {.fieldId = NVML_FI_DEV_GET_GPU_RECOVERY_ACTION};
    nvmlReturn_t result = nvml.nvmlDeviceGetFieldValues(device, 1, &field);
    const unsigned action = field.value.uiVal;

    if (branch < 580) { /* its elements say "deprecated" since 565 */
        const char *reset = action ? "Yes" : "No";

        begin("gpu_reset_status");
        put_text("reset_required", result,
                 branch < 565 ? reset : nvml.nvmlErrorString(NVML_ERROR_DEPRECATED));
        put("drain_and_reset_recommended", "%s",
            branch < 565 ? NOT_OFFERED : nvml.nvmlErrorString(NVML_ERROR_DEPRECATED));
        end("gpu_reset_status");
    }
    if (branch >= 565)
        put_text("gpu_recovery_action", result,
                 action < sizeof words / sizeof *words ? words[action] : "Unknown Error");
}

static void put_pci(const struct device *device)
{
    unsigned generation = 0, current = 0, lanes = 0, width = 0;
    nvmlReturn_t result = nvml.nvmlDeviceGetMaxPcieLinkGeneration(device->handle, &generation);

    nvml.nvmlDeviceGetCurrPcieLinkGeneration(device->handle, &current);
    nvml.nvmlDeviceGetMaxPcieLinkWidth(device->handle, &lanes);
    nvml.nvmlDeviceGetCurrPcieLinkWidth(device->handle, &width);
    begin("pci");
    put("pci_bus_id", "%s", device->bus_id);
    begin("pci_gpu_link_info");
    begin("pcie_gen");
    put_number("max_link_gen", result, "%llu", generation);
    put_number("current_link_gen", result, "%llu", current);
    put("max_host_link_gen", NOT_OFFERED);
    end("pcie_gen");
    begin("link_widths");
    put_number("max_link_width", result, "%llux", lanes);
    put_number("current_link_width", result, "%llux", width);
    end("link_widths");
    end("pci_gpu_link_info");
    end("pci");
}

static void put_clocks(nvmlDevice_t device)
{
    static const struct {
        const char *name;
        unsigned long long bit;
    } reasons[] = {
        {"gpu_idle", nvmlClocksEventReasonGpuIdle},
        {"applications_clocks_setting", nvmlClocksEventReasonApplicationsClocksSetting},
        {"sw_power_cap", nvmlClocksEventReasonSwPowerCap},
        {"hw_slowdown", nvmlClocksThrottleReasonHwSlowdown},
        {"hw_thermal_slowdown", nvmlClocksThrottleReasonHwThermalSlowdown},
        {"hw_power_brake_slowdown", nvmlClocksThrottleReasonHwPowerBrakeSlowdown},
        {"sync_boost", nvmlClocksEventReasonSyncBoost},
        {"sw_thermal_slowdown", nvmlClocksEventReasonSwThermalSlowdown},
        {"display_clocks_setting", nvmlClocksEventReasonDisplayClockSetting},
    };
    const char *kind = branch >= 535 ? "clocks_event_reason" : "clocks_throttle_reason";
    unsigned long long active = 0;
    nvmlReturn_t result = nvml.nvmlDeviceGetCurrentClocksEventReasons(device, &active);
    char name[CELL_SIZE];

    snprintf(name, sizeof name, "%ss", kind);
    begin(name);
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        char reason[CELL_SIZE];

        snprintf(reason, sizeof reason, "%s_%s", kind, reasons[i].name);
        put_text(reason, result, active & reasons[i].bit ? "Active" : "Not Active");
    }
    end(name);
}

static void put_ecc_period(const char *period, nvmlDevice_t device, nvmlDeviceArchitecture_t of,
                           nvmlEccCounterType_t type)
{
    unsigned long long errors = 0;
    nvmlReturn_t result = nvml.nvmlDeviceGetTotalEccErrors(
        device, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, type, &errors);

    begin(period);
    if (of < NVML_DEVICE_ARCH_TURING) {
        begin("double_bit");
        put_number("total", result, "%llu", errors);
        end("double_bit");
    } else {
        put_number("sram_correctable", result, "%llu", 0);
        if (of == NVML_DEVICE_ARCH_TURING) {
            put_number("sram_uncorrectable", result, "%llu", 0);
        } else {
            put_number("sram_uncorrectable_parity", result, "%llu", 0);
            put_number("sram_uncorrectable_secded", result, "%llu", 0);
        }
        put_number("dram_correctable", result, "%llu", 0);
        put_number("dram_uncorrectable", result, "%llu", errors);
    }
    if (type == NVML_AGGREGATE_ECC && of >= NVML_DEVICE_ARCH_AMPERE) {
        nvmlEccSramErrorStatus_t sram = {.version = nvmlEccSramErrorStatus_v1};

        result = nvml.nvmlDeviceGetSramEccErrorStatus(device, &sram);
        put_flag("sram_threshold_exceeded", result, (int)sram.bThresholdExceeded);
    }
    end(period);
}

static void put_ecc(nvmlDevice_t device, nvmlDeviceArchitecture_t of)
{
    nvmlRepairStatus_t repair = {.version = nvmlRepairStatus_v1};

    begin("ecc_errors");
    put_ecc_period("volatile", device, of, NVML_VOLATILE_ECC);
    put_ecc_period("aggregate", device, of, NVML_AGGREGATE_ECC);
    if (branch >= 580 && of >= NVML_DEVICE_ARCH_ADA) {
        nvmlReturn_t result = nvml.nvmlDeviceGetRepairStatus(device, &repair);

        put_flag("channel_repair_pending", result, (int)repair.bChannelRepairPending);
        put_flag("tpc_repair_pending", result, (int)repair.bTpcRepairPending);
    }
    if (branch >= 595 && of >= NVML_DEVICE_ARCH_ADA)
        put("unrepairable_memory", "%s", of == NVML_DEVICE_ARCH_ADA ? NOT_OFFERED : "No");
    end("ecc_errors");
}

static void put_memory_repair(nvmlDevice_t device)
{
    nvmlEnableState_t pages = NVML_FEATURE_DISABLED;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    nvmlReturn_t result = nvml.nvmlDeviceGetRetiredPagesPendingStatus(device, &pages);

    begin("retired_pages");
    put_flag("pending_blacklist", result, pages == NVML_FEATURE_ENABLED);
    put_flag("pending_retirement", result, pages == NVML_FEATURE_ENABLED);
    end("retired_pages");
    result = nvml.nvmlDeviceGetRemappedRows(device, &corrected, &uncorrected, &pending, &failed);
    if (result == NVML_ERROR_NOT_SUPPORTED) {
        put("remapped_rows", NOT_OFFERED);
        return;
    }
    begin("remapped_rows");
    put_number("remapped_row_corr", result, "%llu", corrected);
    put_number("remapped_row_unc", result, "%llu", uncorrected);
    put_flag("remapped_row_pending", result, (int)pending);
    put_flag("remapped_row_failure", result, (int)failed);
    end("remapped_rows");
}

static void put_fabric(nvmlDevice_t device)
{
    static const char *const states[] = {NOT_OFFERED, "Not Started", "In Progress", "Completed"};
    static const char *const summaries[] = {NOT_OFFERED, "Healthy", "Unhealthy",
                                            "Limited Capacity"};
    nvmlGpuFabricInfoV_t info = {.version = nvmlGpuFabricInfo_v3};
    nvmlReturn_t result = nvml.nvmlDeviceGetGpuFabricInfoV(device, &info);
    const int is_completed = info.state == NVML_GPU_FABRIC_STATE_COMPLETED;

    if (branch < 535)
        return;
    begin("fabric");
    put_text("state", result, states[info.state & 3]);
    put_text("status", result, is_completed ? "Success" : NOT_OFFERED);
    put_text("cliqueId", result, is_completed ? "0" : NOT_OFFERED);
    begin("health");
    if (branch >= 580)
        put_text("summary", result, summaries[info.healthSummary & 3]);
    put("bandwidth", NOT_OFFERED);
    if (branch >= 580)
        put("incorrect_configuration", NOT_OFFERED);
    end("health");
    end("fabric");
}

static const char *compute_mode(nvmlComputeMode_t mode)
{
    switch (mode) {
    case NVML_COMPUTEMODE_PROHIBITED:
        return "Prohibited";
    case NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
        return "Exclusive_Process";
    default:
        return "Default";
    }
}

static void put_instance(nvmlDevice_t instance, unsigned index)
{
    unsigned gpu_instance = 0, compute_instance = 0;

    nvml.nvmlDeviceGetGpuInstanceId(instance, &gpu_instance);
    nvml.nvmlDeviceGetComputeInstanceId(instance, &compute_instance);
    begin("mig_device");
    put("index", "%u", index);
    put("gpu_instance_id", "%u", gpu_instance);
    put("compute_instance_id", "%u", compute_instance);
    end("mig_device");
}

static void put_instances(nvmlDevice_t device)
{
    unsigned most = 0, found = 0;
    nvmlDevice_t instance;

    nvml.nvmlDeviceGetMaxMigDeviceCount(device, &most);
    for (unsigned i = 0; i < most; i++) {
        if (nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, i, &instance) != NVML_SUCCESS)
            continue;
        if (found++ == 0)
            begin("mig_devices");
        put_instance(instance, i);
    }
    if (found)
        end("mig_devices");
    else
        put("mig_devices", "\n%*sNone\n%*s", (int)depth, "", (int)depth, "");
}

static void put_gpu(const struct device *device)
{
    char name[CELL_SIZE], uuid[CELL_SIZE], serial[CELL_SIZE];
    nvmlEnableState_t persistence = NVML_FEATURE_DISABLED, ecc = NVML_FEATURE_DISABLED, next;
    nvmlDeviceArchitecture_t architecture = 0;
    nvmlComputeMode_t mode = NVML_COMPUTEMODE_DEFAULT;
    unsigned mig = 0, mig_pending = 0, minor = 0;
    nvmlReturn_t result;

    nvml.nvmlDeviceGetName(device->handle, name, sizeof name);
    nvml.nvmlDeviceGetUUID(device->handle, uuid, sizeof uuid);
    nvml.nvmlDeviceGetSerial(device->handle, serial, sizeof serial);
    nvml.nvmlDeviceGetMinorNumber(device->handle, &minor);
    nvml.nvmlDeviceGetArchitecture(device->handle, &architecture);

    indent();
    printf("<gpu id=\"%s\">\n", device->bus_id);
    depth++;
    put("product_name", "%s", name);
    result = nvml.nvmlDeviceGetPersistenceMode(device->handle, &persistence);
    put_mode("persistence_mode", result, persistence == NVML_FEATURE_ENABLED);
    result = nvml.nvmlDeviceGetMigMode(device->handle, &mig, &mig_pending);
    begin("mig_mode");
    put_mode("current_mig", result, (int)mig);
    put_mode("pending_mig", result, (int)mig_pending);
    end("mig_mode");
    put_instances(device->handle);
    put("serial", "%s", serial);
    put("uuid", "%s", uuid);
    put("minor_number", "%u", minor);
    put_recovery(device->handle);
    put_pci(device);
    put_clocks(device->handle);
    result = nvml.nvmlDeviceGetComputeMode(device->handle, &mode);
    put_text("compute_mode", result, compute_mode(mode));
    result = nvml.nvmlDeviceGetEccMode(device->handle, &ecc, &next);
    begin("ecc_mode");
    put_mode("current_ecc", result, ecc == NVML_FEATURE_ENABLED);
    end("ecc_mode");
    put_ecc(device->handle, architecture);
    put_memory_repair(device->handle);
    put_fabric(device->handle);
    put("processes", "\n");
    end("gpu");
}

void print_report(void)
{
    char now_text[64];
    int version = 0;
    time_t now = time(NULL);

    branch = atoi(DRIVER_VERSION);
    while (misbehaves("xml=stall"))
        pause();
    if (misbehaves("xml=noise")) {
        printf("<?xml version=\"1.0\" ?>\n<nvidia_smi_log>\n<gpu id=\"\xff\">\x1b[2J<uuid>\n");
        return;
    }
    nvml.nvmlSystemGetCudaDriverVersion_v2(&version);
    strftime(now_text, sizeof now_text, "%a %b %e %H:%M:%S %Y", localtime(&now));
    printf("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v%d.dtd\">\n",
           branch >= 580 ? 13 : 12);
    begin("nvidia_smi_log");
    put("timestamp", "%s", now_text);
    put("driver_version", "%s", DRIVER_VERSION);
    put("cuda_version", "%d.%d", version / 1000, version % 1000 / 10);
    put("attached_gpus", "%u", device_count);
    for (unsigned d = 0; d < device_count; d++) {
        put_gpu(&devices[d]);
        if (misbehaves("xml=cut")) /* after the first GPU */
            return;
    }
    end("nvidia_smi_log");
}

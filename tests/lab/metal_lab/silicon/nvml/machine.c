/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

#define _GNU_SOURCE /* dladdr */
#include "machine.h"

#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

static const char MARKER[] = "metal-lab-machine 1\n";
static const char END[] = "\nend\n";

const char *machine_path(void)
{
    static char path[PATH_MAX + 64];
    char library[PATH_MAX];
    Dl_info info;

    if (path[0] == '\0') {
        if (!dladdr((void *)machine_path, &info) || !realpath(info.dli_fname, library))
            return NULL;
        snprintf(path, sizeof path, "%s/libnvidia-sandboxutils.so.%s", dirname(library),
                 DRIVER_VERSION);
    }
    return path;
}

/* Not libc's parser: newer compilers give it new symbol versions, and this library has to load in
 * the oldest image of the laboratory. */
static unsigned number(const char *text, unsigned base)
{
    unsigned value = 0;

    for (; isxdigit((unsigned char)*text); text++) {
        unsigned digit = isdigit((unsigned char)*text) ? (unsigned)(*text - '0')
                                                       : (unsigned)(tolower(*text) - 'a' + 10);
        if (digit >= base)
            break;
        value = value * base + digit;
    }
    return value;
}

/* Copies the value of " key=value" or ' key="two words"' from a line. Returns its position. */
static const char *value_of(const char *line, const char *key, char *value, size_t size)
{
    const char *end_of_line = line + strcspn(line, "\n");
    const char *at;
    char token[32];
    size_t length;

    snprintf(token, sizeof token, " %s=", key);
    value[0] = '\0';
    at = strstr(line, token);
    if (!at || at > end_of_line)
        return NULL;
    at += strlen(token);
    if (*at == '"') {
        at++;
        length = strcspn(at, "\"\n");
    } else {
        length = strcspn(at, " \n");
    }
    if (length >= size)
        length = size - 1;
    memcpy(value, at, length);
    value[length] = '\0';
    return at;
}

static unsigned number_of(const char *line, const char *key, unsigned base)
{
    char value[32];

    value_of(line, key, value, sizeof value);
    return number(value, base);
}

static struct gpu *slot_of(struct machine *machine, const char *uuid)
{
    for (int i = 0; i < machine->gpu_count; i++)
        if (strcmp(machine->gpus[i].uuid, uuid) == 0)
            return &machine->gpus[i];
    return machine->gpu_count < MAX_GPUS ? &machine->gpus[machine->gpu_count++] : NULL;
}

/* Containers do not have the file of the version. */
static bool may_create_files(void)
{
    return geteuid() == 0 && access(ROOT "/proc/driver/nvidia/version", F_OK) == 0;
}

bool machine_device_file(unsigned minor)
{
    char name[32], path[PATH_MAX];

    if (minor == CONTROL_MINOR)
        snprintf(name, sizeof name, "nvidiactl");
    else
        snprintf(name, sizeof name, "nvidia%u", minor);
    snprintf(path, sizeof path, ROOT "/run/metal-lab/kept-away/%s", name);
    bool is_kept_away = access(path, F_OK) == 0;
    snprintf(path, sizeof path, ROOT "/dev/%s", name);
    if (access(path, F_OK) != 0 && may_create_files() && !is_kept_away
        && mknod(path, S_IFCHR | 0666, makedev(NVIDIA_MAJOR, minor)) == 0)
        chmod(path, 0666); /* mknod obeys the umask */
    return access(path, F_OK) == 0;
}

bool machine_uvm_file(const struct machine *machine)
{
    struct stat status;

    return machine->uvm_major >= 0 && stat(ROOT "/dev/nvidia-uvm", &status) == 0
           && (long)major(status.st_rdev) == machine->uvm_major;
}

/* ---- MIG ------------------------------------------------------------------------------------- */

static void instance_path(unsigned minor, char *path, size_t size)
{
    snprintf(path, size, ROOT "/dev/nvidia-caps/nvidia-cap%u", minor);
}

/* Programs in containers see the instances whose files they have. */
static bool has_instance_files(const struct instance *instance)
{
    char path[PATH_MAX];

    if (access(ROOT "/proc/driver/nvidia/version", F_OK) == 0)
        return true;
    instance_path(instance->gi_minor, path, sizeof path);
    if (access(path, F_OK) != 0)
        return false;
    instance_path(instance->ci_minor, path, sizeof path);
    return access(path, F_OK) == 0;
}

static void create_instance_file(const struct machine *machine, unsigned minor)
{
    char path[PATH_MAX];

    instance_path(minor, path, sizeof path);
    if (mkdir(ROOT "/dev/nvidia-caps", 0755) == 0)
        chmod(ROOT "/dev/nvidia-caps", 0755);
    if (access(path, F_OK) != 0
        && mknod(path, S_IFCHR | 0444, makedev((unsigned)machine->caps_major, minor)) == 0)
        chmod(path, 0444);
}

void machine_instance_files(const struct machine *machine)
{
    if (machine->caps_major < 0 || !may_create_files())
        return;
    for (int i = 0; i < machine->gpu_count; i++)
        for (int j = 0; machine->gpus[i].present && j < MAX_INSTANCES; j++)
            if (machine->gpus[i].instances[j].present) {
                create_instance_file(machine, machine->gpus[i].instances[j].gi_minor);
                create_instance_file(machine, machine->gpus[i].instances[j].ci_minor);
            }
}

static struct gpu *gpu_of(struct machine *machine, const char *line)
{
    char uuid[sizeof machine->gpus->uuid];

    value_of(line, "gpu", uuid, sizeof uuid);
    for (int i = 0; i < machine->gpu_count; i++)
        if (strcmp(machine->gpus[i].uuid, uuid) == 0)
            return &machine->gpus[i];
    return NULL;
}

static void parse_profile(struct machine *machine, const char *line)
{
    struct gpu *gpu = gpu_of(machine, line);
    struct profile *profile;

    if (!gpu || gpu->profile_count == MAX_PROFILES)
        return;
    profile = &gpu->profiles[gpu->profile_count++];
    value_of(line, "name", profile->name, sizeof profile->name);
    profile->slices = number_of(line, "slices", 10);
    profile->number = number_of(line, "number", 10);
    profile->most = number_of(line, "most", 10);
    profile->multiprocessors = number_of(line, "multiprocessors", 10);
    profile->memory_mib = number_of(line, "memory_mib", 10);
}

static void parse_instance(struct machine *machine, const char *line)
{
    struct gpu *gpu = gpu_of(machine, line);
    const unsigned index = number_of(line, "index", 10), profile = number_of(line, "number", 10);
    struct instance *instance;

    if (!gpu || index >= MAX_INSTANCES)
        return;
    instance = &gpu->instances[index];
    instance->index = index;
    instance->gi = number_of(line, "gi", 10);
    instance->ci = number_of(line, "ci", 10);
    instance->gi_minor = number_of(line, "gi_minor", 10);
    instance->ci_minor = number_of(line, "ci_minor", 10);
    value_of(line, "uuid", instance->uuid, sizeof instance->uuid);
    for (int i = 0; i < gpu->profile_count; i++)
        if (gpu->profiles[i].number == profile)
            instance->profile = gpu->profiles[i];
    instance->present = has_instance_files(instance);
}

/* ---- the description ------------------------------------------------------------------------- */

unsigned long long machine_place(const struct gpu *gpu)
{
    return (unsigned long long)gpu->domain << 16 | gpu->bus << 8 | gpu->device;
}

/* The meaning of each state of a GPU. A program that held the handle of a lost GPU still gets the
 * values that the driver remembers. A later program gets no handle. The numbers are from nvml.h. */
static void parse_state(struct gpu *gpu, const char *word)
{
    static const struct {
        const char *word;
        unsigned xid, refused, unreachable;
    } states[] = {
        {"lost", 79, 15, 15},
        {"lost-in-use", 79, 0, 15},
        {"unknown-error", 79, 999, 999},
        {"needs-reset", 95, 16, 16},
        {"hidden", 0, 6, 0},
    };

    gpu->fault = strncmp(word, "xid", 3) == 0 ? number(word + 3, 10) : 0;
    gpu->refused = gpu->unreachable = 0;
    gpu->inforom_corrupted = strcmp(word, "inforom") == 0;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        if (strcmp(states[i].word, word) == 0) {
            gpu->fault = states[i].xid;
            gpu->refused = states[i].refused;
            gpu->unreachable = states[i].unreachable;
        }
    }
}

static void parse_health(struct health *health, const char *line)
{
    health->ecc = number_of(line, "ecc", 10);
    health->sram_threshold = number_of(line, "sram_threshold", 10);
    health->remap = number_of(line, "remap", 10);
    health->pages = number_of(line, "pages", 10);
    health->recovery = number_of(line, "recovery", 10);
    health->clocks = number_of(line, "clocks", 10);
    health->width = number_of(line, "width", 10);
    health->generation = number_of(line, "generation", 10);
    health->compute = number_of(line, "compute", 10);
    health->mig_pending = number_of(line, "mig_pending", 10);
}

static void parse_gpu(struct machine *machine, const char *line, const char *file)
{
    char uuid[sizeof machine->gpus->uuid], value[96];
    struct gpu *gpu;

    value_of(line, "uuid", uuid, sizeof uuid);
    gpu = slot_of(machine, uuid);
    if (!gpu)
        return;
    memcpy(gpu->uuid, uuid, sizeof uuid);
    value_of(line, "serial", gpu->serial, sizeof gpu->serial);
    value_of(line, "name", gpu->name, sizeof gpu->name);
    gpu->minor = number_of(line, "minor", 10);
    gpu->memory_mib = number_of(line, "memory_mib", 10);
    gpu->architecture = number_of(line, "arch", 10);
    gpu->brand = number_of(line, "brand", 10);
    gpu->power_w = number_of(line, "power_w", 10);
    gpu->mig_capable = number_of(line, "mig", 10);
    gpu->mig = number_of(line, "mig_mode", 10);
    gpu->fabric = number_of(line, "fabric", 10);
    gpu->class_ = number_of(line, "class", 16);
    gpu->pci_id = number_of(line, "device", 16) << 16 | 0x10de;

    value_of(line, "address", value, sizeof value); /* 0000:03:00.0 */
    gpu->domain = number(value, 16);
    gpu->bus = number(strchr(value, ':') ? strchr(value, ':') + 1 : "", 16);
    gpu->device = number(strrchr(value, ':') ? strrchr(value, ':') + 1 : "", 16);

    value_of(line, "subsystem", value, sizeof value); /* 10de:118f */
    gpu->subsystem_id = number(strchr(value, ':') ? strchr(value, ':') + 1 : "", 16) << 16
                        | number(value, 16);

    value_of(line, "cc", value, sizeof value); /* 6.0 */
    gpu->cc_major = number(value, 10);
    gpu->cc_minor = number(strchr(value, '.') ? strchr(value, '.') + 1 : "", 10);

    value_of(line, "numa", value, sizeof value);
    gpu->numa_node = value[0] == '-' ? -1 : (int)number(value, 10);

    const char *digit = value_of(line, "persistence", value, sizeof value);
    gpu->persistence = value[0] == '1';
    gpu->persistence_offset = digit ? digit - file : -1;

    gpu->nvswitch = value_of(line, "trained", value, sizeof value)
                        ? (value[0] == '1' ? TRAINED : UNTRAINED)
                        : NO_NVSWITCH;
    gpu->cuda = number_of(line, "cuda", 10);
    gpu->wrong = number_of(line, "wrong", 10);
    gpu->hang = number_of(line, "hang", 10);
    value_of(line, "peer", value, sizeof value);
    gpu->peer = strcmp(value, "none") == 0     ? PEER_NONE
                : strcmp(value, "broken") == 0 ? PEER_BROKEN
                                               : PEER_WORKS;

    value_of(line, "state", value, sizeof value);
    parse_state(gpu, value);
    parse_health(&gpu->health, line);
    gpu->present = machine_device_file(gpu->minor);
}

/* Copies the rest of a line that starts with `key`. */
static bool rest_of_line(const char *line, const char *key, char *value, size_t size)
{
    const size_t length = strlen(key);

    if (strncmp(line, key, length) != 0)
        return false;
    snprintf(value, size, "%.*s", (int)strcspn(line + length, "\n"), line + length);
    return true;
}

static void parse(struct machine *machine, const char *file, const char *text)
{
    char major[16];

    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (strncmp(line, "end\n", 4) == 0) /* the rest belongs to an older, longer text */
            break;
        if (strncmp(line, "gpu ", 4) == 0)
            parse_gpu(machine, line, file);
        else if (strncmp(line, "profile ", 8) == 0)
            parse_profile(machine, line);
        else if (strncmp(line, "instance ", 9) == 0)
            parse_instance(machine, line);
        else if (rest_of_line(line, "uvm ", major, sizeof major))
            machine->uvm_major = (long)number(major, 10);
        else if (rest_of_line(line, "caps ", major, sizeof major))
            machine->caps_major = (long)number(major, 10);
        else if (!rest_of_line(line, "driver_version ", machine->driver_version,
                               sizeof machine->driver_version))
            rest_of_line(line, "nvidia_smi ", machine->smi, sizeof machine->smi);
    }
}

/* The description follows a binary header, which can contain zero bytes. */
static const char *find_marker(const char *file, size_t size)
{
    const size_t length = sizeof MARKER - 1;

    for (size_t at = 0; at + length <= size; at++)
        if (memcmp(file + at, MARKER, length) == 0)
            return file + at;
    return NULL;
}

void machine_refresh(struct machine *machine)
{
    static struct timespec read_at;
    static off_t read_size = -1;
    static char file[1 << 17];
    const char *text = NULL;
    struct stat status = {0};
    ssize_t size = 0;
    int fd = machine_path() ? open(machine_path(), O_RDONLY | O_CLOEXEC) : -1;

    if (fd >= 0 && fstat(fd, &status) == 0 && status.st_size == read_size
        && status.st_mtim.tv_sec == read_at.tv_sec && status.st_mtim.tv_nsec == read_at.tv_nsec) {
        close(fd);
        return;
    }
    /* A text without its end is read again, because a writer can be active. */
    for (int attempt = 0; fd >= 0 && attempt < 50; attempt++) {
        size = pread(fd, file, sizeof file - 1, 0);
        file[size > 0 ? size : 0] = '\0';
        text = find_marker(file, size > 0 ? (size_t)size : 0);
        if (!text || strstr(text, END))
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (fd >= 0)
        close(fd);
    read_at = status.st_mtim;
    read_size = status.st_size;

    machine->driver_version[0] = machine->smi[0] = '\0';
    machine->uvm_major = machine->caps_major = -1;
    for (int i = 0; i < machine->gpu_count; i++) {
        machine->gpus[i].present = false;
        machine->gpus[i].fault = 79;
        machine->gpus[i].profile_count = 0;
        for (int j = 0; j < MAX_INSTANCES; j++)
            machine->gpus[i].instances[j].present = false;
    }
    if (text)
        parse(machine, file, text);
}

/* The loaded module's version from /proc on the node itself. Containers do not have this file. */
static bool proc_version(char *version, unsigned size)
{
    char line[256];
    FILE *proc = fopen(ROOT "/proc/driver/nvidia/version", "re");
    bool found = false;

    if (!proc)
        return false;
    /* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.178.04  Release Build ..." */
    if (fgets(line, sizeof line, proc)) {
        char *rest = NULL;
        for (char *word = strtok_r(line, " \n", &rest); word && !found;
             word = strtok_r(NULL, " \n", &rest)) {
            found = isdigit((unsigned char)word[0]) && strchr(word, '.');
            if (found)
                snprintf(version, size, "%s", word);
        }
    }
    fclose(proc);
    return found;
}

enum machine_driver machine_open(struct machine *machine)
{
    char loaded[64];
    bool on_node = proc_version(loaded, sizeof loaded);

    if (on_node && strcmp(loaded, DRIVER_VERSION) != 0)
        return DRIVER_OF_OTHER_VERSION;
    if (!machine_device_file(CONTROL_MINOR))
        return DRIVER_MISSING;
    machine_refresh(machine);
    if (machine->driver_version[0] == '\0')
        return DRIVER_MISSING;
    return strcmp(machine->driver_version, DRIVER_VERSION) == 0 ? DRIVER_READY
                                                                : DRIVER_OF_OTHER_VERSION;
}

/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* How the files of NVML get at a GPU. */
#ifndef METAL_LAB_REACH_H
#define METAL_LAB_REACH_H

#include "nvml.h"

#include "machine.h"

/* Copies the current data of a GPU that answers. Otherwise the result is NVML's code. */
nvmlReturn_t metal_lab_reach(nvmlDevice_t device, struct gpu *gpu);

/* The same for what the driver remembers of a GPU, also of one that does not answer. */
nvmlReturn_t metal_lab_look(nvmlDevice_t device, struct gpu *gpu);

/* Copies the current data of a MIG instance, given a handle of it, with the handle of its GPU. The
 * result is NVML_ERROR_INVALID_ARGUMENT if the handle is that of a GPU. */
nvmlReturn_t metal_lab_instance(const void *handle, struct instance *instance, nvmlDevice_t *gpu);

/* The handle of an instance of a GPU, by its index. */
nvmlReturn_t metal_lab_instance_handle(nvmlDevice_t device, unsigned index, void **handle);

#endif

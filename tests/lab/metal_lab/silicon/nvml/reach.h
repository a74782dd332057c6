/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* How the files of NVML get at a GPU. */
#ifndef METAL_LAB_REACH_H
#define METAL_LAB_REACH_H

#include "nvml.h"

#include "machine.h"

/* Copies the current data of a GPU that answers. Otherwise the result is NVML's code. */
nvmlReturn_t metal_lab_reach(nvmlDevice_t device, struct gpu *gpu);

#endif

/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* A library without functions. The machine description (see machine.h) is appended to it, so that
 * containers get it. It is a real shared library, because ldconfig and the NVIDIA toolkit check. */

const char metal_lab_silicon = 1;

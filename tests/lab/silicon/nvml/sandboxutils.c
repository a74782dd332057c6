/* SPDX-FileCopyrightText: metal.gpu contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */

/* A library without functions: it carries the machine description (see machine.h), which is
 * appended to it, into containers. It is a real shared library so that ldconfig and the NVIDIA
 * toolkit take it for one. */

const char metal_lab_silicon = 1;

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU hardware of a laboratory node, and the part of a kernel that drives it.

state.py    the machine, and what its kernel did since boot
kmod.py     modprobe, modinfo, lsmod and rmmod for the modules of GPUs
trees.py    /sys, /proc, /dev and the driver's view, written from the state
boot.py     the boot: mounts, coldplug
faults.py   the faults
"""

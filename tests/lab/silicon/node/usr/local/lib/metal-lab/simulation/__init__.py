# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU hardware of a laboratory node, and the part of a kernel that deals with it.

state.py    what the machine is, and what its kernel has done to it since boot
kmod.py     modprobe, modinfo, lsmod, rmmod for the GPU's modules
trees.py    /sys, /proc, /dev and the driver's view, written from the state
boot.py     what a boot does: mounts, coldplug
faults.py   what can break
"""

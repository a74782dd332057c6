# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure the cost of the collection in operations, seconds and memory, next to alternatives."""

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure what the collection costs: operations, seconds and memory, beside what else there is."""

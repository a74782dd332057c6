# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The exit codes of `metal-gpu`. The commands that run a playbook end with the playbook's."""

OK = 0
FOUND = 1  # a node has a finding that needs somebody
USAGE = 2  # an argument, an inventory or a file cannot be used; nothing was asked
NOT_ASKED = 3  # a host gave no answer; takes precedence over FOUND
UNWRITTEN = 74  # the output cannot be written, as on a full disk; EX_IOERR of sysexits.h
INTERRUPTED = 130  # Ctrl-C
UNREAD = 141  # the reader of the output ended first; a shell shows 128 + SIGPIPE

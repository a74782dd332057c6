# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from metal_lab import needs

TEXT = """\
# a comment

sh dash
no-such-program some-package
/etc/passwd base-passwd
/no/such/file other-package
"""


def test_missing_programs_and_files_are_named_with_their_packages():
    assert needs.missing(TEXT) == {
        "no-such-program": "some-package",
        "/no/such/file": "other-package",
    }


def test_own_list_can_be_read():
    packages = [package for _thing, package in needs.read(needs.LIST.read_text())]
    assert {"debootstrap", "etcd-server"} <= set(packages)

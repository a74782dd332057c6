# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A registry that changes after the role asked it, when a pod pulls.

The name of this file makes pytest run it before test_pulls.py, which pulls the image.
"""

from __future__ import annotations

import pytest
from pulls import fails


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("unknown-authority", "REGISTRY_UNTRUSTED"),
        ("expired-certificate", "REGISTRY_CERTIFICATE_EXPIRED"),
        # Of a wrong login, both engines say the same as of none.
        ("wrong-password", "REGISTRY_LOGIN_MISSING"),
    ],
)
def test_pod_that_pulls(laboratory, fault, code):
    laboratory.lab("fault", "registry", fault)
    try:
        fails(laboratory, code)
    finally:
        laboratory.lab("fault", "registry", "restore")

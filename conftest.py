# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes `ansible_collections.metal.gpu` importable from the checkout.

pytest-ansible would do it too, but cannot be loaded together with pytest-testinfra.
The same tree serves ansible-doc, ansible-lint and mypy.
"""

import sys
from pathlib import Path

import pytest
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder

ROOT = Path(__file__).parent
TREE = ROOT / ".ansible" / "collections"


def pytest_configure(config: pytest.Config) -> None:
    link = TREE / "ansible_collections" / "metal" / "gpu"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to("../../../..")  # relative: the checkout may be moved
    _AnsibleCollectionFinder(paths=[str(TREE)])._install()
    sys.path.insert(0, str(TREE))

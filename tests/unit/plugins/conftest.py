# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os

import pytest


@pytest.fixture
def own_settings(monkeypatch, tmp_path):
    """Hide whatever this machine has to reach a cluster with."""
    for name in os.environ:
        if name.upper().endswith("_PROXY") or name.startswith(("K8S_AUTH_", "KUBERNETES_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr("kubernetes.config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))


@pytest.fixture
def api(own_settings):
    """An empty cluster on the loopback."""
    # Not above: pytest may read this file before the collection can be imported.
    from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer

    with ApiServer() as server:
        yield server


@pytest.fixture
def call(api, capsys):
    """Run a whole module against the cluster, and return the result it prints."""
    from ansible_collections.metal.gpu.tests.unit.support.module_args import patch_module_args

    def run(module, *, check=False, **options):
        args = {"host": api.url, "api_key": api.token, "_ansible_check_mode": check, **options}
        args = {name: value for name, value in args.items() if value is not None}
        with patch_module_args(args), pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)

    return run

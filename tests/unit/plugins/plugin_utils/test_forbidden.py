# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.forbidden import explain_error

# As kubernetes.core 6.6.0 passed it on, of kube-apiserver 1.37.1, shortened.
PATCH = (
    'Failed to patch object: {"kind":"Status","message":"nodes \\"gpu-2\\" is forbidden: User '
    '\\"system:serviceaccount:default:poor\\" cannot patch resource \\"nodes\\" in API group '
    '\\"\\" at the cluster scope","reason":"Forbidden","code":403}'
)
CREATE = (
    'The API server https://x:6443 forbids to create pods (403): pods is forbidden: User "bob" '
    'cannot create resource "pods" in API group "" in the namespace "default". Grant the verb'
)
INFO = (
    "Exception '403\\nReason: Forbidden\\nHTTP response body: b\\'{"
    '"message":"daemonsets.apps is forbidden: User \\\\"bob\\\\" cannot list resource '
    '\\\\"daemonsets\\\\" in API group \\\\"apps\\\\" at the cluster scope","code":403}'
    "' raised while trying to get resource using (name=None)"
)
LIST = 'User "bob" cannot list resource "daemonsets" in API group "apps" at the cluster scope'


@pytest.mark.parametrize(
    ("error", "message"),
    [
        pytest.param(
            PATCH, "system:serviceaccount:default:poor patch nodes in the whole cluster", id="JSON"
        ),
        pytest.param(CREATE, "bob create pods in the namespace default", id="namespace"),
        pytest.param(INFO, "bob list daemonsets.apps in the whole cluster", id="Python"),
        pytest.param(LIST, "bob list daemonsets.apps in the whole cluster", id="group"),
    ],
)
def test_permission_is_named(error: str, message: str) -> None:
    found = explain_error(error, "cluster", "CLUSTER_UNUSABLE")
    assert found["message"] == f"cluster: the API server does not let {message}"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param("connection refused", id="no answer"),
        pytest.param('pods "x" is forbidden: violates PodSecurity "restricted"', id="admission"),
    ],
)
def test_other_errors_keep_their_code(error: str) -> None:
    found = explain_error(error, "gpu-1", "RUN_STOPPED", task="x")
    assert found["code"] == "RUN_STOPPED"
    assert error in found["message"]

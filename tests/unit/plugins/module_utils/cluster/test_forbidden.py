# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import explain_error

# As kubernetes.core 6.6.0 passed it on, of kube-apiserver 1.37.1, shortened.
PATCH = (
    'Failed to patch object: {"kind":"Status","message":"nodes \\"gpu-2\\" is forbidden: User '
    '\\"system:serviceaccount:default:poor\\" cannot patch resource \\"nodes\\" in API group '
    '\\"\\" at the cluster scope","reason":"Forbidden","code":403}'
)
CREATE = (
    "The API server https://x:6443 denied the request to create pods (403): pods is forbidden: "
    'User "bob" cannot create resource "pods" in API group "" in the namespace "default". Grant'
    " the verb"
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


# As kubernetes.core 6.6.0 passed it on, of kube-apiserver 1.37.1, shortened.
UNAUTHORIZED = (
    'Exception \'401\\nReason: Unauthorized\\nHTTP response body: {\\"kind\\":\\"Status\\",'
    '\\"message\\":\\"Unauthorized\\",\\"reason\\":\\"Unauthorized\\",\\"code\\":401}'
)
OURS = (
    "The API server https://x:6443 does not accept these credentials (401 Unauthorized). Check "
    "that the token or client certificate is correct and has not expired (from the kubeconfig "
    "~/.kube/config)."
)
ANONYMOUS = LIST.replace("bob", "system:anonymous")
CONFLICT = (
    'Failed to apply object: {"kind":"Status","message":"Apply failed with 2 conflicts: conflicts '
    'with \\"kubectl-edit\\" using apps/v1:\\n- .spec.template.spec.nodeSelector\\n- '
    '.spec.template.spec.tolerations","reason":"Conflict","details":{"causes":[{"reason":'
    '"FieldManagerConflict","message":"conflict with \\"kubectl-edit\\" using apps/v1","field":'
    '".spec.template.spec.nodeSelector"},{"reason":"FieldManagerConflict","message":"conflict with '
    '\\"kubectl-edit\\" using apps/v1","field":".spec.template.spec.tolerations"}]},"code":409}'
)
IMMUTABLE = (
    'Failed to apply object: {"kind":"Status","message":"RuntimeClass.node.k8s.io \\"nvidia\\" is '
    'invalid: handler: Invalid value: null: field is immutable","reason":"Invalid","details":'
    '{"name":"nvidia","causes":[{"message":"Invalid value: null: field is immutable"}]},"code":422}'
)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        pytest.param(OURS, "CLUSTER_UNAUTHENTICATED", "(401 Unauthorized)", id="401"),
        pytest.param(UNAUTHORIZED, "CLUSTER_UNAUTHENTICATED", "401 Unauthorized", id="401, Python"),
        pytest.param(ANONYMOUS, "CLUSTER_UNAUTHENTICATED", "user as system:anonymous", id="nobody"),
        pytest.param(
            CONFLICT, "CLUSTER_CONFLICT",
            "kubectl-edit changed fields that this collection sets: "
            ".spec.template.spec.nodeSelector, .spec.template.spec.tolerations", id="conflict",
        ),
        pytest.param(
            "The API server https://x:6443 rejected the request to list nodes (429): Too many "
            "requests, please try again later. (tried 19 times in 120 s)",
            "CLUSTER_BUSY", "(tried 19 times in 120 s)", id="busy",
        ),
        pytest.param(
            'Failed to patch object: {"kind":"Status","message":"nodes \\"gpu-1\\" is forbidden: '
            "ValidatingAdmissionPolicy 'labels' with binding 'b' denied request: no labels\","
            '"reason":"Invalid","code":422}',
            "CLUSTER_REJECTED",
            "labels rejects what this run changes in the cluster: ValidatingAdmissionPolicy "
            "'labels' with binding 'b' denied request: no labels", id="policy",
        ),
        pytest.param(
            IMMUTABLE, "CLUSTER_IMMUTABLE",
            'created: RuntimeClass.node.k8s.io "nvidia" is invalid: handler: Invalid value: null: '
            "field is immutable", id="immutable",
        ),
    ],
)  # fmt: skip
def test_what_the_server_means_is_named(error: str, code: str, words: str) -> None:
    found = explain_error(error, "cluster", "CLUSTER_UNUSABLE")
    assert found["code"] == code
    assert found["message"].endswith(words) or code == "CLUSTER_UNAUTHENTICATED"
    assert words in found["message"]
    assert "Grant the verb" not in found["message"]


def test_a_401_of_somebody_else_is_not_the_servers() -> None:
    error = "E: Failed to fetch https://mirror.example/InRelease  401  Unauthorized"
    assert explain_error(error, "gpu-1", "RUN_STOPPED", task="x")["code"] == "RUN_STOPPED"

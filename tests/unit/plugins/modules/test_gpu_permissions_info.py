# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.modules import gpu_permissions_info
from ansible_collections.metal.gpu.tests.unit.support.api_server import Refusal

PODS = {"resource": "pods", "verbs": ["create", "list"], "namespace": "tests"}
DELETE = {"resource": "pods", "verbs": ["deletecollection", "delete"], "any": True}
LOGS = {"resource": "pods/log", "verbs": ["get"]}
CLASSES = {"group": "node.k8s.io", "resource": "runtimeclasses", "verbs": ["get"]}
REVIEW = ("create", "selfsubjectaccessreviews")


@pytest.mark.parametrize(
    ("denied", "missing"),
    [
        pytest.param(set(), [], id="nothing"),
        pytest.param({("create", "pods")}, [("pods", ["create"])], id="a verb"),
        pytest.param({("delete", "pods")}, [], id="one of two is enough"),
        pytest.param(
            {("delete", "pods"), ("deletecollection", "pods")},
            [("pods", ["deletecollection", "delete"])],
            id="neither",
        ),
        pytest.param({("get", "pods/log")}, [("pods/log", ["get"])], id="subresource"),
        pytest.param(
            {("get", "runtimeclasses"), ("list", "pods")},
            [("pods", ["list"]), ("runtimeclasses", ["get"])],
            id="all at once",
        ),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_what_is_missing(api, call, denied, missing, check):
    api.denied = denied
    result = call(gpu_permissions_info, permissions=[PODS, DELETE, LOGS, CLASSES], check=check)
    assert result["changed"] is False
    assert [(one["resource"], one["verbs"]) for one in result["missing"]] == missing
    assert result["user"] == ("jane" if missing else "")


def test_each_question_is_asked_once_and_for_the_right_thing(api, call):
    named = {**CLASSES, "name": "nvidia"}
    call(gpu_permissions_info, permissions=[PODS, PODS, LOGS, CLASSES, named, named])
    asked = [made.body["spec"]["resourceAttributes"] for made in api.made(*REVIEW)]
    assert len(asked) == 5
    one = {"group": "node.k8s.io", "resource": "runtimeclasses", "verb": "get", "name": "nvidia"}
    assert one in asked
    assert {"group": "", "resource": "pods", "verb": "get", "subresource": "log"} in asked
    assert {"group": "", "resource": "pods", "verb": "list", "namespace": "tests"} in asked
    assert {"group": "node.k8s.io", "resource": "runtimeclasses", "verb": "get"} in asked


def test_forbidden_access_reviews_report_nothing_missing(api, call):
    text = 'selfsubjectaccessreviews.authorization.k8s.io is forbidden: User "bob" cannot create'
    api.refusals[REVIEW] = Refusal(403, text)
    result = call(gpu_permissions_info, permissions=[PODS], report_only=True)
    assert (result["missing"], result["error"]) == ([], "")


@pytest.mark.parametrize(
    ("code", "text", "told"),
    [
        (403, 'User "system:anonymous" cannot create resource', "system:anonymous"),
        (401, "Unauthorized", "does not accept these credentials"),
    ],
)
def test_unknown_credentials_are_an_error(api, call, code, text, told):
    api.refusals[REVIEW] = Refusal(code, text)
    assert told in call(gpu_permissions_info, permissions=[PODS], report_only=True)["error"]
    assert told in call(gpu_permissions_info, permissions=[PODS])["msg"]


def test_a_server_without_self_subject_reviews(api, call):
    """Before 1.28."""
    api.denied = {("create", "pods")}
    api.refusals["create", "selfsubjectreviews"] = Refusal(404, "not found")
    result = call(gpu_permissions_info, permissions=[PODS])
    assert (len(result["missing"]), result["user"]) == (1, "")

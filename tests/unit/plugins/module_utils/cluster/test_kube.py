# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import socket
import threading
import time
from email.utils import formatdate

import kubernetes.client
import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    kube_collections,
    kube_transport,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_collections import only
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import (
    ApiBudget,
    ApiBusy,
    ApiConflict,
    ApiExists,
    ApiExpired,
    ApiForbidden,
    ApiMissing,
    ApiRefused,
    ApiStalled,
    ApiUnauthorised,
    ApiUnreachable,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import (
    Settings,
    Timer,
)
from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer, Refusal


class Connection(Client):
    """A client that notes its pauses instead of making them: its clock jumps over them."""

    def __init__(self, url, token=ApiServer.token):
        configuration = kubernetes.client.Configuration(
            host=url, api_key={"authorization": f"Bearer {token}"}
        )
        self.pauses = []
        settings = Settings(configuration, "from the test")
        super().__init__(settings, sleep=self.pauses.append, clock=self.clock)

    def clock(self):
        return time.monotonic() + sum(self.pauses)

    def timer(self, limit_s):
        return Timer(limit_s, self.clock)


@pytest.fixture
def client(api):
    return Connection(api.url)


def pod(name):
    return {"metadata": {"name": name, "namespace": "default", "labels": {"a": "b"}}}


def node(name, **labels):
    return {"metadata": {"name": name, "labels": labels}}


def labels(item):
    return dict(item["metadata"]["labels"])


def follow(client, store, limit_s=5.0, **options):
    return client.follow("nodes", store, labels, client.timer(limit_s), **options)


def test_snapshot_reads_page_after_page(api, client):
    names = [f"gpu-{number:04}" for number in range(1201)]
    for name in names:
        api.put("nodes", node(name))
    assert list(client.snapshot("nodes", labels)) == names
    assert [made.query["limit"] for made in api.made("list", "nodes")] == ["500"] * 3


def test_snapshot_leaves_out_what_is_not_kept(api, client):
    api.put("nodes", node("cpu-1"))
    api.put("nodes", node("gpu-1"))
    kept = client.snapshot("nodes", lambda item: item["metadata"]["name"].startswith("g") or None)
    assert kept == {"gpu-1": True}


@pytest.mark.parametrize(("namespace", "keys"), [(None, ["a/one", "b/one"]), ("a", ["one"])])
def test_snapshot_names_the_namespace_where_it_must(api, client, namespace, keys):
    for scope in ("a", "b"):
        api.put("pods", {"metadata": {"name": "one", "namespace": scope}})
    assert list(client.snapshot("pods", lambda pod: True, namespace=namespace)) == keys


def test_follow_lists_once_then_watches(api, client):
    api.put("nodes", node("gpu-1"))
    store = {}
    seen = follow(client, store)
    assert next(seen) == {"gpu-1"}

    def change():
        api.bookmark("nodes")
        api.put("nodes", node("gpu-1"))  # a heartbeat changes nothing that is kept
        api.put("pods", {"metadata": {"name": "gpu-9"}})
        api.put("nodes", node("gpu-2", zone="a"))
        api.put("nodes", node("gpu-2", zone="b"))
        api.take("nodes", "gpu-1")

    api.when_watched["nodes"] = change
    assert [(set(next(seen)), dict(store)) for _round in range(3)] == [
        ({"gpu-2"}, {"gpu-1": {}, "gpu-2": {"zone": "a"}}),
        ({"gpu-2"}, {"gpu-1": {}, "gpu-2": {"zone": "b"}}),
        ({"gpu-1"}, {"gpu-2": {"zone": "b"}}),
    ]
    assert len(api.made("list", "nodes")) == len(api.made("watch", "nodes")) == 1


def test_follow_yields_for_an_empty_collection_too(client):
    assert next(follow(client, {})) == set()


def test_follow_reports_what_is_gone_since_the_store_was_filled(api, client):
    api.put("nodes", node("gpu-1"))
    store = {"gpu-1": {}, "gpu-2": {}}
    assert next(follow(client, store)) == {"gpu-2"}
    assert store == {"gpu-1": {}}


def test_follow_resumes_a_broken_watch_without_listing_again(api, client):
    seen = follow(client, {})
    next(seen)
    api.when_watched["nodes"] = lambda: (api.put("nodes", node("gpu-1")), api.cut_watches())
    assert next(seen) == {"gpu-1"}
    api.when_watched["nodes"] = lambda: api.put("nodes", node("gpu-2"))
    assert next(seen) == {"gpu-2"}
    assert len(api.made("list", "nodes")) == 1
    assert [made.query["resourceVersion"] for made in api.made("watch", "nodes")] == ["1", "2"]
    assert client.pauses == [0.0]


def test_follow_lists_again_where_the_server_has_forgotten(api, client):
    store = {}
    api.put("nodes", node("gpu-1"))
    api.put("nodes", node("gpu-2"))
    seen = follow(client, store)
    next(seen)
    # Compacted while the watch was broken, so the change has no event.
    api.take("nodes", "gpu-1")
    api.forget()
    assert next(seen) == {"gpu-1"}
    assert store == {"gpu-2": {}}
    assert len(api.made("list", "nodes")) == 2


@pytest.mark.parametrize("limit_s", [0.0, 0.5])
def test_follow_ends_in_time_with_an_open_watch(api, client, limit_s):
    started = time.monotonic()
    rounds = list(follow(client, {}, limit_s))
    assert time.monotonic() - started < limit_s + 0.5
    assert rounds == ([set()] if limit_s == 0 else [set(), ()])
    assert len(api.made("watch", "nodes")) == (1 if limit_s else 0)


def test_follow_watches_in_rounds(api, client):
    api.longest_watch_s = 0.0
    seen = follow(client, {})
    assert next(seen) == set()
    for _try in range(3):
        api.when_watched["nodes"] = lambda: api.bookmark("nodes")
        assert next(seen) == ()
    assert [made.query["resourceVersion"] for made in api.made("watch", "nodes")] == list("123")


def test_follow_lists_where_every_watch_ends_at_once(api, client):
    api.longest_watch_s = 0.0
    store = {}
    seen = follow(client, store, limit_s=30.0)
    assert next(seen) == set()
    api.put("nodes", node("gpu-1"))
    assert next(seen) == {"gpu-1"}
    assert list(seen)[-1] == set()
    assert client.pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 8.0, pytest.approx(7.0, abs=0.5)]


def test_follow_waits_for_a_server_that_stays_away_until_time_is_up(api, client):
    seen = follow(client, {}, limit_s=25.0)
    next(seen)
    api.refusals["watch", "nodes"] = Refusal(503, "etcd has no leader")
    with pytest.raises(ApiBusy, match=r"request to watch nodes \(503\): etcd has no leader"):
        next(seen)
    assert client.pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 8.0, pytest.approx(2.0, abs=0.5)]


@pytest.mark.parametrize(
    "good",
    [
        pytest.param(lambda api: api.bookmark("nodes"), id="with an event"),
        pytest.param(lambda api: None, id="quiet"),
    ],
)
def test_follow_counts_failures_in_a_row(api, client, good):
    """Earlier, 54 quiet rounds and 6 failures in between made it stop."""
    api.longest_watch_s = 0.03
    seen = follow(client, {}, limit_s=600.0, round_s=0.02)
    next(seen)
    for _turn in range(8):
        api.refusals["watch", "nodes"] = Refusal(503, "busy", times=2)
        api.when_watched["nodes"] = lambda: good(api)
        assert next(seen) == ()
    assert client.pauses == [0.0, 1.0] * 8


def test_follow_notices_a_watch_that_stalls_and_begins_it_anew(api, client, monkeypatch):
    monkeypatch.setattr(kube_collections, "_STALLED_S", 0.05)
    store = {}
    seen = follow(client, store, limit_s=60.0, round_s=0.05)
    next(seen)
    api.stalls["watch", "nodes"] = 2
    api.put("nodes", node("gpu-1"))
    assert next(seen) == {"gpu-1"}
    assert client.pauses == [0.0, 1.0]


def test_follow_waits_as_long_as_retry_after(api, client):
    seen = follow(client, {}, limit_s=60.0)
    next(seen)
    api.refusals["watch", "nodes"] = Refusal(429, "slow down", times=1, retry_after="17")
    api.when_watched["nodes"] = lambda: api.put("nodes", node("gpu-1"))
    assert next(seen) == {"gpu-1"}
    assert client.pauses == [17.0]


def later(seconds):
    return formatdate(time.time() + seconds, usegmt=True)


@pytest.mark.parametrize(
    ("code", "times", "retry_after", "pauses"),
    [
        pytest.param(429, 1, "3", [3.0], id="seconds"),
        pytest.param(503, 1, 9, [pytest.approx(9.0, abs=2.0)], id="date"),
        pytest.param(429, 1, -9, [0.0], id="date in the past"),
        pytest.param(429, 1, "soon", [0.0], id="nonsense"),
        pytest.param(504, 4, "", [0.0, 1.0, 2.0, 4.0], id="says nothing"),
        pytest.param(500, 1, "", [0.0], id="internal error, reading"),
    ],
)
def test_a_busy_server_is_asked_again(api, client, code, times, retry_after, pauses):
    desired = retry_after if isinstance(retry_after, str) else later(retry_after)
    api.refusals["list", "nodes"] = Refusal(code, "x", times=times, retry_after=desired)
    api.put("nodes", node("gpu-1"))
    assert client.snapshot("nodes", labels) == {"gpu-1": {}}
    assert client.pauses == pauses


@pytest.mark.parametrize(
    ("verb", "resource", "request_"),
    [
        ("create", "pods", lambda client: client.create("pods", pod("a"), "default")),
        ("patch", "nodes", lambda client: client.patch("nodes", "gpu-1", {})),
        ("delete", "pods", lambda client: client.delete("pods", "b", "default")),
        (
            "deletecollection",
            "pods",
            lambda client: client.delete_collection("pods", "default", selector="a"),
        ),
    ],
)
@pytest.mark.parametrize(
    "refusal", [(429, "too many requests"), (503, "not ready")], ids=["429", "503"]
)
def test_a_busy_server_is_asked_again_to_change_something(
    api, client, verb, resource, request_, refusal
):
    api.put("nodes", node("gpu-1"))
    api.put("pods", pod("b"))
    api.refusals[verb, resource] = Refusal(*refusal, times=1, retry_after="1")
    request_(client)
    assert client.pauses == [1.0]


@pytest.mark.parametrize(("limit_s", "waited_s"), [(None, 30.0), (10.0, 30.0), (100.0, 100.0)])
def test_a_server_that_stays_busy_is_waited_for_as_long_as_the_caller_can(
    api, client, limit_s, waited_s
):
    api.refusals["list", "nodes"] = Refusal(429, "too many requests", retry_after="7")
    timer = None if limit_s is None else client.timer(limit_s)
    with pytest.raises(ApiBusy, match=rf"\(tried \d+ times in {waited_s:.0f} s\)$"):
        client.snapshot("nodes", labels, timer=timer)
    assert set(client.pauses[:-1]) <= {7.0, 8.0}
    assert sum(client.pauses) == pytest.approx(waited_s, abs=0.5)


def test_a_webhook_that_is_down_is_not_waited_for(api, client):
    api.refusals["create", "pods"] = Refusal(500, 'failed calling webhook "a.example"')
    with pytest.raises(ApiBusy):
        client.create("pods", pod("a"), "default")
    assert client.pauses == []


def test_an_eviction_that_a_budget_forbids_is_not_retried(api, client):
    uid = api.put("pods", pod("a"))["metadata"]["uid"]
    api.budgets["a"] = lambda: None
    with pytest.raises(ApiBudget) as caught:
        client.evict("a", "default", uid)
    assert caught.value.reply.startswith("Cannot evict pod as it would violate")
    assert client.pauses == []


def test_a_budget_may_also_say_403(api, client):
    """As it does with too many evictions under way: pkg/registry/core/pod/storage/eviction.go."""
    uid = api.put("pods", pod("a"))["metadata"]["uid"]
    text = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
    api.refusals["evict", "pods"] = Refusal(403, text, cause="DisruptionBudget")
    with pytest.raises(ApiBudget):
        client.evict("a", "default", uid)


def test_another_pod_of_the_same_name_is_not_evicted(api, client):
    api.put("pods", pod("a"))
    with pytest.raises(ApiConflict, match="Precondition failed: UID in precondition: gone,"):
        client.evict("a", "default", "gone")
    assert api.names("pods") == ["a"]


def test_a_server_that_stalls_is_asked_again(api, client, monkeypatch):
    monkeypatch.setattr(kube_transport, "_READ_S", 0.5)  # a busy machine answers late
    api.stalls["list", "nodes"] = 2
    api.put("nodes", node("gpu-1"))
    assert client.snapshot("nodes", labels) == {"gpu-1": {}}
    assert client.pauses == [0.0, 1.0]


def test_a_server_that_does_not_answer_is_named_with_the_true_times(api, client, monkeypatch):
    monkeypatch.setattr(kube_transport, "_READ_S", 1.0)
    monkeypatch.setattr(kube_transport, "_PATIENCE_S", 0.5)
    api.stalls["list", "nodes"] = 9
    with pytest.raises(ApiStalled) as caught:
        client.snapshot("nodes", labels)
    assert "is unreachable: no answer within 1 s. Check" in str(caught.value)


def test_an_answer_that_got_lost_does_not_double_the_work(api, client):
    client.snapshot("nodes", labels)
    api.lost["create", "pods"] = 1
    with pytest.raises(ApiExists):
        client.create("pods", pod("a"), "default")
    assert api.names("pods") == ["a"]


# Words: kubernetes/kubernetes issue 67761.
QUOTA_CHANGED = (
    'Operation cannot be fulfilled on resourcequotas "gpus": the object has been modified; please '
    "apply your changes to the latest version and try again"
)


def test_a_conflict_with_a_quota_is_asked_again(api, client):
    api.refusals["create", "pods"] = Refusal(409, QUOTA_CHANGED, times=2, reason="Conflict")
    assert client.create("pods", pod("a"), "default")["metadata"]["name"] == "a"
    assert client.pauses == [0.0, 1.0]


def test_a_node_that_has_changed_is_the_callers_to_look_at(api, client):
    api.put("nodes", node("gpu-1"))
    with pytest.raises(ApiConflict):
        client.patch("nodes", "gpu-1", {"metadata": {"resourceVersion": "0"}})
    assert client.pauses == []


def test_a_list_that_is_forgotten_half_way_is_begun_anew(api, client, monkeypatch):
    monkeypatch.setattr(kube_collections, "_PAGE", 1)
    for name in ("gpu-1", "gpu-2"):
        api.put("nodes", node(name))

    def keep(item):
        if len(api.made("list", "nodes")) == 1:
            api.take("nodes", "gpu-1")
            api.forget()
        return True

    assert client.snapshot("nodes", keep) == {"gpu-2": True}
    assert [made.query.get("limit") for made in api.made("list", "nodes")] == ["1", "1", None]


def test_pods_of_nodes_cost_a_list_for_each_node(api, client):
    for name, on in (("a", "gpu-1"), ("b", "gpu-2"), ("c", "gpu-3")):
        api.put("pods", {**pod(name), "spec": {"nodeName": on}})
    nodes = ["gpu-1", "gpu-2", "gone"]
    found = client.snapshot_each(
        "pods", lambda item: True, "spec.nodeName", nodes, "a!=b", cached=True
    )
    assert found == {"default/a": True, "default/b": True}
    assert sorted(made.query["fieldSelector"] for made in api.made("list", "pods")) == [
        "a!=b,spec.nodeName=gone",
        "a!=b,spec.nodeName=gpu-1",
        "a!=b,spec.nodeName=gpu-2",
    ]
    # From the server's cache, which has an index.
    assert {made.query["resourceVersion"] for made in api.made("list", "pods")} == {"0"}


@pytest.mark.parametrize(
    ("denied", "allowed"), [({("get", "pods/log")}, False), ({("get", "pods")}, True)]
)
def test_permissions_are_asked_for(api, client, denied, allowed):
    api.denied = denied
    attributes = {"verb": "get", "group": "", "resource": "pods", "subresource": "log"}
    assert client.is_allowed(attributes) is allowed


def test_credentials_in_the_address_are_not_shown(api):
    client = Connection(api.url.replace("//", "//admin:hunter2@"))
    api.refusals["list", "nodes"] = Refusal(404, "no")
    with pytest.raises(ApiMissing) as caught:
        client.snapshot("nodes", labels)
    assert "hunter2" not in str(caught.value)


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_unreachable():
    url = f"https://127.0.0.1:{unused_port()}"
    client = Connection(url)
    with pytest.raises(ApiUnreachable) as caught:
        next(follow(client, {}))
    assert str(caught.value) == (
        f"The API server {url} is unreachable: Connection refused. Check that it runs, that "
        "no firewall or proxy blocks the connection, and that the address is correct (from the "
        "test)."
    )
    assert client.pauses == []


def test_unreachable_when_the_connection_breaks():
    """Also before the first answer: a server is there, and may recover."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        client = Connection(f"http://127.0.0.1:{listener.getsockname()[1]}")
        seen = follow(client, {})
        # Closed before anything is said: the backlog takes the connection, then it is reset.

        def hang_up():
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(ApiUnreachable, match=r"is unreachable: .*\(tried "):
            next(seen)
        assert sum(client.pauses) == pytest.approx(30.0, abs=1.0)


def test_unauthorised(api):
    with pytest.raises(ApiUnauthorised) as caught:
        Connection(api.url, token="wrong").snapshot("nodes", labels)
    assert str(caught.value) == (
        f"The API server {api.url} does not accept these credentials (401 Unauthorized). Check "
        "that the token or client certificate is correct and has not expired (from the test)."
    )


def test_forbidden_names_verb_and_resource(api, client):
    api.refusals["list", "nodes"] = Refusal(403, 'nodes is forbidden: User "eve" cannot list')
    with pytest.raises(ApiForbidden) as caught:
        client.snapshot("nodes", labels)
    assert str(caught.value) == (
        f"The API server {api.url} denied the request to list nodes (403): nodes is forbidden: "
        "User \"eve\" cannot list. Grant the verb 'list' on 'nodes', or use other credentials "
        "(from the test)."
    )


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (404, ApiMissing),
        (409, ApiConflict),
        (422, ApiRefused),
        (410, ApiExpired),
        (500, ApiBusy),
    ],
)
def test_refused(api, client, code, error):
    api.refusals["create", "pods"] = Refusal(code, "because")
    with pytest.raises(error, match=rf"request to create pods \({code}\): because") as caught:
        client.create("pods", {}, "default")
    assert caught.type is error
    assert caught.value.reply == "because"


def test_an_address_of_another_server(api):
    api.logs["gpu"] = "<html>"
    client = Connection(f"{api.url}/api/v1/namespaces/x/pods/gpu/log?")
    with pytest.raises(ApiRefused, match="did not answer with JSON: b'<html>'"):
        client.snapshot("nodes", labels)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\n", id="nothing"),
        pytest.param(b"<html>sign in</html>", id="HTML"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="list"),
        pytest.param(b"{}", id="empty"),
        pytest.param(b'{"metadata": {"resourceVersion": "1"}, "items": null}', id="no items"),
        pytest.param(b'{"metadata": {"resourceVersion": "1"}, "items": {}}', id="odd items"),
        pytest.param(b'{"metadata": {"resourceVersion": "1"}, "items": [null]}', id="odd item"),
        pytest.param(b'{"metadata": {"resourceVersion": "1"}, "items": [{}]}', id="no name"),
        pytest.param(b'{"metadata": [], "items": []}', id="odd metadata"),
        pytest.param(b'{"metadata": {}, "items": []}', id="no version"),
        pytest.param(b"\xff", id="not text"),
    ],
)
def test_a_list_that_is_none_is_named(api, client, body):
    api.odd["list", "nodes"] = body
    with pytest.raises(ApiRefused, match=r"did not answer .*Check that this is the address"):
        client.snapshot("nodes", labels)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\n", id="nothing"),
        pytest.param(b"<html>\n", id="HTML"),
        pytest.param(b"null\n", id="null"),
        pytest.param(b"{}\n", id="empty"),
        pytest.param(b"[]\n", id="list"),
        pytest.param(b'{"type": "ADDED"}\n', id="no object"),
        pytest.param(b'{"type": "ADDED", "object": {"metadata": null}}\n', id="no metadata"),
        pytest.param(
            b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": "9"}}}\n', id="no name"
        ),
        pytest.param(
            b'{"type": "ADDED", "object": {"metadata": {"name": "x"}}}\n', id="no version"
        ),
        pytest.param(b'{"type": "BOOKMARK", "object": {"metadata": {}}}\n', id="bookmark"),
        pytest.param(b"\xff\n", id="not text"),
    ],
)
def test_a_watch_that_is_none_is_named(api, client, body):
    api.odd["watch", "nodes"] = body
    seen = follow(client, {})
    next(seen)
    with pytest.raises(ApiRefused, match=r"did not answer .*Check that this is the address"):
        next(seen)


def test_a_watch_that_ends_with_an_odd_error_is_begun_anew(api, client):
    seen = follow(client, {}, limit_s=1.0)
    next(seen)
    api.odd["watch", "nodes"] = b'{"type": "ERROR", "object": null}\n'
    assert next(seen) == set()


@pytest.mark.parametrize("body", [b"[]", b"null", b"{}", b'{"metadata": {}}'])
def test_a_patched_object_that_is_none_is_named(api, client, body):
    api.odd["patch", "nodes"] = body
    with pytest.raises(ApiRefused, match=r"did not answer .*Check that this is the address"):
        client.patch("nodes", "gpu-1", {})


@pytest.mark.parametrize("body", [b"[]", b"null"])
def test_a_created_object_that_is_none_is_named(api, client, body):
    """A review has no name."""
    api.odd["create", "pods"] = body
    with pytest.raises(ApiRefused, match=r"did not answer .*Check that this is the address"):
        client.create("pods", pod("a"), "default")


@pytest.mark.parametrize(
    ("names", "selectors", "query"),
    [
        (["gpu-1"], [], {"fieldSelector": "metadata.name=gpu-1"}),
        (["gpu-1", "gpu-2"], [], {}),
        (["gpu-1"], ["a!=b"], {"fieldSelector": "a!=b,metadata.name=gpu-1"}),
        (["gpu-1", "gpu-2"], ["a!=b"], {"fieldSelector": "a!=b"}),
    ],
)
def test_only(names, selectors, query):
    assert only("metadata.name", names, *selectors) == query

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import socket
import threading
import time

import kubernetes.client
import pytest

from ansible_collections.metal.gpu.plugins.module_utils import kube
from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer, Refusal


class Connection(kube.Client):
    """A client that notes its pauses instead of making them."""

    def __init__(self, url, token=ApiServer.token):
        configuration = kubernetes.client.Configuration(
            host=url, api_key={"authorization": f"Bearer {token}"}
        )
        self.pauses = []
        super().__init__(kube.Settings(configuration, "from the test"), sleep=self.pauses.append)


@pytest.fixture
def client(api):
    return Connection(api.url)


def node(name, **labels):
    return {"metadata": {"name": name, "labels": labels}}


def labels(item):
    return dict(item["metadata"]["labels"])


def follow(client, store, limit_s=5.0, **options):
    return client.follow("nodes", store, labels, kube.Timer(limit_s), **options)


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
    # Compacted, while the watch was away, with a change that nobody will tell.
    api.take("nodes", "gpu-1")
    api.forget()
    assert next(seen) == {"gpu-1"}
    assert store == {"gpu-2": {}}
    assert len(api.made("list", "nodes")) == 2


@pytest.mark.parametrize("limit_s", [0.0, 0.05])
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


def test_follow_does_not_spin_where_every_watch_ends_at_once(api, client):
    api.longest_watch_s = 0.0
    seen = follow(client, {}, limit_s=60.0)
    next(seen)
    with pytest.raises(kube.ApiUnreachable, match="closes every watch at once"):
        next(seen)
    assert client.pauses == [0.0, 1.0, 2.0, 4.0, 8.0]


def test_follow_gives_up_on_a_server_that_stays_away(api, client):
    seen = follow(client, {})
    next(seen)
    api.refusals["watch", "nodes"] = Refusal(503, "etcd has no leader")
    with pytest.raises(kube.ApiBusy, match=r"refused to watch nodes \(503\): etcd has no leader"):
        next(seen)
    assert client.pauses == [0.0, 1.0, 2.0, 4.0, pytest.approx(5.0, abs=0.5)]


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_unreachable():
    url = f"https://127.0.0.1:{unused_port()}"
    client = Connection(url)
    with pytest.raises(kube.ApiUnreachable) as caught:
        next(follow(client, {}))
    assert str(caught.value) == (
        f"The API server {url} is unreachable: Connection refused. Check that it runs, that "
        "nothing blocks the way to it, and that the address is right (from the test)."
    )
    assert client.pauses == []


def test_unreachable_when_the_connection_breaks():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        client = Connection(f"http://127.0.0.1:{listener.getsockname()[1]}")
        seen = follow(client, {})
        # Closed before anything is said: the backlog takes the connection, then it is reset.

        def hang_up():
            listener.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(kube.ApiUnreachable, match="is unreachable: "):
            next(seen)


def test_unauthorised(api):
    with pytest.raises(kube.ApiUnauthorised) as caught:
        Connection(api.url, token="wrong").snapshot("nodes", labels)
    assert str(caught.value) == (
        f"The API server {api.url} does not know these credentials (401 Unauthorized). Check the "
        "token or client certificate, which may have expired (from the test)."
    )


def test_forbidden_names_verb_and_resource(api, client):
    api.refusals["list", "nodes"] = Refusal(403, 'nodes is forbidden: User "eve" cannot list')
    with pytest.raises(kube.ApiForbidden) as caught:
        client.snapshot("nodes", labels)
    assert str(caught.value) == (
        f"The API server {api.url} forbids to list nodes (403): nodes is forbidden: "
        "User \"eve\" cannot list. Grant the verb 'list' on 'nodes', or use other credentials "
        "(from the test)."
    )


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (404, kube.ApiMissing),
        (422, kube.ApiRefused),
        (410, kube.ApiExpired),
        (429, kube.ApiBusy),
        (500, kube.ApiBusy),
    ],
)
def test_refused(api, client, code, error):
    api.refusals["create", "pods"] = Refusal(code, "because")
    with pytest.raises(error, match=rf"refused to create pods \({code}\): because") as caught:
        client.create("pods", {}, "default")
    assert caught.type is error
    assert caught.value.found == "because"


def test_something_else_than_an_api_server(api, client):
    api.logs["gpu"] = "<html>"
    client.url += "/api/v1/namespaces/x/pods/gpu/log?"
    with pytest.raises(kube.ApiRefused, match="does not answer with JSON: b'<html>'"):
        client.snapshot("nodes", labels)


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
    assert kube.only("metadata.name", names, *selectors) == query

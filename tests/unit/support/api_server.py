# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A small API server on the loopback, for the tests of what talks to a real one.

It speaks the core group as the real one does, as far as the collection uses it: LIST in pages,
WATCH in chunks with bookmarks and 410, create with generateName, merge patches, evictions,
deletecollection with grace periods, logs, selectors, Status objects as errors. Nothing in it
sleeps: a watch waits for the next change. What a kubelet or scheduler would do, a test does itself,
by `put` or from `when_watched`.
"""

from __future__ import annotations

import copy
import itertools
import json
import ssl
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable


class Request(NamedTuple):
    """A request that was made."""

    verb: str
    resource: str
    query: dict[str, str]
    body: Any


class Refusal(Exception):
    """Answer with an error instead."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ApiServer:
    """The state of a cluster and the server that shows it; a context manager."""

    token = "right"

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.refusals: dict[tuple[str, str], Refusal] = {}  # by verb and resource
        self.logs: dict[str, str] = {}  # by pod name
        self.when_watched: dict[str, Callable[[], None]] = {}  # once, when a watch begins
        self.when_created: Callable[[dict[str, Any]], None] = lambda pod: None
        self.budgets: dict[str, Callable[[], None]] = {}  # of pods; called at each eviction
        self.longest_watch_s = 3600.0  # whatever the client asks for
        self.kubelets_answer = True  # or pods that ran stay until they are deleted by force
        self._objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._history: list[tuple[int, str, str, dict[str, Any]]] = []
        self._forgotten = 0  # newest version that cannot be watched from
        self._cuts = 0
        self._names = itertools.count(1)
        self._changed = threading.Condition()
        self._server = _Server(self)
        self._scheme = "http"
        if tls:
            self._scheme = "https"
            # The handshake belongs into the connection's thread, not into the accepting one.
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )

    def __enter__(self) -> ApiServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.cut_watches()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def made(self, verb: str, resource: str) -> list[Request]:
        """Return the requests of one kind."""
        return [made for made in self.requests if (made.verb, made.resource) == (verb, resource)]

    def names(self, resource: str) -> list[str]:
        with self._changed:
            return [name for kind, _namespace, name in self._objects if kind == resource]

    def objects(self) -> dict[tuple[str, str, str], dict[str, Any]]:
        """Return copies of all objects, by resource, namespace and name."""
        with self._changed:
            return copy.deepcopy(self._objects)

    def put(self, resource: str, item: dict[str, Any]) -> dict[str, Any]:
        """Add or replace an object."""
        item = copy.deepcopy(item)
        metadata = item["metadata"]
        key = (resource, metadata.get("namespace", ""), metadata["name"])
        metadata.setdefault("creationTimestamp", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        with self._changed:
            kind = "MODIFIED" if key in self._objects else "ADDED"
            self._objects[key] = item
            self._record(kind, resource, item)
        return item

    def take(self, resource: str, name: str, namespace: str = "") -> None:
        """Remove an object."""
        with self._changed:
            item = copy.deepcopy(self._objects.pop((resource, namespace, name)))
            self._record("DELETED", resource, item)

    def bookmark(self, resource: str) -> None:
        with self._changed:
            self._record("BOOKMARK", resource, {"metadata": {}})

    def forget(self) -> None:
        """Compact: no watch can begin at, or resume from, what has been so far."""
        with self._changed:
            self._forgotten = self._version

    def cut_watches(self) -> None:
        """Break the connections of all watches, in the middle of an event."""
        with self._changed:
            self._cuts += 1
            self._changed.notify_all()

    @property
    def _version(self) -> int:
        return self._history[-1][0] if self._history else 1

    def _record(self, kind: str, resource: str, item: dict[str, Any]) -> None:
        version = self._version + 1
        item["metadata"]["resourceVersion"] = str(version)
        self._history.append((version, resource, kind, copy.deepcopy(item)))
        self._changed.notify_all()

    def _select(
        self, resource: str, namespace: str, query: dict[str, str]
    ) -> list[tuple[str, str, str]]:
        return [
            key
            for key, item in self._objects.items()
            if key[0] == resource and namespace in ("", key[1]) and matches(item, query)
        ]

    def list(self, resource: str, namespace: str, query: dict[str, str]) -> dict[str, Any]:
        with self._changed:
            keys = self._select(resource, namespace, query)
            first, size = int(query.get("continue", 0)), int(query["limit"])
            metadata = {"resourceVersion": str(self._version)}
            if first + size < len(keys):
                metadata["continue"] = str(first + size)
            items = [copy.deepcopy(self._objects[key]) for key in keys[first : first + size]]
        return {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}

    def watch(
        self, resource: str, namespace: str, query: dict[str, str], send: Callable[[Any], None]
    ) -> bool:
        """Send events until the time is up; False when the connection is to be broken."""
        version, cuts = int(query["resourceVersion"]), self._cuts
        if version < self._forgotten:
            send({"type": "ERROR", "object": status(410, "too old resource version")})
            return True
        until = time.monotonic() + min(float(query["timeoutSeconds"]), self.longest_watch_s)
        self.when_watched.pop(resource, lambda: None)()
        while True:
            with self._changed:
                news = [row for row in self._history if row[0] > version]
                if not news and cuts == self._cuts:
                    if (left := until - time.monotonic()) <= 0:
                        return True
                    self._changed.wait(left)
                    continue
                broken = cuts != self._cuts
            for version, changed, kind, item in news:  # noqa: B007  # read by the next round
                in_scope = namespace in ("", item["metadata"].get("namespace", ""))
                if changed == resource and (
                    kind == "BOOKMARK" or (in_scope and matches(item, query))
                ):
                    send({"type": kind, "object": item})
            if broken:
                return False

    def create(self, resource: str, namespace: str, item: dict[str, Any]) -> dict[str, Any]:
        metadata = item["metadata"]
        metadata["name"] = f"{metadata['generateName']}{next(self._names):05}"
        metadata["namespace"] = namespace
        created = self.put(resource, item)
        self.when_created(copy.deepcopy(created))
        return created

    def patch(self, resource: str, name: str, changes: dict[str, Any]) -> dict[str, Any]:
        with self._changed:
            item = copy.deepcopy(self._objects[resource, "", name])
        return self.put(resource, merge(item, changes))

    def evict(self, namespace: str, name: str) -> None:
        if ("pods", namespace, name) not in self._objects:
            raise Refusal(404, f'pods "{name}" not found')
        if name in self.budgets:
            self.budgets[name]()
            raise Refusal(429, "Cannot evict pod as it would violate the pod's disruption budget.")
        self.take("pods", name, namespace)

    def delete_collection(
        self, resource: str, namespace: str, query: dict[str, str], body: dict[str, Any]
    ) -> None:
        with self._changed:
            keys = self._select(resource, namespace, query)
        for key in keys:
            phase = self._objects[key].get("status", {}).get("phase")
            forced = body.get("gracePeriodSeconds") == 0
            if forced or self.kubelets_answer or phase in ("Succeeded", "Failed"):
                self.take(resource, key[2], key[1])


def status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message}


def merge(item: Any, changes: Any) -> Any:
    """Apply a merge patch (RFC 7396)."""
    if not isinstance(item, dict) or not isinstance(changes, dict):
        return changes
    merged = {key: merge(item.get(key), value) for key, value in changes.items()}
    return {key: value for key, value in {**item, **merged}.items() if value is not None}


def matches(item: dict[str, Any], query: dict[str, str]) -> bool:
    """Tell whether an object meets the label and field selectors of a request."""
    labels = item["metadata"].get("labels", {})
    selector = query.get("labelSelector", "")
    if " in " in selector:
        key, values = selector.split(" in ")
        if labels.get(key) not in values.strip("()").split(","):
            return False
    elif selector:
        for term in selector.split(","):
            key, given, value = term.partition("=")
            if key not in labels or (given and labels[key] != value):
                return False
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        field, _equals, value = term.partition("=")
        found: Any = item
        for part in field.rstrip("!").split("."):
            found = found.get(part, {})
        if (found == value) is field.endswith("!"):
            return False
    return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, api: ApiServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api

    def handle_error(self, *_connection: Any) -> None:
        """Keep quiet about clients that leave, or do not trust us."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handle_error(*_connection)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one segment

    def log_message(self, *_args: object) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PATCH(self) -> None:
        self._answer("PATCH")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        api = cast("_Server", self.server).api
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
        # /api/v1[/namespaces/NAMESPACE]/RESOURCE[/NAME[/SUBRESOURCE]]
        parts = url.path.removeprefix("/api/v1/").split("/")
        namespace = parts[1] if parts[0] == "namespaces" else ""
        resource, *rest = parts[2:] if namespace else parts
        verb = {"POST": "create", "PATCH": "patch", "DELETE": "deletecollection"}.get(
            method, "log" if rest else "watch" if "watch" in query else "list"
        )
        if rest[1:] == ["eviction"]:
            verb = "evict"
        api.requests.append(Request(verb, resource, query, body))
        try:
            if self.headers.get("Authorization") != f"Bearer {api.token}":
                raise Refusal(401, "Unauthorized")
            if (verb, resource) in api.refusals:
                raise api.refusals[verb, resource]
            if verb == "watch":
                self._watch(api, resource, namespace, query)
            elif verb == "log":
                self._send(200, api.logs[rest[0]].encode())
            elif verb == "evict":
                api.evict(namespace, rest[0])
                self._send_json(201, {"kind": "Status", "status": "Success"})
            elif verb == "patch":
                self._send_json(200, api.patch(resource, rest[0], body))
            elif verb == "create":
                self._send_json(201, api.create(resource, namespace, body))
            elif verb == "deletecollection":
                api.delete_collection(resource, namespace, query, body)
                self._send_json(200, {"kind": "Status", "status": "Success"})
            else:
                self._send_json(200, api.list(resource, namespace, query))
        except Refusal as refusal:
            self._send_json(refusal.code, status(refusal.code, str(refusal)))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client has left

    def _watch(self, api: ApiServer, resource: str, namespace: str, query: dict[str, str]) -> None:
        def send(event: Any) -> None:
            line = json.dumps(event).encode() + b"\n"
            half = len(line) // 2  # events do not come in one piece
            for part in (line[:half], line[half:]):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.flush()

        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        if api.watch(resource, namespace, query, send):
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.wfile.write(b'9\r\n{"type":"\r\n')
            self.close_connection = True
        self.wfile.flush()

    def _send_json(self, code: int, answer: Any) -> None:
        self._send(code, json.dumps(answer).encode())

    def _send(self, code: int, answer: bytes) -> None:
        self.send_response_only(code)
        self.send_header("Date", formatdate(usegmt=True))
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        self.wfile.flush()

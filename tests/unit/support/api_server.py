# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A small API server on the loopback, for the tests of what talks to a real one.

It speaks as the real one does, as far as the collection uses it: LIST in pages, WATCH in chunks
with bookmarks and 410, create by name, merge patches with resourceVersion and field managers,
evictions, delete and deletecollection with grace periods, access reviews, logs, selectors, Status
objects as errors. It can also refuse, be busy, stall, and lose answers. Nothing in it sleeps: a
watch waits for the next change. What a kubelet or scheduler would do, a test does itself, by `put`
or from `when_watched` and `when_listed`.

Form and words of the answers: as kube-apiserver 1.37.1 gave them to curl (November 2026).
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
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

_NONE: Mapping[str, str] = {}


class Request(NamedTuple):
    """A request that was made."""

    verb: str
    resource: str
    query: dict[str, str]
    body: Any


class Refusal(Exception):
    """Answer with an error instead: for ever, or the next few times."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        times: int = sys.maxsize,
        retry_after: str = "",
        cause: str = "",
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.times = times
        self.retry_after = retry_after
        self.cause = cause
        self.reason = reason

    def status(self) -> dict[str, Any]:
        details = {"details": {"causes": [{"reason": self.cause}]}} if self.cause else {}
        reason = {"reason": self.reason} if self.reason else {}
        return {**status(self.code, str(self)), **reason, **details}


class ApiServer:
    """The state of a cluster and the server that shows it; a context manager."""

    token = "right"

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.refusals: dict[tuple[str, str], Refusal] = {}  # by verb and resource
        self.logs: dict[str, str] = {}  # by pod name
        self.stalls: dict[tuple[str, str], int] = {}  # how many requests get no answer
        self.odd: dict[tuple[str, str], bytes] = {}  # what is answered, whatever it is
        self.lost: dict[tuple[str, str], int] = {}  # how many answers get lost, the work being done
        self.denied: set[tuple[str, str]] = set()  # verb and resource, for access reviews
        self.user = "jane"
        # The preemptionPolicy of each PriorityClass; that without a name is the default.
        self.policies = {"": "PreemptLowerPriority", "metal-gpu-proof": "Never"}
        self.when_watched: dict[str, Callable[[], None]] = {}  # once, when a watch begins
        self.when_listed: dict[str, Callable[[], None]] = {}  # once, before a list
        self.when_patched: Callable[[str, str], None] = lambda resource, name: None  # before
        self.when_created: Callable[[dict[str, Any]], None] = lambda pod: None
        self.budgets: dict[str, Callable[[], None]] = {}  # of pods; called at each eviction
        self.longest_watch_s = 3600.0  # whatever the client asks for
        self.cache: dict[tuple[str, str, str], dict[str, Any]] | None = None  # if it is out of date
        self.kubelets_answer = True  # or pods that ran stay until they are deleted by force
        self._objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._history: list[tuple[int, str, str, dict[str, Any]]] = []
        self._forgotten = 0  # newest version that cannot be watched from
        self._cuts = 0
        self._names = itertools.count(1)
        self._changed = threading.Condition()
        self._gone = threading.Event()
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
        self._gone.set()
        self.cut_watches()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig file for this server, whose user has the right token."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": self.url}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": self.token}}],
        }
        path.write_text(json.dumps(content))
        return path

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
        metadata.setdefault("uid", f"uid-{next(self._names)}")
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
        self,
        resource: str,
        namespace: str,
        query: dict[str, str],
        objects: dict[tuple[str, str, str], dict[str, Any]] | None = None,
    ) -> list[tuple[str, str, str]]:
        return [
            key
            for key, item in (self._objects if objects is None else objects).items()
            if key[0] == resource and namespace in ("", key[1]) and matches(item, query)
        ]

    def list(self, resource: str, namespace: str, query: dict[str, str]) -> dict[str, Any]:
        self.when_listed.pop(resource, lambda: None)()
        with self._changed:
            stale = self.cache is not None and query.get("resourceVersion") == "0"
            objects = self.cache if self.cache is not None and stale else self._objects
            keys = self._select(resource, namespace, query, objects)
            since, _colon, first_key = query.get("continue", f"{self._version}:0").partition(":")
            if int(since) < self._forgotten:
                raise Refusal(410, "The provided continue parameter is too old")
            first, size = int(first_key), int(query.get("limit", sys.maxsize))
            metadata = {"resourceVersion": str(self._version)}
            if first + size < len(keys):
                metadata["continue"] = f"{since}:{first + size}"
            items = [copy.deepcopy(objects[key]) for key in keys[first : first + size]]
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

    def create(
        self, resource: str, namespace: str, item: dict[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        if resource == "selfsubjectaccessreviews":
            asked = item["spec"]["resourceAttributes"]
            kind = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
            return {**item, "status": {"allowed": (asked["verb"], kind) not in self.denied}}
        if resource == "selfsubjectreviews":
            return {**item, "status": {"userInfo": {"username": self.user}}}
        metadata = item["metadata"]
        metadata["namespace"] = namespace
        if (resource, namespace, metadata["name"]) in self._objects:
            text = f'{resource} "{metadata["name"]}" already exists'
            raise Refusal(409, text, reason="AlreadyExists")
        if resource == "pods" and "spec" in item:
            self._admit(item)
        if dry_run:
            return item
        created = self.put(resource, item)
        if resource == "pods":
            self.when_created(copy.deepcopy(created))
        return created

    def _admit(self, pod: dict[str, Any]) -> None:
        """Do what the admission plugin Priority does."""
        name = pod["spec"].get("priorityClassName", "")
        if name not in self.policies:
            why = f"no PriorityClass with name {name} was found"
            raise Refusal(403, f'pods "{pod["metadata"]["name"]}" is forbidden: {why}')
        pod["spec"]["preemptionPolicy"] = self.policies[name]

    def patch(
        self,
        resource: str,
        name: str,
        changes: dict[str, Any],
        manager: str = "kubectl",
        namespace: str = "",
    ) -> dict[str, Any]:
        """Merge the changes in; the manager owns a field of the spec that it has changed."""
        if manager != "kubectl":
            self.when_patched(resource, name)
        with self._changed:
            found = self._objects.get((resource, namespace, name))
            if found is None:
                raise Refusal(404, f'{resource} "{name}" not found')
            item = copy.deepcopy(found)
        seen = changes.get("metadata", {}).get("resourceVersion")
        if seen not in (None, item["metadata"]["resourceVersion"]):
            raise Refusal(
                409,
                f'Operation cannot be fulfilled on {resource} "{name}": the object has been '
                "modified; please apply your changes to the latest version and try again",
                reason="Conflict",
            )
        merged: dict[str, Any] = merge(item, changes)
        before, after = item.get("spec", {}), merged.get("spec", {})
        changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
        merged["metadata"]["managedFields"] = _manage(
            item["metadata"].get("managedFields", ()), changed, changed & {*after}, manager
        )
        return self.put(resource, merged)

    def evict(self, namespace: str, name: str, body: dict[str, Any]) -> None:
        if ("pods", namespace, name) not in self._objects:
            raise Refusal(404, f'pods "{name}" not found')
        self._check_uid(("pods", namespace, name), body.get("deleteOptions", {}))
        if name in self.budgets:
            self.budgets[name]()
            raise Refusal(
                429,
                "Cannot evict pod as it would violate the pod's disruption budget.",
                cause="DisruptionBudget",
            )
        self.take("pods", name, namespace)

    def delete(self, resource: str, namespace: str, name: str, body: dict[str, Any]) -> None:
        with self._changed:
            if (resource, namespace, name) not in self._objects:
                raise Refusal(404, f'{resource} "{name}" not found')
        self._check_uid((resource, namespace, name), body)
        self._end([(resource, namespace, name)], body)

    def _check_uid(self, key: tuple[str, str, str], options: dict[str, Any]) -> None:
        """Refuse to end another object of the same name than the one that is meant."""
        found = self._objects[key]["metadata"]["uid"]
        meant = options.get("preconditions", {}).get("uid", found)
        if meant != found:
            raise Refusal(
                409,
                f'Operation cannot be fulfilled on {key[0]} "{key[2]}": Precondition failed: UID '
                f"in precondition: {meant}, UID in object meta: {found}",
                reason="Conflict",
            )

    def delete_collection(
        self, resource: str, namespace: str, query: dict[str, str], body: dict[str, Any]
    ) -> None:
        with self._changed:
            keys = self._select(resource, namespace, query)
        self._end(keys, body)

    def _end(self, keys: Iterable[tuple[str, str, str]], body: dict[str, Any]) -> None:
        for key in keys:
            phase = self._objects[key].get("status", {}).get("phase")
            forced = body.get("gracePeriodSeconds") == 0
            if forced or self.kubelets_answer or phase in ("Succeeded", "Failed"):
                self.take(key[0], key[2], key[1])

    def has_one(self, left: dict[tuple[str, str], int], kind: tuple[str, str]) -> bool:
        """Tell whether a number of requests of this kind is not used up yet, and count one."""
        with self._changed:
            left[kind] = left.get(kind, 0) - 1
            return left[kind] >= 0

    def stall(self) -> None:
        """Give no answer for as long as the server lives."""
        self._gone.wait()


def status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message}


def _manage(
    managed: Iterable[dict[str, Any]], changed: set[str], kept: set[str], manager: str
) -> list[dict[str, Any]]:
    """Return who owns which field of the spec, after a manager has changed some."""
    owners = {row["manager"]: {*row["fieldsV1"]["f:spec"]} for row in managed}
    owners = {name: fields - {f"f:{field}" for field in changed} for name, fields in owners.items()}
    owners.setdefault(manager, set()).update(f"f:{field}" for field in kept)
    return [
        {
            "manager": name,
            "operation": "Update",
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "fieldsV1": {"f:spec": {field: {} for field in fields}},
        }
        for name, fields in owners.items()
        if fields
    ]


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


def _discovery() -> dict[str, dict[str, Any]]:
    """Return what tells a client which resources there are."""
    kinds = {
        "v1": {"nodes": "Node", "pods": "Pod"},
        "apps/v1": {"daemonsets": "DaemonSet", "controllerrevisions": "ControllerRevision"},
        "node.k8s.io/v1": {"runtimeclasses": "RuntimeClass"},
        "scheduling.k8s.io/v1": {"priorityclasses": "PriorityClass"},
    }
    verbs = ["create", "delete", "get", "list", "patch", "watch"]
    groups = [group.partition("/")[0] for group in kinds if "/" in group]
    version = {group: {"groupVersion": f"{group}/v1", "version": "v1"} for group in groups}
    found: dict[str, dict[str, Any]] = {
        "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.1"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "groups": [
                {"name": group, "versions": [one], "preferredVersion": one}
                for group, one in version.items()
            ],
        },
    }
    for group, names in kinds.items():
        found[f"/apis/{group}" if "/" in group else f"/api/{group}"] = {
            "kind": "APIResourceList",
            "groupVersion": group,
            "resources": [
                {
                    "name": name,
                    "singularName": kind.lower(),
                    "namespaced": kind not in ("Node", "RuntimeClass", "PriorityClass"),
                    "kind": kind,
                    "verbs": verbs,
                }
                for name, kind in names.items()
            ],
        }
    return found


_DISCOVERY = _discovery()


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
        # /api/v1 or /apis/GROUP/VERSION, then [/namespaces/NAMESPACE]/RESOURCE[/NAME[/SUBRESOURCE]]
        parts = url.path.strip("/").split("/")
        if url.path in _DISCOVERY:
            self._send_json(200, _DISCOVERY[url.path])
            return
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = parts[1] if parts[0] == "namespaces" and len(parts) > 2 else ""
        resource, *rest = parts[2:] if namespace else parts
        deletes = "delete" if rest else "deletecollection"
        verb = {"POST": "create", "PATCH": "patch", "DELETE": deletes}.get(
            method, "log" if rest else "watch" if "watch" in query else "list"
        )
        if verb == "log" and rest[1:] != ["log"]:
            verb = "get"
        if rest[1:] == ["eviction"]:
            verb = "evict"
        asked = "try" if "dryRun" in query else verb
        api.requests.append(Request(asked, resource, query, body))
        try:
            if self.headers.get("Authorization") != f"Bearer {api.token}":
                raise Refusal(401, "Unauthorized")
            if api.has_one(api.stalls, (verb, resource)):
                api.stall()
            refusal = api.refusals.get((verb, resource))
            if refusal and refusal.times > 0:
                refusal.times -= 1
                raise refusal
            loses = api.has_one(api.lost, (asked, resource))
            if (verb, resource) in api.odd:
                self._send(200, api.odd[verb, resource])
            elif verb == "watch":
                self._watch(api, resource, namespace, query)
            elif verb == "get":
                key = (resource, namespace, rest[0])
                if key not in api.objects():
                    raise Refusal(404, f'{resource} "{rest[0]}" not found', reason="NotFound")
                self._send_json(200, api.objects()[key])
            elif verb == "log":
                lines = api.logs[rest[0]].splitlines(keepends=True)
                self._send(200, "".join(lines[-int(query.get("tailLines", 0)) :]).encode())
            elif verb == "evict":
                api.evict(namespace, rest[0], body)
                self._send_json(201, {"kind": "Status", "status": "Success"})
            elif verb == "patch":
                manager = query.get("fieldManager", "")
                applies = "apply-patch" in self.headers.get("Content-Type", "")
                if applies and (resource, namespace, rest[0]) not in api.objects():
                    patched = api.put(resource, body)  # server-side apply creates what is missing
                else:
                    patched = api.patch(resource, rest[0], body, manager, namespace)
                if loses:
                    raise ConnectionResetError
                self._send_json(200, patched)
            elif verb == "create":
                created = api.create(resource, namespace, body, dry_run="dryRun" in query)
                if loses:
                    raise ConnectionResetError
                self._send_json(201, created)
            elif verb == "delete":
                api.delete(resource, namespace, rest[0], body)
                self._send_json(200, {"kind": "Status", "status": "Success"})
            elif verb == "deletecollection":
                api.delete_collection(resource, namespace, query, body)
                self._send_json(200, {"kind": "Status", "status": "Success"})
            else:
                self._send_json(200, api.list(resource, namespace, query))
        except Refusal as refusal:
            retry = {"Retry-After": refusal.retry_after} if refusal.retry_after else {}
            self._send_json(refusal.code, refusal.status(), retry)
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

    def _send_json(self, code: int, answer: Any, headers: Mapping[str, str] = _NONE) -> None:
        self._send(code, json.dumps(answer).encode(), headers)

    def _send(self, code: int, answer: bytes, headers: Mapping[str, str] = _NONE) -> None:
        self.send_response_only(code)
        for header in headers.items():
            self.send_header(*header)
        self.send_header("Date", formatdate(usegmt=True))
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        self.wfile.flush()

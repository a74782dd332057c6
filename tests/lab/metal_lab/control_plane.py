# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real control plane as plain processes: etcd, API server, controller manager, scheduler.

etcd listens on the laboratory's own loopback address, the others on the gateway of its network.
Parallel laboratories differ in addresses, not in ports.
"""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from metal_lab import pki
from metal_lab.processes import start, wait_until
from metal_lab.state import State

API_PORT = 6443
SERVICE_CIDR = "10.96.0.0/16"


def write_credentials(folder: Path, address: str) -> pki.Authority:
    """Write certificates and kubeconfigs to `folder`. Return the authority for the nodes."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = pki.Authority()
    (folder / "ca.crt").write_bytes(authority.certificate)
    hosts = [address, "127.0.0.1", "10.96.0.1", "kubernetes", "kubernetes.default.svc"]
    pki.write_pair(folder, "apiserver", authority.issue("kube-apiserver", hosts=hosts))
    pki.write_pair(
        folder,
        "apiserver-kubelet-client",
        authority.issue("kube-apiserver-kubelet-client", "system:masters"),
    )
    pki.write_pair(folder, "service-account", pki.service_account_keys())
    for name, user, group in (
        ("admin", "kubernetes-admin", "system:masters"),
        ("controller-manager", "system:kube-controller-manager", ""),
        ("scheduler", "system:kube-scheduler", ""),
    ):
        client = authority.issue(user, group)
        path = folder / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(pki.kubeconfig(server(address), authority.certificate, client))
    return authority


def server(address: str) -> str:
    return f"https://{address}:{API_PORT}"


def run(state: State, programs: Path) -> None:
    """Start everything and return when the API server answers /readyz.

    Each process is saved in `state` as soon as it runs, so that `down` finds it after a crash.
    """
    credentials, logs = state.folder / "pki", state.folder / "logs"
    address = state.gateway

    def run_program(name: str, command: Sequence[str | Path]) -> None:
        state.processes[name] = start(command, logs / f"{name}.log")
        state.save()

    def wait_for(name: str, url: str, trust: ssl.SSLContext | None = None) -> None:
        log = logs / f"{name}.log"
        wait_until(lambda: _answers(url, trust), name, state.processes[name], log)

    etcd_url = f"http://{state.loopback}:2379"
    etcd_peer = f"http://{state.loopback}:2380"
    run_program(
        "etcd",
        [
            "etcd",
            f"--data-dir={state.folder / 'etcd'}",
            "--unsafe-no-fsync",  # after a crash, the laboratory starts from scratch
            f"--listen-client-urls={etcd_url}",
            f"--advertise-client-urls={etcd_url}",
            f"--listen-peer-urls={etcd_peer}",
            f"--initial-advertise-peer-urls={etcd_peer}",
            f"--initial-cluster=default={etcd_peer}",
        ],
    )
    wait_for("etcd", f"{etcd_url}/health")
    run_program(
        "kube-apiserver",
        [
            programs / "kube-apiserver",
            f"--etcd-servers={etcd_url}",
            f"--bind-address={address}",
            f"--advertise-address={address}",
            f"--secure-port={API_PORT}",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            f"--client-ca-file={credentials / 'ca.crt'}",
            f"--tls-cert-file={credentials / 'apiserver.crt'}",
            f"--tls-private-key-file={credentials / 'apiserver.key'}",
            f"--kubelet-client-certificate={credentials / 'apiserver-kubelet-client.crt'}",
            f"--kubelet-client-key={credentials / 'apiserver-kubelet-client.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={credentials / 'service-account.crt'}",
            f"--service-account-signing-key-file={credentials / 'service-account.key'}",
        ],
    )
    trust = ssl.create_default_context(cafile=str(credentials / "ca.crt"))
    wait_for("kube-apiserver", f"{server(address)}/readyz", trust)
    service_accounts = [
        "--use-service-account-credentials=true",
        f"--root-ca-file={credentials / 'ca.crt'}",
        f"--service-account-private-key-file={credentials / 'service-account.key'}",
    ]
    for name, options in (
        ("kube-controller-manager", service_accounts),
        ("kube-scheduler", []),
    ):
        kubeconfig = credentials / f"{name.removeprefix('kube-')}.kubeconfig"
        run_program(
            name,
            [
                programs / name,
                f"--kubeconfig={kubeconfig}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
                f"--bind-address={address}",
                "--leader-elect=false",
                *options,
            ],
        )


def _answers(url: str, trust: ssl.SSLContext | None = None) -> bool:
    """Return whether `url` answers 200, without a proxy."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if trust:
        handlers.append(urllib.request.HTTPSHandler(context=trust))
    opener: Callable[..., object] = urllib.request.build_opener(*handlers).open
    try:
        opener(url, timeout=2)
    except (urllib.error.URLError, OSError):
        return False
    return True

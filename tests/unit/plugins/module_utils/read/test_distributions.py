# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import distributions, tools

RECORDED = yaml.safe_load(
    (Path(__file__).parents[4] / "recorded" / "distributions.yml").read_text()
)


ACTIVE = {"LoadState": "loaded", "ActiveState": "active"}
STOPPED = {"LoadState": "loaded", "ActiveState": "inactive"}
K3S = {"name": "k3s", "unit": "k3s-agent.service"}


def starts(command: str) -> dict[str, str]:
    """Return what `systemctl show` has of a command."""
    path = f"/usr/local/bin/{command}"
    return {"ExecStart": f"{{ path={path.split()[0]} ; argv[]={path} ; ignore_errors=no ; }}"}


@pytest.mark.parametrize(
    ("units", "has_kubelet", "expected"),
    [
        pytest.param({"k3s-agent.service": ACTIVE}, False, K3S, id="runs"),
        pytest.param({"k3s-agent.service": STOPPED}, False, K3S, id="stopped"),
        pytest.param({"k3s-agent.service": STOPPED}, True, None, id="left over"),
        pytest.param(
            {"k3s-agent.service": ACTIVE, "kubelet.service": STOPPED},
            True,
            K3S,
            id="a kubelet left",
        ),
        pytest.param(
            {"k3s-agent.service": ACTIVE, "kubelet.service": ACTIVE}, True, None, id="both run"
        ),
        pytest.param(
            {"k3s.service": STOPPED, "k3s-agent.service": ACTIVE},
            False,
            K3S,
            id="the one that runs",
        ),
        pytest.param(
            {"k3s-gpu.service": {**ACTIVE, **starts("k3s agent --docker")}},
            False,
            {"name": "k3s", "unit": "k3s-gpu.service"},
            id="another name",
        ),
        pytest.param(
            {"k3s-backup.service": {**ACTIVE, **starts("k3s etcd-snapshot save")}},
            False,
            None,
            id="starts something else of k3s",
        ),
        pytest.param(
            {"k3s-sync.service": {**ACTIVE, **starts("rsync server")}},
            False,
            None,
            id="starts another program",
        ),
        pytest.param({"k3s-sync.service": ACTIVE}, False, None, id="starts nothing"),
        pytest.param({"k3s.service": {"LoadState": "not-found"}}, False, None, id="none"),
        pytest.param({}, False, None, id="no systemd"),
    ],
)
def test_distribution(units, has_kubelet, expected):
    assert distributions.distribution(units, "kubelet.service", has_kubelet=has_kubelet) == expected


@pytest.mark.parametrize("home", distributions.HOMES, ids=lambda home: home.name)
def test_homes_are_recorded(home):
    rows = {row["what"]: row["value"] for row in RECORDED["homes"][home.name]}
    found = {name: getattr(home, name) for name in rows}
    as_lists = {name: [*one] if isinstance(one, tuple) else one for name, one in found.items()}
    assert as_lists == rows


def test_marks_of_tools_are_recorded():
    assert {row["what"]: row["value"] for row in RECORDED["marks"]} == tools.MARKS


def test_rows_name_their_sources():
    rows = [*RECORDED["behaviour"], *RECORDED["marks"], *chain(*RECORDED["homes"].values())]
    for row in rows:
        for name in row["source"].split(", "):
            assert name in RECORDED["sources"] or "#" in name, row


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("# k0s_managed=true\nversion = 3\n", True, id="its own"),
        pytest.param(None, True, id="not there yet"),
        pytest.param("version = 3\n", False, id="the admin's"),
        pytest.param("# k0s_managed=true # no\n", False, id="another line"),
    ],
)
def test_k0s_marks_the_file_that_it_generates(text, expected):
    assert distributions.manages(distributions.home_of("k0sworker.service"), text) is expected


@pytest.mark.parametrize(
    ("unit", "config", "expected"),
    [
        (
            "k3s.service",
            "/persist/k3s/agent/etc/containerd/config.toml",
            "/persist/k3s/agent/kubelet.kubeconfig",
        ),
        ("k0sworker.service", "/etc/k0s/containerd.toml", "/var/lib/k0s/kubelet.conf"),
        ("k3s.service", "/elsewhere.toml", "/var/lib/rancher/k3s/agent/kubelet.kubeconfig"),
    ],
)
def test_kubeconfig_moves_with_the_data(unit, config, expected):
    assert distributions.kubeconfig(distributions.home_of(unit), config) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("runtime-endpoint: unix:///run/k3s/cri-dockerd/cri-dockerd.sock\n", "cri-dockerd"),
        ("image-endpoint: x\nruntime-endpoint: 'unix:///run/crio/crio.sock' # x\n", "crio"),
        ("# runtime-endpoint: unix:///run/crio/crio.sock\n", None),
        ("timeout: 2\n", None),
        ("", None),
    ],
)
def test_the_file_for_crictl_names_the_engine(text, expected):
    found = distributions.parse_crictl(text)
    assert found is None if expected is None else f"/{expected}.sock" in found


def test_the_file_for_crictl_moves_with_the_data():
    home = distributions.home_of("k3s.service")
    moved = "/persist/k3s/agent/etc/containerd/config.toml"
    assert distributions.crictl(home, moved) == "/persist/k3s/agent/etc/crictl.yaml"
    assert distributions.crictl(home, home.config) == home.crictl


def test_kubelets_in_snaps_are_known() -> None:
    assert [row["unit"] for row in RECORDED["unsupported"]] == [*distributions.UNSUPPORTED]
    for unit in distributions.UNSUPPORTED:
        found = distributions.distribution({unit: ACTIVE}, "kubelet.service", has_kubelet=False)
        assert found is not None
        assert distributions.home_of(found["unit"]) is None

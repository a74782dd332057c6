# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secrets that a node may have, in every file, flag and answer that the module looks at."""

from __future__ import annotations

import json

import pytest

from ansible_collections.metal.gpu.plugins.modules import node_info
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import interpret
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.history import History, remember
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant_services

SECRET = "hunter2"
PROXY = f"http://admin:{SECRET}@proxy.example:3128"
STATE = "/var/lib/metal-gpu/config_document/%2Fetc%2Fdocker%2Fdaemon.json@metal.gpu.docker_ce.json"
DAEMON_JSON = json.dumps({"proxies": {"http-proxy": PROXY}, "registry-mirrors": [PROXY]})
CONFIG_TOML = f"""
version = 3
[plugins."io.containerd.cri.v1.images".registry.configs."registry.example".auth]
username = "admin"
password = "{SECRET}"
"""
KUBELET_YAML = f"staticPodURLHeader:\n  Authorization: [Basic {SECRET}]\n"
KUBELET_UNIT = f"""
[Service]
Environment=HTTPS_PROXY={PROXY} EXTRA=--cloud-config-token={SECRET}
EnvironmentFile=-/etc/default/kubelet
ExecStart=/usr/bin/kubelet --config=/k.yaml --config-dir=/k.d $EXTRA --runtime-token {SECRET}
"""
DOCKER_UNIT = f"[Service]\nExecStart=/usr/bin/dockerd --registry-mirror={PROXY} -H fd://\n"

# Read on the node; of these, nothing but names of flags leaves it.
STAY = {
    "/etc/systemd/system/kubelet.service": KUBELET_UNIT,
    "/etc/systemd/system/docker.service": DOCKER_UNIT,
    "/etc/systemd/system/containerd.service.d/http-proxy.conf": (
        f"[Service]\nEnvironment=HTTP_PROXY={PROXY}\n"
    ),
    "/etc/default/kubelet": f"EXTRA=--cloud-token={SECRET}\n",
    "/etc/sysconfig/kubelet": f"KUBELET_EXTRA_ARGS=--token={SECRET}\n",
    "/var/lib/kubelet/kubeadm-flags.env": f"KUBELET_KUBEADM_ARGS=--image=x:{SECRET}\n",
    "/etc/kubernetes/kubelet.conf": f"users:\n- user:\n    token: {SECRET}\n",
    "/var/lib/kubelet/pki/kubelet-client-current.pem": (
        f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}\n-----END EC PRIVATE KEY-----\n"
    ),
    "/etc/apt/auth.conf.d/mirror.conf": f"machine m login admin password {SECRET}\n",
    "/etc/apt/sources.list": f"deb {PROXY}/debian bookworm main\n",
    "/proc/77/cmdline": "/usr/bin/kubelet\n--config=/k.yaml\n--config-dir=/k.d\n"
    f"--secret-of-the-admin={SECRET}\n-x\n{SECRET}\n",
}
AUTH = "YWRtaW46aHVudGVyMg=="  # the secret, as logins have it
LOGINS = json.dumps({"auths": {"nvcr.io": {"auth": AUTH, "password": SECRET}}})
REGISTRIES_STATE = STATE.replace("docker_ce", "registries")

# Carried to the controller, whose parsers they need.
TRAVEL = {
    "/var/lib/kubelet/config.json": LOGINS,
    "/root/.docker/config.json": LOGINS[:-1],  # does not parse
    "/etc/containerd/certs.d/nvcr.io/hosts.toml": (
        f'[host."https://m".header]\nAuthorization = "Basic {AUTH}"\nX = "{SECRET}"\n'
        f'[host."https://me:{SECRET}@m"]\nskip_verify = true\n'
    ),
    "/etc/rancher/k3s/registries.yaml": f"configs: {{m: {{auth: {{password: {SECRET}}}}}}}\n",
    "/etc/docker/certs.d/m/metal-gpu.key": (
        "# BEGIN managed by Ansible, role metal.gpu.registries\n-----BEGIN PRIVATE KEY-----\n"
        f"{SECRET}\n-----END PRIVATE KEY-----\n"
        "# END managed by Ansible, role metal.gpu.registries\n"
    ),
    REGISTRIES_STATE: remember(History(original=LOGINS, written="{}", before=LOGINS)),
    "/etc/docker/daemon.json": DAEMON_JSON,
    "/etc/containerd/config.toml": CONFIG_TOML,
    "/etc/crio/crio.conf": f'[crio.image]\nglobal_auth_file = "/a"\npassword = "{SECRET}"\n',
    "/etc/crio/crio.conf.d/10.conf": f'[crio]\ntoken = "{SECRET}\n',  # does not parse
    "/k.yaml": KUBELET_YAML,
    "/k.d/10.conf": f"password: {SECRET}: x\n",  # does not parse
    "/etc/cdi/site.yaml": f'containerEdits: {{env: ["API_TOKEN={SECRET}"]}}\n',
    "/etc/modprobe.d/x.conf": f"# {PROXY}\nblacklist nouveau\n",
    "/etc/apt/sources.list.d/metal-gpu-docker.sources": (
        f"X-Repolib-Name: metal-gpu-docker\nTypes: deb\nURIs: {PROXY}/docker\n"
        f"Suites: bookworm\nComponents: stable\nPassword: {SECRET}\n"
    ),
    "/etc/yum.repos.d/metal-gpu-toolkit.repo": (
        f"[metal-gpu-toolkit]\nbaseurl={PROXY}/toolkit\nusername=admin\npassword={SECRET}\n"
        f"proxy={PROXY}\nproxy_password={SECRET}\n"
    ),
    STATE: remember(History(original=DAEMON_JSON, written="{}", before=DAEMON_JSON)),
}
SHOW = f"""
Id=kubelet.service
LoadState=loaded
ActiveState=active
Result=exit-code
MainPID=77
ControlGroup=/system.slice/kubelet.service
Environment=HTTPS_PROXY={PROXY}
ExecStart={{ path=/usr/bin/kubelet ; argv[]=/usr/bin/kubelet --x={SECRET} ; ignore_errors=no }}

Id=docker.service
LoadState=loaded
ActiveState=failed
Environment=HTTPS_PROXY={PROXY}
ExecStart={{ path=/bin/dockerd ; argv[]=/bin/dockerd --label={SECRET} ; ignore_errors=no }}
"""
ANSWERS = {
    "systemctl show": (0, SHOW, ""),
    "kubelet --version": (1, "", f"cannot reach {PROXY}\n"),
    "journalctl": (0, "", ""),
    "containerd --version": (0, "containerd 2.4.2\n", ""),
    "containerd --config": (1, "", f'containerd: bad "password = {SECRET}" in {PROXY}\n'),
    "dockerd --version": (1, "", f"Authorization: Bearer {SECRET}\n"),
    "docker info": (0, json.dumps({"ServerVersion": "29.8.1", "HttpProxy": PROXY}), ""),
    "docker ps": (0, "", ""),
    "crio --version": (1, f"--auth-token={SECRET}\n", ""),
    "crio status": (0, f'password = "{SECRET}"\n', ""),
    "nvidia-smi": (9, f"no NVML, see {PROXY}\n", ""),
}


@pytest.fixture
def raw(tmp_path):
    plant_services(tmp_path, {**STAY, **TRAVEL})
    programs = Programs(ANSWERS)
    node = node_info.Node(tmp_path, programs.run, programs.find)
    handed_over = node_info.run(node, [], ["metal-gpu-*"])["raw"]
    handed_over["values"]["packages"]["lock"] = {
        "path": "/var/lib/dpkg/lock",
        "pid": 1,
        "command": f"apt-get -o Acquire::http::Proxy={PROXY} update",
    }
    return json.loads(json.dumps(handed_over))


def test_nothing_secret_is_in_the_result(raw):
    node = interpret(raw)
    shown = json.dumps(node)
    assert SECRET not in shown
    assert AUTH not in shown
    # What is shown instead still says what it is about.
    assert "--secret-of-the-admin" in shown
    assert "--registry-mirror" in shown
    assert set(node["repositories"]) == {"metal-gpu-docker", "metal-gpu-toolkit"}
    assert any(source["credentials"] for source in node["package_sources"])
    assert "proxy.example:3128" in node["kubelet"]["version_error"]
    assert "proxy.example:3128" in node["nvml"]["failure"]["message"]


def test_units_environments_and_kubeconfigs_stay_on_the_node(raw):
    del raw["outputs"], raw["values"]["packages"]
    assert set(STAY) & set(raw["texts"]) == set()
    assert set(TRAVEL) <= set(raw["texts"])
    del raw["texts"]
    assert SECRET not in json.dumps(raw)

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ansible_collections.metal.gpu.plugins.module_utils.cluster import kube_settings
from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import (
    explain_error,
    no_answer,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import (
    ApiUnauthorised,
    ApiUntrusted,
)
from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer

pytestmark = pytest.mark.usefixtures("own_settings")
NO_OPTIONS = dict.fromkeys(kube_settings.AUTH_ARGUMENTS)


def connect(**options):
    return kube_settings.connect({**NO_OPTIONS, **options})


def names(client):
    return list(client.snapshot("nodes", lambda node: True))


def kubeconfig(url, token=ApiServer.token, **cluster):
    def context(name, user):
        return {"name": name, "context": {"cluster": "lab", "user": user}}

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "admin",
        "clusters": [{"name": "lab", "cluster": {"server": url, **cluster}}],
        "contexts": [context("admin", "admin"), context("stranger", "stranger")],
        "users": [
            {"name": "admin", "user": {"token": token}},
            {"name": "stranger", "user": {"token": "wrong"}},
        ],
    }


@pytest.fixture
def cluster(api):
    api.put("nodes", {"metadata": {"name": "gpu-1"}})
    return api


@pytest.fixture
def path(cluster, tmp_path):
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(kubeconfig(cluster.url)))
    return str(file)


def test_kubeconfig_by_path(path):
    assert names(connect(kubeconfig=path)) == ["gpu-1"]


def test_kubeconfig_by_content(cluster):
    assert names(connect(kubeconfig=kubeconfig(cluster.url))) == ["gpu-1"]


def test_kubeconfig_by_default(path, monkeypatch):
    monkeypatch.setattr("kubernetes.config.KUBE_CONFIG_DEFAULT_LOCATION", path)
    assert names(connect()) == ["gpu-1"]


def test_context(path):
    with pytest.raises(ApiUnauthorised, match=f"from the kubeconfig {path}, context stranger"):
        names(connect(kubeconfig=path, context="stranger"))


def test_options_replace_what_the_kubeconfig_says(path, cluster):
    wrong = kubeconfig("https://elsewhere.example", token="wrong")
    options = {"host": f"{cluster.url}/", "api_key": ApiServer.token}
    assert names(connect(kubeconfig=wrong, **options)) == ["gpu-1"]


def test_complete_options_need_no_kubeconfig(cluster):
    assert names(connect(host=cluster.url, api_key=ApiServer.token)) == ["gpu-1"]


def test_service_account_of_the_pod(cluster, tmp_path, monkeypatch):
    folder = "kubernetes.config.incluster_config"
    for name, text in (("TOKEN", ApiServer.token), ("CERT", "a certificate")):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(f"{folder}.SERVICE_{name}_FILENAME", str(tmp_path / name))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert connect().url == "https://10.96.0.1:443"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "The kubeconfig {path} does not exist. Set", id="none"),
        pytest.param(
            "", "The kubeconfig {path}: Invalid kube-config. {path} file is empty", id="empty"
        ),
        pytest.param("a: [", "The kubeconfig {path} is not valid: while parsing", id="no-yaml"),
        pytest.param("text", "The kubeconfig {path} is not valid: ", id="no-mapping"),
        pytest.param(
            "{}", "The kubeconfig {path}: Invalid kube-config file. Expected key ", id="keys"
        ),
        pytest.param(
            json.dumps({**kubeconfig("https://a.example"), "current-context": "gone"}),
            "The kubeconfig {path}: Invalid kube-config file. Expected object with name gone in ",
            id="context",
        ),
        pytest.param(
            json.dumps(kubeconfig("10.0.0.1:6443")),
            "The address of the API server, '10.0.0.1:6443', is not a URL such as ",
            id="no-url",
        ),
        pytest.param(
            json.dumps(kubeconfig("https://a.example", **{"certificate-authority": "/none/ca"})),
            "The kubeconfig {path}: File does not exist: /none/ca",
            id="no-ca-file",
        ),
    ],
)
def test_invalid_kubeconfig(tmp_path, content, message):
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    with pytest.raises(kube_settings.SettingsInvalid) as caught:
        connect(kubeconfig=str(file))
    assert str(caught.value).startswith(message.format(path=file))


@pytest.mark.parametrize("inline", [False, True], ids=["by-path", "by-content"])
def test_unknown_context(cluster, path, inline):
    config = kubeconfig(cluster.url) if inline else path
    with pytest.raises(kube_settings.SettingsInvalid) as caught:
        connect(kubeconfig=config, context="prod")
    assert str(caught.value).endswith(" has no context 'prod'. Its contexts: admin, stranger.")


def test_path_with_spaces(cluster, tmp_path):
    folder = tmp_path / "my clusters"
    folder.mkdir()
    (folder / "lab 1").write_text(json.dumps(kubeconfig(cluster.url)))
    assert names(connect(kubeconfig=str(folder / "lab 1"))) == ["gpu-1"]


def test_certificates_are_looked_for_beside_the_kubeconfig(tls_cluster, pki, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = pki / "beside"
    folder.mkdir()
    config = kubeconfig(tls_cluster.url, **{"certificate-authority": "../right.crt"})
    (folder / "config").write_text(json.dumps(config))
    assert names(connect(kubeconfig=str(folder / "config"))) == ["gpu-1"]


def several(tmp_path, *documents):
    """Return the list of paths of several kubeconfigs, one of which is not there."""
    paths = [tmp_path / "gone"]
    for number, document in enumerate(documents):
        paths.append(tmp_path / f"config-{number}")
        paths[-1].write_text(json.dumps(document))
    return ":".join(map(str, paths))


def test_several_files_are_one(cluster, tmp_path):
    whole = kubeconfig(cluster.url)
    parts = [{key: whole[key]} for key in ("users", "contexts", "clusters")]
    paths = several(tmp_path, *parts, {"current-context": "admin"})
    assert names(connect(kubeconfig=paths)) == ["gpu-1"]


@pytest.mark.parametrize(
    ("second", "context", "refused"),
    [
        pytest.param("admin", None, False, id="agree"),
        pytest.param("", None, False, id="empty"),
        pytest.param("stranger", None, True, id="differ"),
        pytest.param("stranger", "admin", False, id="chosen"),
    ],
)
def test_files_that_choose_two_contexts(cluster, tmp_path, second, context, refused):
    """kubectl uses the first one, the library the last. The wrong cluster must not change."""
    config = kubeconfig(cluster.url)
    paths = several(tmp_path, config, {**config, "current-context": second})
    if not refused:
        assert names(connect(kubeconfig=paths, context=context or "admin")) == ["gpu-1"]
        return
    with pytest.raises(kube_settings.SettingsInvalid) as caught:
        connect(kubeconfig=paths, context=context)
    assert "has several current contexts: admin, stranger. kubectl uses the" in str(caught.value)


API = "client.authentication.k8s.io/v1"


def with_plugin(url, command, **user):
    config = kubeconfig(url)
    hint = {"installHint": "pip install it"}
    plugin = {"apiVersion": API, "command": str(command), "interactiveMode": "Never", **hint}
    config["users"][0]["user"] = {"exec": plugin, **user}
    return config


def program(folder, *lines):
    path = folder / "plugin"
    path.write_text("\n".join(["#!/bin/sh", *lines]))
    path.chmod(0o755)
    return path


def answer(version=API, **status):
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    return f"echo '{json.dumps(credential)}'"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        pytest.param(None, "No such file or directory: ", id="not installed"),
        pytest.param(
            ["echo log in first >&2", "exit 7"],
            "exec: process returned 7. log in first", id="fails",
        ),
        pytest.param(["echo hello"], "exec: failed to decode process output", id="no JSON"),
        pytest.param([answer()], "exec: missing token or clientCertificateData", id="no token"),
        pytest.param(
            [answer(clientCertificateData="x")], "exec: missing clientKeyData", id="no key"
        ),
        pytest.param(
            [answer("client.authentication.k8s.io/v1alpha1", token="x")],
            "does not match client.authentication.k8s.io/v1", id="other version",
        ),
    ],
)  # fmt: skip
def test_a_plugin_without_credentials_stops_before_any_request(
    cluster, tmp_path, capfd, lines, said
):
    """The library continues as an anonymous user, which the server does not let list nodes."""
    path = tmp_path / "plugin" if lines is None else program(tmp_path, *lines)
    with pytest.raises(kube_settings.SettingsInvalid) as caught:
        connect(kubeconfig=with_plugin(cluster.url, path))
    message = str(caught.value)
    assert message.startswith(f"The credential plugin '{path}' of the kubeconfig in the options")
    assert said in message
    assert message.endswith("(installHint: pip install it)")
    assert cluster.requests == []
    assert capfd.readouterr().err == ""
    finding = explain_error(message, "cluster", "CLUSTER_UNUSABLE")
    assert finding["code"] == "CLUSTER_PLUGIN_FAILED"
    assert f"the credential plugin {path} of the kubeconfig" in finding["message"]
    assert said in finding["message"]
    assert finding["remedy"].endswith("the kubeconfig gives this hint: pip install it")


def test_without_a_kubeconfig_no_server_is_blamed(tmp_path):
    with pytest.raises(kube_settings.SettingsInvalid) as caught:
        connect(kubeconfig=str(tmp_path / "gone"))
    found = no_answer(str(caught.value))
    assert found["code"] == "CLUSTER_UNUSABLE"
    assert found["message"] == f"cluster: no kubeconfig: {tmp_path}/gone does not exist"
    assert found["remedy"].startswith("set metal_gpu_kubeconfig in inventory.yml, or ")
    other = no_answer("The kubeconfig /a: Invalid kube-config. File does not exist: /b")
    assert other["message"].startswith("cluster: the API server gave no usable answer: The kube")
    assert other["remedy"].startswith("run `kubectl get nodes`")


def test_a_plugin_with_credentials(cluster, tmp_path):
    path = program(tmp_path, answer(token=ApiServer.token))
    assert names(connect(kubeconfig=with_plugin(cluster.url, path))) == ["gpu-1"]


def test_an_unused_plugin_does_not_matter(cluster, tmp_path):
    config = with_plugin(cluster.url, tmp_path / "gone", token=ApiServer.token)
    assert names(connect(kubeconfig=config)) == ["gpu-1"]


def test_what_a_plugin_says_shows_no_secret(cluster, tmp_path):
    path = program(tmp_path, "echo https://eve:hunter2@proxy.example refused >&2", "exit 1")
    with pytest.raises(kube_settings.SettingsInvalid) as caught:
        connect(kubeconfig=with_plugin(cluster.url, path))
    assert "proxy.example refused" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_missing_file_of_an_option():
    with pytest.raises(kube_settings.SettingsInvalid, match="ca_cert: file /none does not exist"):
        connect(host="https://a.example", api_key="x", ca_cert="/none")


def test_secrets_are_found_wherever_they_are():
    config = kubeconfig("https://a.example", token="s3cret")
    config["users"].append({"name": "b", "user": {"client-key-data": "a2V5", "token": ["x"]}})
    assert sorted(kube_settings.secrets(config)) == ["a2V5", "s3cret", "wrong"]
    assert list(kube_settings.secrets("/path/to/kubeconfig")) == []


def certificate(subject, key, issuer, issuer_key, *extensions):
    def name(text):
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    # Python 3.13 insists on these two.
    own, issuers = key.public_key(), issuer_key.public_key()
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(own), critical=False
    ).add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuers), critical=False)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """Two certificate authorities of the same name, and a server certificate of the right one."""
    folder = tmp_path_factory.mktemp("pki")
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("right", "wrong", "server")}
    for name in ("right", "wrong"):
        is_ca = x509.BasicConstraints(ca=True, path_length=None)
        usage = x509.KeyUsage(*(field == 5 for field in range(9)))  # keyCertSign
        pem = certificate("ca", keys[name], "ca", keys[name], is_ca, usage)
        (folder / f"{name}.crt").write_bytes(pem)
    local = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    pem = certificate("server", keys["server"], "ca", keys["right"], local)
    (folder / "server.crt").write_bytes(pem)
    (folder / "server.key").write_bytes(
        keys["server"].private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder


@pytest.fixture
def tls_cluster(pki):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    with ApiServer(context) as server:
        server.put("nodes", {"metadata": {"name": "gpu-1"}})
        yield server


@pytest.mark.parametrize(
    "options", [{"ca_cert": "right"}, {"ca_cert": "wrong", "validate_certs": False}]
)
def test_trusted(tls_cluster, pki, options):
    options = {**options, "ca_cert": str(pki / f"{options['ca_cert']}.crt")}
    client = connect(host=tls_cluster.url, api_key=ApiServer.token, **options)
    assert names(client) == ["gpu-1"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param({"ca_cert": "wrong.crt"}, "unable to get local issuer", id="wrong-ca"),
        pytest.param({}, "unable to get local issuer certificate", id="unknown-ca"),
        pytest.param(
            {"host": ("127.0.0.1", "localhost"), "ca_cert": "right.crt"},
            "Hostname mismatch, certificate is not valid for 'localhost'",
            id="wrong-name",
        ),
    ],
)
def test_untrusted(tls_cluster, pki, change, found):
    options = {"host": tls_cluster.url.replace(*change.get("host", ("", "")))}
    if "ca_cert" in change:
        options["ca_cert"] = str(pki / change["ca_cert"])
    client = connect(api_key=ApiServer.token, **options)
    with pytest.raises(ApiUntrusted) as caught:
        names(client)
    assert f"TLS with the API server {options['host']} failed: {found}" in str(caught.value)
    assert "Set ca_cert, or certificate-authority in the kubeconfig" in str(caught.value)


def test_tls_where_there_is_none(cluster):
    client = connect(host=cluster.url.replace("http:", "https:"), api_key=ApiServer.token)
    with pytest.raises(ApiUntrusted, match=r"(?i)wrong.version.number|record layer failure"):
        names(client)

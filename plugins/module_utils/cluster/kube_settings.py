# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Make a client of the Kubernetes API from module options, which have kubernetes.core's meanings.

`connect` reads kubeconfig files, and may run their credential plugins.

Source: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
"""

from __future__ import annotations

import logging
import os
import re
import traceback
from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import quote
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import (
    NO_FILE,
    KubeError,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Settings
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

try:
    import kubernetes.client
    import kubernetes.config
    import urllib3
    import yaml

    IMPORT_ERROR = None
except ImportError:
    IMPORT_ERROR = traceback.format_exc()

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


def _from_environment(*names: str) -> str:
    """Return the value of the first of these environment variables that is set."""
    # Only a module asks. The Python library also reads these settings, and works without Ansible.
    from ansible.module_utils.basic import env_fallback

    return str(env_fallback(*names))


def _option(kind: str, *names: str, **more: Any) -> dict[str, Any]:
    """Return an option, and the environment variables that set it."""
    variables = [f"K8S_AUTH_{name}" for name in names]
    return {"type": kind, "fallback": (_from_environment, variables), **more}


# Names, aliases and environment variables are those of the collection kubernetes.core.
AUTH_ARGUMENTS: dict[str, Any] = {
    "kubeconfig": _option("raw", "KUBECONFIG"),
    "context": _option("str", "CONTEXT"),
    "host": _option("str", "HOST"),
    "api_key": _option("str", "API_KEY", no_log=True),
    "ca_cert": _option("path", "CA_CERT", "SSL_CA_CERT", aliases=["ssl_ca_cert"]),
    "client_cert": _option("path", "CLIENT_CERT", "CERT_FILE", aliases=["cert_file"]),
    # The path, not the key.
    "client_key": _option("path", "CLIENT_KEY", "KEY_FILE", aliases=["key_file"], no_log=False),
    "validate_certs": _option("bool", "VALIDATE_CERTS", "VERIFY_SSL", aliases=["verify_ssl"]),
}

_SECRETS = {"token", "password", "client-key-data", "access-token", "refresh-token", "id-token"}


class SettingsInvalid(KubeError):
    """The settings are unusable: the kubeconfig is missing or invalid, or lacks the context."""


def connect(options: Mapping[str, Any]) -> Client:
    """Return a client for the options named in AUTH_ARGUMENTS. Raises SettingsInvalid.

    The order is that of kubernetes.core: complete credentials in the options; else kubeconfig or
    context; else the service account of the pod this runs in; else the default kubeconfig. Other
    options then override single settings.
    """
    configuration = kubernetes.client.Configuration()
    configuration.keep_alive = True  # a watch is silent for minutes
    if options["host"] and (
        options["api_key"] or (options["client_cert"] and options["client_key"])
    ):
        source = "from the module's options"
    elif options["kubeconfig"] or options["context"] or not _load_service_account(configuration):
        source = _load_kubeconfig(configuration, options["kubeconfig"], options["context"])
    else:
        source = "from the service account of this pod"

    if options["api_key"]:
        configuration.api_key = {"authorization": f"Bearer {options['api_key']}"}
        configuration.refresh_api_key_hook = None
    for option, attribute in (
        ("host", "host"),
        ("ca_cert", "ssl_ca_cert"),
        ("client_cert", "cert_file"),
        ("client_key", "key_file"),
        ("validate_certs", "verify_ssl"),
    ):
        value = options[option]
        if value is None:
            continue
        if AUTH_ARGUMENTS[option]["type"] == "path" and not os.path.isfile(value):
            raise SettingsInvalid(f"{option}: file {value} does not exist")
        setattr(configuration, attribute, value)

    if not configuration.host.startswith(("https://", "http://")):
        raise SettingsInvalid(
            f"The address of the API server, {configuration.host!r}, is not a URL such as "
            f"https://10.0.0.1:6443 ({source})."
        )
    if not configuration.verify_ssl:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return Client(Settings(configuration, source))


def _load_service_account(configuration: Any) -> bool:
    library: Any = kubernetes.config
    try:
        library.load_incluster_config(client_configuration=configuration)
    except kubernetes.config.ConfigException:
        return False
    return True


def _load_kubeconfig(configuration: Any, kubeconfig: Any, context: str | None) -> str:
    """Read a kubeconfig, given as paths or as content; return its source for messages."""
    inline = isinstance(kubeconfig, dict)
    paths = "" if inline else str(kubeconfig or kubernetes.config.KUBE_CONFIG_DEFAULT_LOCATION)
    place = "kubeconfig in the options" if inline else f"kubeconfig {paths}"
    source = f"from the {place}, {f'context {context}' if context else 'current context'}"
    documents = [kubeconfig] if inline else _read_documents(paths, place)
    if not documents:
        raise SettingsInvalid(
            f"The kubeconfig {paths} {NO_FILE}. Set the environment variable KUBECONFIG or "
            "K8S_AUTH_KUBECONFIG, or name the file: by metal_gpu_kubeconfig in the inventory, "
            "--kubeconfig of the command, or the option kubeconfig of a module."
        )
    _refuse_two_contexts(documents, context, place)
    arguments = {
        "context": context,
        "client_configuration": configuration,
        "persist_config": False,
    }
    library: Any = kubernetes.config
    complaints = _Complaints()
    try:
        with complaints:
            if inline:
                library.load_kube_config_from_dict(kubeconfig, **arguments)
            else:
                library.load_kube_config(paths, **arguments)
    except kubernetes.config.ConfigException as error:
        contexts = [name for document in documents for name in _names(document, "contexts")]
        if context and contexts and context not in contexts:
            raise SettingsInvalid(
                f"The {place} has no context {context!r}. Its contexts: {', '.join(contexts)}."
            ) from error
        raise SettingsInvalid(f"The {place}: {error}") from error
    except (yaml.YAMLError, OSError, ValueError, TypeError, AttributeError) as error:
        # The library does not check types in a malformed file.
        raise SettingsInvalid(f"The {place} is not valid: {error}") from error
    _refuse_plugin(configuration, documents, context, place, complaints.texts)
    return source


def _read_documents(paths: str, place: str) -> list[Any]:
    """Return the content of the files that exist."""
    documents = []
    for path in map(os.path.expanduser, paths.split(os.pathsep)):
        if os.path.isfile(path):
            try:
                with open(path, encoding="utf-8") as file:
                    documents.append(yaml.safe_load(file))
            except (yaml.YAMLError, OSError, ValueError) as error:
                raise SettingsInvalid(f"The {place} is not valid: {error}") from error
    return documents


def parse_yaml(content: str) -> Any:
    """Parse a document of a ConfigMap; None if it is not YAML."""
    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, ValueError):
        return None


def _refuse_two_contexts(documents: Iterable[Any], context: str | None, place: str) -> None:
    """Refuse files with different current contexts.

    kubectl uses the first one. The Python client, which kubernetes.core uses as well, uses the
    last one. So `kubectl get nodes` would show another cluster than the one to change.
    """
    names = [section(document).get("current-context") for document in documents]
    found = list(dict.fromkeys(str(name) for name in names if name))
    if context is None and len(found) > 1:
        raise SettingsInvalid(
            f"The {place} has several current contexts: {', '.join(found)}. kubectl uses the "
            "first, but Ansible's modules use the last. Set the option context or the environment "
            "variable K8S_AUTH_CONTEXT."
        )


def _refuse_plugin(
    configuration: Any,
    documents: Iterable[Any],
    context: str | None,
    place: str,
    complaints: Iterable[str],
) -> None:
    """Refuse to continue without credentials.

    The library would only log why it got none, and send anonymous requests.
    """
    plugin = section(_find_user(list(documents), context), "exec")
    if not plugin or configuration.api_key or configuration.cert_file:
        return
    words = (re.sub(r"^\[Errno \d+\] ", "", text) for text in complaints)
    why = quote("; ".join(words)) or "it returned neither a token nor a certificate"
    hint = quote(str(plugin.get("installHint") or ""))
    raise SettingsInvalid(
        f"The credential plugin {str(plugin.get('command'))!r} of the {place} returned no "
        f"credentials: {why}{f' (installHint: {hint})' if hint else ''}"
    )


def _find_user(documents: Sequence[Any], context: str | None) -> Mapping[str, Any]:
    """Return the user of a context. Of two entries with the same name, the first counts."""
    names = [section(document).get("current-context") for document in documents]
    name = context or next((name for name in reversed(names) if name), None)
    chosen = _find(documents, "contexts", "context", name)
    return _find(documents, "users", "user", chosen.get("user"))


def _find(documents: Iterable[Any], kind: str, field: str, name: Any) -> Mapping[str, Any]:
    for document in documents:
        for row in _rows(document, kind):
            if row.get("name") == name:
                return section(row, field)
    return {}


def _rows(document: Any, kind: str) -> list[Mapping[str, Any]]:
    rows = section(document).get(kind)
    return [section(row) for row in rows] if isinstance(rows, list) else []


def _names(document: Any, kind: str) -> list[str]:
    return [str(row.get("name")) for row in _rows(document, kind)]


class _Complaints(logging.Handler):
    """Collects the library's log, and keeps it out of stderr, which Ansible would show."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def __enter__(self) -> None:
        logging.getLogger().addHandler(self)

    def __exit__(self, *_error: object) -> None:
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def secrets(data: Any) -> Iterator[str]:
    """Yield the secret texts in the content of a kubeconfig."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key in _SECRETS and isinstance(value, str):
                yield value
            else:
                yield from secrets(value)
    elif isinstance(data, list):
        for value in data:
            yield from secrets(value)

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Make a client of the Kubernetes API from module options that mean what kubernetes.core's do.

`connect` reads kubeconfig files, and may run what they name to get credentials.

Source: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
"""

from __future__ import annotations

import os
import traceback
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import env_fallback, missing_required_lib

from ansible_collections.metal.gpu.plugins.module_utils.kube import Client, KubeError, Settings

try:
    import kubernetes.client
    import kubernetes.config
    import urllib3
    import yaml

    IMPORT_ERROR = None
except ImportError:
    IMPORT_ERROR = traceback.format_exc()

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ansible.module_utils.basic import AnsibleModule

# Names, aliases and environment variables are those of the collection kubernetes.core.
AUTH_ARGUMENTS: dict[str, Any] = {
    "kubeconfig": {"type": "raw", "fallback": (env_fallback, ["K8S_AUTH_KUBECONFIG"])},
    "context": {"type": "str", "fallback": (env_fallback, ["K8S_AUTH_CONTEXT"])},
    "host": {"type": "str", "fallback": (env_fallback, ["K8S_AUTH_HOST"])},
    "api_key": {"type": "str", "no_log": True, "fallback": (env_fallback, ["K8S_AUTH_API_KEY"])},
    "ca_cert": {
        "type": "path",
        "aliases": ["ssl_ca_cert"],
        "fallback": (env_fallback, ["K8S_AUTH_CA_CERT", "K8S_AUTH_SSL_CA_CERT"]),
    },
    "client_cert": {
        "type": "path",
        "aliases": ["cert_file"],
        "fallback": (env_fallback, ["K8S_AUTH_CLIENT_CERT", "K8S_AUTH_CERT_FILE"]),
    },
    "client_key": {
        "type": "path",
        "no_log": False,  # the path, not the key
        "aliases": ["key_file"],
        "fallback": (env_fallback, ["K8S_AUTH_CLIENT_KEY", "K8S_AUTH_KEY_FILE"]),
    },
    "validate_certs": {
        "type": "bool",
        "aliases": ["verify_ssl"],
        "fallback": (env_fallback, ["K8S_AUTH_VALIDATE_CERTS", "K8S_AUTH_VERIFY_SSL"]),
    },
}

_SECRETS = {"token", "password", "client-key-data", "access-token", "refresh-token", "id-token"}


class SettingsInvalid(KubeError):
    """The settings do not describe a connection: no kubeconfig, a broken one, no such context."""


def connect(options: Mapping[str, Any]) -> Client:
    """Return a client for the options named in AUTH_ARGUMENTS. Raises SettingsInvalid.

    As in kubernetes.core: complete credentials in the options stand alone; else kubeconfig or
    context; else the service account of the pod this runs in; else the default kubeconfig.
    Single options then replace what was found there.
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
            raise SettingsInvalid(f"{option}: there is no file {value}")
        setattr(configuration, attribute, value)

    if not configuration.host.startswith(("https://", "http://")):
        raise SettingsInvalid(
            f"The API server {configuration.host!r} is not a URL such as https://10.0.0.1:6443 "
            f"({source})."
        )
    if not configuration.verify_ssl:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return Client(Settings(configuration, source))


def client_for(module: AnsibleModule) -> Client:
    """Return a client for a module's options. Raises SettingsInvalid."""
    if IMPORT_ERROR:
        module.fail_json(msg=missing_required_lib("kubernetes"), exception=IMPORT_ERROR)
    module.no_log_values.update(_secrets(module.params["kubeconfig"]))
    return connect(module.params)


def _load_service_account(configuration: Any) -> bool:
    library: Any = kubernetes.config
    try:
        library.load_incluster_config(client_configuration=configuration)
    except kubernetes.config.ConfigException:
        return False
    return True


def _load_kubeconfig(configuration: Any, kubeconfig: Any, context: str | None) -> str:
    """Read a kubeconfig, given as text (paths) or as its content; return where it came from."""
    inline = isinstance(kubeconfig, dict)
    paths = "" if inline else str(kubeconfig or kubernetes.config.KUBE_CONFIG_DEFAULT_LOCATION)
    place = "kubeconfig in the options" if inline else f"kubeconfig {paths}"
    source = f"from the {place}, {f'context {context}' if context else 'current context'}"
    if not inline and not any(
        os.path.isfile(os.path.expanduser(path)) for path in paths.split(os.pathsep)
    ):
        raise SettingsInvalid(
            f"There is no kubeconfig {paths}. Name one by the option kubeconfig or by "
            "K8S_AUTH_KUBECONFIG, or give host and api_key."
        )
    arguments = {
        "context": context,
        "client_configuration": configuration,
        "persist_config": False,
    }
    library: Any = kubernetes.config
    try:
        if inline:
            library.load_kube_config_from_dict(kubeconfig, **arguments)
        else:
            library.load_kube_config(paths, **arguments)
    except kubernetes.config.ConfigException as error:
        contexts = _contexts(kubeconfig if inline else paths)
        if context and contexts and context not in contexts:
            raise SettingsInvalid(
                f"The {place} has no context {context!r}, only {', '.join(contexts)}."
            ) from error
        raise SettingsInvalid(f"The {place}: {error}") from error
    except (yaml.YAMLError, OSError, ValueError, TypeError, AttributeError) as error:
        # The library looks into a malformed file without asking first what it is.
        raise SettingsInvalid(f"The {place} is not valid: {error}") from error
    return source


def _contexts(kubeconfig: Any) -> list[str]:
    """Return the names of the contexts, as far as they can be read."""
    library: Any = kubernetes.config
    if isinstance(kubeconfig, dict):
        return [context.get("name", "") for context in kubeconfig.get("contexts", ())]
    try:
        contexts, _current = library.list_kube_config_contexts(kubeconfig)
    except kubernetes.config.ConfigException:
        return []
    return [context["name"] for context in contexts]


def _secrets(data: Any) -> Iterator[str]:
    """Yield the secret texts in the content of a kubeconfig."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key in _SECRETS and isinstance(value, str):
                yield value
            else:
                yield from _secrets(value)
    elif isinstance(data, list):
        for value in data:
            yield from _secrets(value)

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What the modules share that talk to the API server: the client, and how a module ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import env_fallback, missing_required_lib

from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import KubeError
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_settings import (
    IMPORT_ERROR,
    connect,
    secrets,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible.module_utils.basic import AnsibleModule

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client


def _option(kind: str, *names: str, **more: Any) -> dict[str, Any]:
    """Return an option, and the environment variables that set it."""
    variables = [f"K8S_AUTH_{name}" for name in names]
    return {"type": kind, "fallback": (env_fallback, variables), **more}


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
ARGUMENTS: dict[str, Any] = {**AUTH_ARGUMENTS, "report_only": {"type": "bool", "default": False}}


def run_module(
    module: AnsibleModule, run: Callable[[Client], dict[str, Any]], **nothing: Any
) -> None:
    """Exit with the result of `run`. If it has "failed", the module fails.

    With the option report_only, no failure fails the module. The result then has the `error` of the
    API server, and only `nothing` besides if the server did not answer.
    """
    report_only = module.params["report_only"]
    if IMPORT_ERROR:
        module.fail_json(msg=missing_required_lib("kubernetes"), exception=IMPORT_ERROR)
    module.no_log_values.update(secrets(module.params["kubeconfig"]))
    try:
        result = {"error": "", **run(connect(module.params))}
    except KubeError as error:
        if report_only:
            module.exit_json(**nothing, error=str(error))
        module.fail_json(msg=str(error))
    failed = result.pop("failed", False) and not report_only
    if not report_only:
        del result["error"]  # the message has it
    if failed:
        module.fail_json(**result)
    module.exit_json(**result)

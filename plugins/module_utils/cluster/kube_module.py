# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What the modules share that talk to the API server: the client, and how a module ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import missing_required_lib

from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import KubeError
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_settings import (
    AUTH_ARGUMENTS,
    IMPORT_ERROR,
    connect,
    secrets,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible.module_utils.basic import AnsibleModule

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client

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

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The options of `AUTH_ARGUMENTS` in module_utils/cluster/kube_settings.py."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - Path of a kubeconfig, several paths joined by C(:), or the content of a kubeconfig as a
        dictionary.
      - If this, O(context) and complete credentials are all missing, a module in a pod uses the
        pod's service account. Outside a pod, it uses the default kubeconfig (E(KUBECONFIG), then
        C(~/.kube/config)).
      - If unset, E(K8S_AUTH_KUBECONFIG) is used.
    type: raw
  context:
    description:
      - Name of the context in the kubeconfig. The default is its current context.
      - If unset, E(K8S_AUTH_CONTEXT) is used.
    type: str
  host:
    description:
      - URL of the API server.
      - With O(api_key), or with O(client_cert) and O(client_key), no kubeconfig is needed.
      - If unset, E(K8S_AUTH_HOST) is used.
    type: str
  api_key:
    description:
      - Bearer token.
      - If unset, E(K8S_AUTH_API_KEY) is used.
    type: str
  ca_cert:
    description:
      - Path of the CA certificates that verify the API server.
      - If unset, E(K8S_AUTH_CA_CERT) or E(K8S_AUTH_SSL_CA_CERT) is used.
    type: path
    aliases: [ssl_ca_cert]
  client_cert:
    description:
      - Path of a client certificate.
      - If unset, E(K8S_AUTH_CLIENT_CERT) or E(K8S_AUTH_CERT_FILE) is used.
    type: path
    aliases: [cert_file]
  client_key:
    description:
      - Path of the key of the client certificate.
      - If unset, E(K8S_AUTH_CLIENT_KEY) or E(K8S_AUTH_KEY_FILE) is used.
    type: path
    aliases: [key_file]
  validate_certs:
    description:
      - Whether to check the certificate of the API server. The default is the setting of the
        kubeconfig, or V(true) if it has none.
      - If unset, E(K8S_AUTH_VALIDATE_CERTS) or E(K8S_AUTH_VERIFY_SSL) is used.
    type: bool
    aliases: [verify_ssl]
requirements:
  - kubernetes >= 24.2.0 (Python package, where the module runs)
notes:
  - Needs the Python package C(kubernetes) and access to the API server. This is usually the
    controller, so give the task C(delegate_to=localhost) and C(run_once=true).
  - The error tells whether the API server is unreachable, is not trusted (TLS), rejects the
    credentials (401) or denies a permission (403). It comes within seconds.
"""

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The options of `AUTH_ARGUMENTS` in module_utils/kube_settings.py."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - Path of a kubeconfig, several of them with C(:) between, or the content of one as a
        dictionary.
      - Where neither this, nor O(context), nor complete credentials are given, the service account
        of the pod the module runs in is used, and outside a pod the default kubeconfig
        (E(KUBECONFIG), then C(~/.kube/config)).
      - Where unset, E(K8S_AUTH_KUBECONFIG) counts.
    type: raw
  context:
    description:
      - Name of the context in the kubeconfig. The default is its current one.
      - Where unset, E(K8S_AUTH_CONTEXT) counts.
    type: str
  host:
    description:
      - URL of the API server.
      - Together with O(api_key), or with O(client_cert) and O(client_key), it needs no kubeconfig.
      - Where unset, E(K8S_AUTH_HOST) counts.
    type: str
  api_key:
    description:
      - Bearer token.
      - Where unset, E(K8S_AUTH_API_KEY) counts.
    type: str
  ca_cert:
    description:
      - Path of the CA certificates that vouch for the API server.
      - Where unset, E(K8S_AUTH_CA_CERT) and E(K8S_AUTH_SSL_CA_CERT) count.
    type: path
    aliases: [ssl_ca_cert]
  client_cert:
    description:
      - Path of a client certificate.
      - Where unset, E(K8S_AUTH_CLIENT_CERT) and E(K8S_AUTH_CERT_FILE) count.
    type: path
    aliases: [cert_file]
  client_key:
    description:
      - Path of the key of the client certificate.
      - Where unset, E(K8S_AUTH_CLIENT_KEY) and E(K8S_AUTH_KEY_FILE) count.
    type: path
    aliases: [key_file]
  validate_certs:
    description:
      - Whether the certificate of the API server is checked. The default is what the kubeconfig
        says, and to check it where it says nothing.
      - Where unset, E(K8S_AUTH_VALIDATE_CERTS) and E(K8S_AUTH_VERIFY_SSL) count.
    type: bool
    aliases: [verify_ssl]
requirements:
  - kubernetes >= 24.2.0 (Python package, where the module runs)
notes:
  - Runs where the Python package C(kubernetes) is and the API server can be reached, which is
    mostly the controller, so give the task C(delegate_to=localhost) and C(run_once=true).
  - Says which it is when the API server is unreachable, is not trusted (TLS), does not know the
    credentials (401), or withholds a permission (403). Such an answer comes within seconds.
"""

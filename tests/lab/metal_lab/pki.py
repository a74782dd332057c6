# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Certificates and kubeconfigs of a cluster, as kubeadm lays them out; and keys for SSH.

Source: https://kubernetes.io/docs/setup/best-practices/certificates/
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=30)  # a laboratory is not kept longer


class Pair(NamedTuple):
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _name(common_name: str, organisation: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organisation:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
    return x509.Name(parts)


class Authority:
    """A certificate authority that lives for one laboratory."""

    def __init__(self, common_name: str = "kubernetes") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(common_name)
        certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(certificate_sign=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)

    def _builder(
        self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey, *, expired: bool = False
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        if expired:
            now -= LIFETIME + datetime.timedelta(days=1)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )

    def issue(
        self,
        common_name: str,
        organisation: str = "",
        hosts: Sequence[str] = (),
        *,
        expired: bool = False,
    ) -> Pair:
        """Issue a client certificate. With `hosts`, it is also a server certificate.

        With `expired`, it was valid until yesterday.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(
            _name(common_name, organisation), key.public_key(), expired=expired
        ).add_extension(_usage(certificate_sign=False), critical=True)
        if hosts:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(host) for host in hosts]),
                critical=False,
            )
        certificate = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False).sign(
            self._key, hashes.SHA256()
        )
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def _usage(*, certificate_sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificate_sign,
        crl_sign=certificate_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def service_account_keys() -> Pair:
    """Return the key pair that signs service account tokens: public key, private key."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return Pair(public, _key_pem(key))


def kubeconfig(server: str, authority: bytes, client: Pair) -> str:
    """Return a kubeconfig with everything inside, so that it can be copied anywhere."""

    def encoded(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "lab",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": encoded(authority),
                    },
                }
            ],
            "users": [
                {
                    "name": "lab",
                    "user": {
                        "client-certificate-data": encoded(client.certificate),
                        "client-key-data": encoded(client.key),
                    },
                }
            ],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
            "current-context": "lab",
        },
        sort_keys=False,
    )


def write_pair(folder: Path, name: str, pair: Pair) -> None:
    """Write NAME.crt and NAME.key. Only the current user can read the key."""
    (folder / f"{name}.crt").write_bytes(pair.certificate)
    key = folder / f"{name}.key"
    key.touch(mode=0o600)
    key.write_bytes(pair.key)


def ssh_key_pair() -> tuple[bytes, bytes]:
    """Return a private key in OpenSSH's format and its public line."""
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return private, public + b"\n"

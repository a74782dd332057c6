# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines that records and fixtures have: which finding `metal-gpu explain` names first."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.findings import CATALOGUE
from metal_gpu.explanations import catalogue, symptoms

TESTS = Path(__file__).parents[2]
EXPLAINER = catalogue.explainer()
SYMPTOMS = symptoms.parse(catalogue.SYMPTOMS.read_text(encoding="utf-8"))


def records(name, *keys):
    rows = yaml.safe_load((TESTS / "recorded" / name).read_text(encoding="utf-8"))
    return [
        pytest.param(
            row["text"].replace("…", "what-varies"), row["code"], id=identifier(row["text"])
        )
        for key in keys
        for row in rows[key]
    ]


def identifier(text):
    return re.sub(r"\W+", "-", text)[:60]


@cache
def lines_of(name):
    """Return the lines of a fixture; one of YAML is a text of it, which it may have folded."""
    text = (TESTS / "unit" / "fixtures" / name).read_text(encoding="utf-8")
    return [*texts_of(yaml.safe_load(text))] if name.endswith(".yml") else text.splitlines()


def texts_of(data):
    if isinstance(data, str):
        yield data
    for item in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from texts_of(item)


def first(line):
    return EXPLAINER.explain(line)[0].code


@pytest.mark.parametrize(
    ("text", "code"),
    [*records("symptoms.yml", "lines"), *records("registries.yml", "openssl", "alerts")],
)
def test_the_finding_of_a_recorded_line_is_first(text, code):
    assert code in CATALOGUE
    assert first(text) == code


def recorded_lines():
    text = (TESTS / "recorded/explain.txt").read_text(encoding="utf-8")
    rows = [one.split(" | ", 2) for one in text.splitlines() if one and one[0] != "#"]
    return [pytest.param(*row, id=identifier(row[2])) for row in rows]


@pytest.mark.parametrize(("expected", "source", "line"), recorded_lines())
def test_the_answer_to_a_line_of_a_program_is_first(expected, source, line):
    """Also in a log, with the prefix of another program, and with other quotes."""
    assert source
    found = EXPLAINER.explain(line, strict=expected != "-")
    assert (found[0].code or found[0].title if found else "-") == expected
    prefixed = f"2026-11-28T09:00:01Z gpu-1 kernel[1]: {line.replace(chr(39), chr(0x2019))}"
    assert expected == "-" or expected in [
        one.code or one.title for one in EXPLAINER.explain(prefixed)
    ]


def test_each_kind_of_line_has_a_recorded_line():
    lines = [row.values[2] for row in recorded_lines()]
    matched = {one.matched for line in lines for one in EXPLAINER.explain(line)}
    assert {one.title for one in SYMPTOMS} <= matched


# A fixture, a part of one of its lines, and the finding.
FIXTURES = [
    ("containerd/refusal-1.6.20-syntax.txt", "failed to load TOML", "CONTAINERD_CONFIG_INVALID"),
    ("containerd/refusal-2.1.4-byte-order-mark.txt", "row 1", "CONTAINERD_CONFIG_INVALID"),
    ("containerd/refusal-2.4.2-syntax.txt", "Failure unm", "CONTAINERD_CONFIG_INVALID"),
    ("dkms/make-log-gcc-11.txt", "the compiler differs", "DKMS_BUILD_FAILED"),
    ("dkms/make-log-headers.txt", "configuration is invalid", "DKMS_BUILD_FAILED"),
    ("dkms/make-log-headers.txt", "are missing.", "DKMS_BUILD_FAILED"),
    ("dkms/make-log-no-compiler.txt", "gcc-12: not found", "DKMS_BUILD_FAILED"),
    ("kernel_log/dead_at_load.txt", "NVRM: fallen off the bus", "NVML_COUNT_DIFFERS"),
    ("kernel_log/dead_at_load.txt", "nvidia: probe of", "NVML_COUNT_DIFFERS"),
    ("kernel_log/dead_at_load.txt", "None of the NVIDIA", "NVML_COUNT_DIFFERS"),
    ("kubernetes/nodes.yml", "cni plugin not initialized", "NODE_NOT_READY"),
    ("kubernetes/plugin_logs.yml", "device marked unhealthy", "GPU_UNHEALTHY"),
    ("kubernetes/plugin_logs.yml", "Marking all devices", "GPU_UNHEALTHY"),
    ("kubernetes/plugin_logs.yml", "Marking device ", "GPU_UNHEALTHY"),
    ("kubernetes/pods.yml", "failed to resolve image", "SMOKE_IMAGE_UNAVAILABLE"),
    ("kubernetes/pods.yml", "pull QPS exceeded", "SMOKE_IMAGE_UNAVAILABLE"),
    ("kubernetes/pods.yml", "Back-off pulling image", "SMOKE_IMAGE_UNAVAILABLE"),
    ("kubernetes/pods.yml", "parse image name", "SMOKE_IMAGE_UNAVAILABLE"),
    ("kubernetes/pods.yml", "nvidia-gpu.sock: connect", "DEVICE_PLUGIN_UNREGISTERED"),
    ("kubernetes/pods.yml", "nvml error: driver not loaded", "NVML_UNAVAILABLE"),
    ("kubernetes/pods.yml", "[GPU is lost]", "GPU_FAULTY"),
    ("kubernetes/refusals.yml", "Apply failed", "CLUSTER_CONFLICT"),
    ("kubernetes/refusals.yml", "field is immutable", "CLUSTER_IMMUTABLE"),
    ("nvidia_smi/query-gpu-lost.txt", ", [GPU is lost]", "GPU_FAULTY"),
    ("nvidia_smi/unreached-with-rows.txt", ": Unknown Error", "GPU_FAULTY"),
    ("packages/apt-2.8.4-3.0.4.txt", "remove is disabled", "PACKAGES_DISPLACED"),
    ("packages/apt-2.8.4-3.0.4.txt", "held broken packages", "DEPENDENCY_MISSING"),
    ("packages/apt-2.8.4-3.0.4.txt", "generated breaks", "PACKAGES_HELD"),
    ("packages/apt-2.8.4-3.0.4.txt", "0-138-generic : Depends", "KERNEL_OUTDATED"),
    ("packages/apt-2.8.4-3.0.4.txt", "package linux-modules-nvidia", "KERNEL_OUTDATED"),
    ("packages/apt-2.8.4-3.0.4.txt", "regex 'linux-headers", "KERNEL_HEADERS_GONE"),
    ("packages/apt-install-unmet.txt", "unmet dependencies:", "DEPENDENCY_MISSING"),
    ("packages/apt-install-unmet.txt", "is not installable", "DEPENDENCY_MISSING"),
    ("packages/apt-install-unmet.txt", "conflicting decisions", "DEPENDENCY_MISSING"),
    ("packages/apt-install-unmet.txt", "not satisfiable", "DEPENDENCY_MISSING"),
    ("packages/apt-update-2.6.1.txt", "(111: Connection refused)", "REPOSITORY_UNREACHABLE"),
    ("packages/apt-update-2.6.1.txt", "Could not resolve", "REPOSITORY_UNREACHABLE"),
    ("packages/apt-update-2.6.1.txt", "Some index files", "REPOSITORY_UNREACHABLE"),
    ("packages/apt-update-2.6.1.txt", "EXPKEYSIG", "REPOSITORY_UNTRUSTED"),
    ("packages/apt-update-2.6.1.txt", "unexpected size", "REPOSITORY_INCOMPLETE"),
    ("packages/apt-update-3.0.3.txt", "InRelease  Unable to connect", "REPOSITORY_UNREACHABLE"),
    ("packages/apt-update-3.0.3.txt", "Missing key", "REPOSITORY_UNTRUSTED"),
    ("packages/apt-update-3.0.3.txt", "Not live until", "REPOSITORY_CLOCK"),
    ("packages/apt-update-3.0.3.txt", "is not bound", "REPOSITORY_KEY_WEAK"),
    ("packages/dnf-out-of-step.txt", "Errors during", "REPOSITORY_UNREACHABLE"),
    ("packages/dnf-out-of-step.txt", "Curl error (7)", "REPOSITORY_UNREACHABLE"),
    ("packages/dnf-out-of-step.txt", "Curl error (60)", "REPOSITORY_CLOCK"),
    ("packages/dnf-out-of-step.txt", "checksum doesn't match", "REPOSITORY_INCOMPLETE"),
    ("packages/dnf-out-of-step.txt", "No more mirrors", "REPOSITORY_UNREACHABLE"),
    ("packages/dpkg-build-failed.txt", "error processing package", "PACKAGES_UNFINISHED"),
    ("packages/dpkg-build-failed.txt", "prevent configuration", "PACKAGES_UNFINISHED"),
    ("packages/dpkg-build-failed.txt", "Consult", "DKMS_BUILD_FAILED"),
    ("packages/dpkg-failed.txt", "error processing archive", "PACKAGES_UNFINISHED"),
    ("packages/dpkg-failed.txt", "returned an error code", "PACKAGES_UNFINISHED"),
    ("packages/dpkg-failed.txt", "more space on the", "DISK_FULL"),
]


@pytest.mark.parametrize(
    ("name", "part", "code"), FIXTURES, ids=[identifier(f"{row[0]} {row[1]}") for row in FIXTURES]
)
def test_the_finding_of_a_line_of_a_fixture_is_first(name, part, code):
    lines = [line for line in lines_of(name) if part in line]
    assert lines
    assert {first(line) for line in lines} == {code}


# Words of the records that are not in a list with findings.
@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("containerd.yml", "failed to load base OCI spec from file", "CONTAINERD_FATAL"),
        ("dkms.yml", "/bin/sh: line 1: g++: command not found", "DKMS_BUILD_FAILED"),
        ("dkms.yml", "error: too few arguments to function", "DKMS_BUILD_FAILED"),
        ("dkms.yml", "This module/version has already been built on", "MODULE_REJECTED"),
        ("dkms.yml", "openssl not found, can't generate key", "SIGNING_KEY_UNTRUSTED"),
        ("dkms.yml", "can't be generated, modules won't be signed", "SIGNING_KEY_UNTRUSTED"),
        ("fabric.yml", '"ibstat" command not found!', "FABRIC_MANAGER_STOPPED"),
        ("runfile.yml", "Unable to find the development tool `cc`", "RUNFILE_FAILED"),
    ],
)
def test_the_finding_of_words_of_a_record_is_first(name, text, code):
    record = yaml.safe_load((TESTS / "recorded" / name).read_text(encoding="utf-8"))
    texts = [one for one in texts_of(record) if text in one]
    assert texts
    assert {first(one) for one in texts} == {code}


@pytest.mark.parametrize(
    "name",
    [
        "containerd/dump-2.4.2-nvidia.toml",
        "crio/10-crio.conf",
        "docker/info-20.10.24.txt",
        "nodes/healthy.txt",
        "nvidia_smi/query-h100x8.txt",
        "packages/apt-policy.txt",
        "packages/dpkg-query.txt",
        "packages/rpm.txt",
        "systemd/show-services-running.txt",
    ],
)
def test_healthy_output_has_no_explanation(name):
    lines = lines_of(name)
    assert len(lines) > 5
    assert [line for line in lines if EXPLAINER.explain(line, strict=True)] == []


@pytest.mark.parametrize(
    "line",
    [
        "GPU 0000:04:00.0 was reset",
        "mlx5_core 0000:17:00.0: Failed to enable MSI-X vectors",
        "failed to fulfil mount request: open /run/wings: no such file or directory",
        "failed to find runtime environment",
    ],
)
def test_lines_about_something_else_have_no_explanation(line):
    assert EXPLAINER.explain(line, strict=True) == []

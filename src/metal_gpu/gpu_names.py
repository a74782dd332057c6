# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names of GPU models, for machines whose driver cannot tell them. No function does I/O.

Only models of data centers are listed, and no device id that two models share.

Source: tests/recorded/gpu_names.yml
"""

from __future__ import annotations

import re

from ansible_collections.metal.gpu.plugins.module_utils.read import gpu_models

NAMES = {
    "15f7": "Tesla P100-PCIE-12GB",
    "15f8": "Tesla P100-PCIE-16GB",
    "15f9": "Tesla P100-SXM2-16GB",
    "1b38": "Tesla P40",
    "1bb3": "Tesla P4",
    "1db1": "Tesla V100-SXM2-16GB",
    "1db4": "Tesla V100-PCIE-16GB",
    "1db6": "Tesla V100-PCIE-32GB",
    "1eb8": "Tesla T4",
    "20b0": "A100-SXM4-40GB",
    "20b2": "A100-SXM4-80GB",
    "20b3": "A100-SXM-64GB",
    "20b5": "A100 80GB PCIe",
    "20b7": "A30",
    "20f1": "A100-PCIE-40GB",
    "20f3": "A800-SXM4-80GB",
    "2230": "RTX A6000",
    "2231": "RTX A5000",
    "2235": "A40",
    "2236": "A10",
    "2237": "A10G",
    "230e": "H20 NVL16",
    "2321": "H100 NVL",
    "2322": "H800 PCIe",
    "2324": "H800",
    "2329": "H20",
    "232c": "H20-3e",
    "2330": "H100 80GB HBM3",
    "2331": "H100 PCIe",
    "2335": "H200",
    "2339": "H100",
    "233a": "H800 NVL",
    "233b": "H200 NVL",
    "2348": "GH200 144G HBM3e",
    "26b1": "RTX 6000 Ada Generation",
    "26b5": "L40",
    "26b9": "L40S",
    "26ba": "L20",
    "27b8": "L4",
    "2901": "B200",
    "2909": "B200",
    "2941": "GB200",
    "2bb5": "RTX PRO 6000 Blackwell Server Edition",
    "2c3a": "RTX PRO 4500 Blackwell Server Edition",
    "2e12": "GB10",
    "3182": "B300 SXM6 AC",
    "31c2": "GB300",
    "31c3": "GB300",
}
_BRAND = "NVIDIA "


def name(device: str, reported: str | None) -> str:
    """Return the name of a model, by its PCI device id and by what the driver reports.

    A listed id always has the same name, so that a machine keeps its group when it gets a driver.
    """
    listed = NAMES.get(device.lower())
    if listed:
        return listed
    if reported:
        return reported.removeprefix(_BRAND)
    return f"{gpu_models.generation(device).name} {device}"


def shown(device: str, reported: str | None) -> str:
    """Return the name for a reader: what the driver reports, such as that of a virtual GPU."""
    return reported.removeprefix(_BRAND) if reported else name(device, None)


def group(model: str) -> str:
    """Return a name for the Ansible group of a model: lower case, digits and underscores."""
    words = re.sub(r"[^a-z0-9]+", "_", model.lower()).strip("_")
    return f"gpu_{words}"

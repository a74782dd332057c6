# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two unlike hosts, from what their scripts print to the table."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read import cuda_errors
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import fleet, portability
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.portability import Tried, Wanted
from ansible_collections.metal.gpu.tests.unit.support import healthy

NAME = "registry.example/app:1"
DIGEST, OTHER = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
RECORDED = Path(__file__).parents[5] / "tests" / "recorded"
WORDS = yaml.safe_load((RECORDED / "registries.yml").read_text())["words"]  # of failed pulls
WANTED = Wanted(NAME, (), False)
NEW: dict[str, Any] = healthy.docker_node().observed()  # eight H100, Docker 29.8
OLD: dict[str, Any] = healthy.containerd_node().observed()  # two P100; Docker 26.1 here
OLD["engines"]["docker"] |= {"server_version": "26.1.5", "answers": True}


def uuids(node: dict[str, Any]) -> list[str]:
    return [gpu["uuid"] for gpu in node["nvml"]["devices"]]


def pulled(
    node: dict[str, Any],
    digest: str = DIGEST,
    architecture: str = "amd64",
    capability: str = "9.0",
    **environment: str,
) -> str:
    lines = "".join(f"{name}={value}\n" for name, value in environment.items())
    gpus = "".join(f"{uuid}, {capability}\n" for uuid in uuids(node))
    return (
        f"== architecture\n{architecture}\n== digests\n{json.dumps([f'app@{digest}'])}\n"
        f'== layers\n["{digest}"]\n== environment\n{lines}== gpus\n{gpus}== brand\n== end\n'
    )


def unpulled(words: str) -> str:
    return f"== failure\nError response from daemon: {words}\n== gpus\n== end\n"


def ran(node: dict[str, Any], failed: str = "", seen: int | None = None) -> str:
    listed = uuids(node)[:seen]
    lines = ["versions 580.178.04 13.0", *listed]
    lines += [f"{number} {failed or 'ok'}" for number in range(1, len(listed) + 1)]
    said = "\n".join(lines)
    return f"{said}\n\n== errors\n\n== end\nexit {1 if failed else 0}\n"


def refused(words: str) -> str:
    return f"\n== errors\n{words}\n== end\nexit 125\n"


def host(
    name: str, node: dict[str, Any] | None, first: str | None, second: str | None = None
) -> Tried:
    planned: dict[str, Any] = {"node": node, "plans": {}, "refusals": [], "declared": None}
    return Tried(fleet.Host(name, planned, []), first, second)


def verdicts(*hosts: Tried, wanted: Wanted = WANTED) -> dict[str, list[str]]:
    """Return the codes of each host, less those of the machine."""
    found = portability.judge(hosts, wanted, drift=False)
    return {
        one["host"]: [
            code["code"] for code in one["findings"] if code["code"].split("_")[0] in OURS
        ]
        for one in found
    }


OURS = ("IMAGE", "CONTAINER", "COMPUTE")
BOTH = (
    host("one", NEW, pulled(NEW), ran(NEW)),
    host("two", OLD, pulled(OLD, capability="6.0"), ran(OLD)),
)


def test_the_same_image_computes_on_two_unlike_hosts() -> None:
    found = portability.judge(BOTH, WANTED, drift=False)
    assert [(one["ok"], one["findings"]) for one in found] == [(True, []), (True, [])]
    lines = [line.split() for line in portability.table(found)]
    assert lines[0] == [*portability.HEADINGS]
    assert lines[1][-6:] == ["580.178.04", "13.0", "29.8.1", DIGEST[:19], "8/8", "ok"]
    assert lines[2][-6:] == ["580.178.04", "13.0", "26.1.5", DIGEST[:19], "2/2", "ok"]


def test_example_of_the_documents_is_what_the_host_would_have() -> None:
    """With the capabilities of the inventory there, and a driver that is too old for the image."""
    text = (RECORDED.parents[1] / "docs" / "docker-hosts.md").read_text()
    inventory = text.partition("```yaml\n")[2].partition("```")[0]
    values = yaml.safe_load(inventory)["gpu_nodes"]["vars"]
    wanted = WANTED._replace(capabilities=values["verify_docker_capabilities"])
    first = pulled(OLD, capability="6.0", NVIDIA_REQUIRE_CUDA="cuda>=13.1")
    codes = verdicts(host("rented-1", OLD, first), wanted=wanted)["rented-1"]
    (row,) = (line for line in text.splitlines() if line.startswith("rented-1 "))
    assert "Tesla P100" in row
    assert row.split()[-len(codes) - 1 :] == ["-", *codes]


@pytest.mark.parametrize(
    ("first", "wanted", "code", "words"),
    [
        pytest.param(
            pulled(OLD, NVIDIA_REQUIRE_CUDA="cuda>=13.1"), WANTED,
            "IMAGE_NEEDS_DRIVER", "needs `cuda>=13.1`", id="the runtime of Docker 26.1 compares",
        ),
        pytest.param(
            pulled(OLD, architecture="arm64"), WANTED,
            "IMAGE_PLATFORM_MISSING",
            f"{NAME} does not exist for the architecture of the node: it is for arm64, and the "
            "node is amd64", id="architecture",
        ),
        pytest.param(
            pulled(OLD, capability="6.0"), WANTED._replace(capabilities=["7.0", "9.0"]),
            "IMAGE_NEEDS_GPU", "it has code for 7.0, 9.0, and Tesla P100-PCIE-16GB has 6.0",
            id="no code for these GPUs",
        ),
        pytest.param(
            unpulled("dial tcp 10.0.0.1:443: connect: connection refused"), WANTED,
            "IMAGE_UNPULLABLE", f"pull the image {NAME}: Error response from daemon: dial tcp",
            id="no registry",
        ),
        *(
            pytest.param(
                unpulled(one["text"]), WANTED, one["code"], one["text"], id=one["text"]
            )
            for one in WORDS if one["engine"] in ("docker", "all")
        ),
        pytest.param(
            pulled(OLD, digest=OTHER), WANTED, "IMAGE_DIFFERS", f"{OTHER}, expected {DIGEST}",
            id="a tag that was moved between two pulls",
        ),
    ],
)  # fmt: skip
def test_host_on_which_it_cannot_run_is_named_before_it_starts(
    first: str, wanted: Wanted, code: str, words: str
) -> None:
    hosts = [host("one", NEW, pulled(NEW)), host("two", OLD, first)]
    found = portability.decide(hosts, wanted)
    assert found["one"] == []
    assert [one["code"] for one in found["two"]] == [code]
    assert words in found["two"][0]["message"]
    assert portability.candidates(hosts, wanted) == ["one"]
    judged = portability.judge(hosts, wanted, drift=False)[1]
    assert [one["code"] for one in judged["findings"]] == [code]
    assert not judged["ok"]


def test_image_without_a_digest_is_no_measure_for_the_others() -> None:
    loaded = pulled(NEW).replace(f'["app@{DIGEST}"]', "null")
    rebuilt = pulled(NEW).replace(f"app@{DIGEST}", f"app@{OTHER}")  # with the same layers
    hosts = [host("one", NEW, loaded), host("two", NEW, pulled(NEW)), host("three", NEW, rebuilt)]
    found = portability.decide(hosts, WANTED)
    codes = {name: [one["code"] for one in entries] for name, entries in found.items()}
    assert codes == {"one": [], "two": [], "three": ["IMAGE_DIFFERS"]}
    assert f"than two: {OTHER}, expected {DIGEST}" in found["three"][0]["message"]


def test_new_docker_compares_nothing() -> None:
    first = pulled(NEW, NVIDIA_REQUIRE_CUDA="cuda>=13.1")
    assert portability.candidates([host("one", NEW, first)], WANTED) == ["one"]


def test_runtime_compares_nothing_since_it_makes_cdi_specifications() -> None:
    first = pulled(OLD, NVIDIA_REQUIRE_CUDA="cuda>=13.1", capability="6.0")
    first, node = f"== way\nruntime\n{first}", copy.deepcopy(OLD)
    assert portability.candidates([host("two", node, first)], WANTED) == ["two"]
    node["toolkit"]["version"] = "1.17.8"
    assert portability.candidates([host("two", node, first)], WANTED) == []


def test_configuration_of_the_toolkit_decides_who_compares() -> None:
    first, node = (
        pulled(OLD, NVIDIA_REQUIRE_CUDA="cuda>=13.1", capability="6.0"),
        copy.deepcopy(OLD),
    )
    hosts = [host("two", node, f"== way\nruntime\n{first}")]
    node["toolkit"]["mode"] = "legacy"
    (found,) = portability.decide(hosts, WANTED)["two"]
    assert (found["code"], portability.candidates(hosts, WANTED)) == ("IMAGE_NEEDS_DRIVER", [])
    node["toolkit"]["settings"]["disable-require"] = True
    assert portability.candidates(hosts, WANTED) == ["two"]


def test_docker_without_the_hook_of_cdi_compares() -> None:
    node = copy.deepcopy(NEW)
    node["toolkit"]["programs"]["nvidia-cdi-hook"]["exists"] = False
    hosts = [host("one", node, pulled(node, NVIDIA_REQUIRE_CUDA="cuda>=13.1"))]
    assert portability.candidates(hosts, WANTED) == []


CDI_HOOK = "/usr/bin/nvidia-cdi-hook"
BY_UUID = [f"nvidia.com/gpu={name}" for name in ("0", *uuids(NEW))]
TOGETHER = ["nvidia.com/gpu=all"]
NEWER = pulled(NEW, NVIDIA_REQUIRE_CUDA="cuda>=13.1")


@pytest.mark.parametrize(
    ("engine", "names", "has_command", "starts"),
    [
        pytest.param({}, {"/etc/cdi/a.yaml": TOGETHER}, False, True, id="CDI"),
        pytest.param(
            {"cdi_enabled": False}, {"/etc/cdi/a.yaml": TOGETHER}, False, False,
            id="features.cdi is false",
        ),
        pytest.param(
            {"changed_since_start": [CDI_HOOK]}, {"/etc/cdi/a.yaml": TOGETHER}, False, False,
            id="the program came later",
        ),
        pytest.param({}, {}, False, False, id="no valid specification"),
        pytest.param({}, {"/etc/cdi/a.yaml": BY_UUID}, False, False, id="no device with all"),
        pytest.param({}, {"/etc/cdi/a.yaml": BY_UUID}, True, True, id="each GPU by itself"),
        pytest.param({}, {"/etc/cdi/a.yaml": TOGETHER}, True, False, id="no GPU by its UUID"),
        pytest.param(
            {}, {"/etc/cdi/a.yaml": TOGETHER, "/etc/cdi/b.yaml": TOGETHER}, False, False,
            id="two specifications, of which Docker takes neither",
        ),
        pytest.param(
            {}, {"/etc/cdi/a.yaml": TOGETHER, "/var/run/cdi/a.yaml": TOGETHER}, False, True,
            id="a specification that replaces another",
        ),
    ],
)  # fmt: skip
def test_docker_that_falls_back_to_the_hook_compares(engine, names, has_command, starts) -> None:
    node = copy.deepcopy(NEW)
    node["engines"]["docker"] |= engine
    node["cdi"]["names"] = names
    hosts = [host("one", node, NEWER)]
    wanted = WANTED._replace(has_command=has_command)
    (found,) = portability.decide(hosts, wanted)["one"]
    assert found["code"] == ("IMAGE_CUDA_NEWER" if starts else "IMAGE_NEEDS_DRIVER")
    assert portability.candidates(hosts, wanted) == (["one"] if starts else [])


def test_image_for_a_newer_minor_version_runs_and_its_limits_are_named() -> None:
    before = [host("one", NEW, NEWER)]
    (known,) = portability.decide(before, WANTED)["one"]
    assert (known["code"], known["severity"]) == ("IMAGE_CUDA_NEWER", "notice")
    assert "is for CUDA 13.1, and driver 580.178.04 supports CUDA 13.0" in known["message"]
    assert portability.candidates(before, WANTED) == ["one"]
    (found,) = portability.judge([host("one", NEW, NEWER, ran(NEW))], WANTED, drift=False)
    assert found["findings"] == [known]
    assert (found["ok"], found["container"]["computed"]) == (True, "8/8")
    assert portability.table([found])[1].split()[-2:] == ["8/8", "ok"]


@pytest.mark.parametrize("number", [35, 36, 222])
def test_program_that_the_driver_is_too_old_for(number: int) -> None:
    words = f"1 Failed (error code {cuda_errors.ERRORS[number].words})!"
    one = host("one", NEW, NEWER, ran(NEW, words))
    (found,) = portability.judge([one], WANTED, drift=False)
    codes = [entry["code"] for entry in found["findings"]]
    assert codes == ["IMAGE_NEEDS_DRIVER", "IMAGE_CUDA_NEWER"]
    assert cuda_errors.ERRORS[number].words in found["findings"][0]["message"]
    assert f"{NAME} needs a newer driver (Failed " in found["findings"][0]["message"]
    assert "an image for CUDA 13.0 or older" in found["findings"][0]["remedy"]
    assert not found["ok"]


@pytest.mark.parametrize(
    ("number", "version", "code", "words", "remedy"),
    [
        pytest.param(
            35, "12.5.0", "COMPUTE_FAILED",
            "the container got no libcuda.so.1, as driver 580.178.04 is new enough for the image",
            "NVIDIA_DRIVER_CAPABILITIES of the image must contain compute", id="no libcuda",
        ),
        pytest.param(
            36, "12.2.0", "COMPUTE_FAILED",
            "a library in it may be too old for this driver",
            "use a version of the library that was made for this driver", id="a driver too new",
        ),
        pytest.param(
            222, "12.5.0", "IMAGE_NEEDS_DRIVER",
            "needs a newer driver than the version of CUDA that it names (Failed",
            "use programs for CUDA 13.0 or older in the image", id="PTX of another CUDA",
        ),
        *(
            pytest.param(
                number, "", "IMAGE_NEEDS_DRIVER", "needs a newer driver (Failed",
                "use an image for CUDA 13.0 or older", id=f"{number} of an unknown version",
            )
            for number in (35, 36, 222)
        ),
    ],
)  # fmt: skip
def test_error_of_an_image_that_the_driver_supports(
    number: int, version: str, code: str, words: str, remedy: str
) -> None:
    needs = {"NVIDIA_REQUIRE_CUDA": "cuda>=12.0", "CUDA_VERSION": version} if version else {}
    output = ran(NEW, f"1 Failed (error code {cuda_errors.ERRORS[number].words})!")
    one = host("one", NEW, pulled(NEW, **needs), output)
    (found,) = portability.judge([one], WANTED, drift=False)
    (known,) = found["findings"]
    assert (known["code"], found["ok"]) == (code, False)
    assert words in known["message"]
    assert remedy in known["remedy"]
    assert "pod" not in f"{known['message']} {known['remedy']}"


def test_cuda_compat_that_does_not_support_the_gpu_is_a_limit_with_a_way_out() -> None:
    output = ran(NEW, f"1 Failed (error code {cuda_errors.ERRORS[804].words})!")
    (found,) = portability.judge([host("one", NEW, NEWER, output)], WANTED, drift=False)
    failure, notice = found["findings"]
    assert (failure["code"], notice["code"]) == ("IMAGE_NEEDS_DRIVER", "IMAGE_CUDA_NEWER")
    assert "needs GPUs that its cuda-compat supports, or a newer driver (" in failure["message"]
    assert "or use an image without cuda-compat" in failure["remedy"]
    assert "or use an image without cuda-compat" in notice["remedy"]
    assert "or use an image without cuda-compat" in notice["remedy"]


def test_refusal_of_the_hook_leaves_no_notice_that_nobody_compares() -> None:
    words = "requirement error: unsatisfied condition: cuda>=13.1"
    (found,) = portability.judge([host("one", NEW, NEWER, refused(words))], WANTED, drift=False)
    (known,) = found["findings"]
    assert known["code"] == "IMAGE_NEEDS_DRIVER"
    assert f"needs more than NVIDIA's runtime finds on this host ({words})" in known["message"]


def test_limits_stay_named_where_nothing_was_started() -> None:
    (found,) = portability.judge([host("one", NEW, NEWER)], WANTED, drift=False)
    codes = [entry["code"] for entry in found["findings"]]
    assert codes == ["IMAGE_CUDA_NEWER", "CONTAINER_FAILED"]
    (found,) = portability.judge([host("one", NEW, NEWER)], WANTED, drift=False, check_mode=True)
    assert [entry["code"] for entry in found["findings"]] == ["IMAGE_CUDA_NEWER"]
    assert found["ok"]


def test_gpus_on_which_it_does_not_compute() -> None:
    failed = "1 Failed to allocate device vector A (error code unknown error)!"
    found = verdicts(host("one", NEW, pulled(NEW), ran(NEW, failed)), BOTH[1])
    assert found == {"one": ["COMPUTE_FAILED"], "two": []}


def test_image_without_code_for_the_gpu_is_not_the_gpus_fault() -> None:
    words = "1 Failed to launch vectorAdd kernel (error code no kernel image is available for"
    words += " execution on the device)!"
    (found,) = portability.judge(
        [host("one", NEW, pulled(NEW), ran(NEW, words))], WANTED, drift=False
    )
    (one,) = found["findings"]
    assert one["code"] == "IMAGE_NEEDS_GPU"
    assert one["message"].startswith(f"one: the image {NAME} does not run on the GPUs of this host")
    assert "no kernel image" in one["message"]
    assert "one: the CUDA program" not in one["message"]


def test_container_that_lacks_a_gpu() -> None:
    (found,) = portability.judge(
        [host("one", NEW, pulled(NEW), ran(NEW, seen=7))], WANTED, drift=False
    )
    assert [one["code"] for one in found["findings"]] == ["CONTAINER_GPUS_DIFFER"]
    assert f"has 7 of 8 GPUs: not {uuids(NEW)[7]}" in found["findings"][0]["message"]
    assert found["container"]["computed"] == "7/8"


FULL = "2 Failed to allocate device vector A (error code out of memory)!"
TAKEN = "1 Failed (error code all CUDA-capable devices are busy or unavailable)!"


def in_use(node: dict[str, Any], *numbers: int) -> str:
    lines = "".join(f"{uuids(node)[number]}, 4711, /usr/bin/vllm\n" for number in numbers)
    return pulled(node).replace("== brand", f"== users\n{lines}== brand")


def exclusive(node: dict[str, Any]) -> dict[str, Any]:
    node = copy.deepcopy(node)
    for gpu in node["health"]["gpus"]:
        gpu["compute_mode"] = "Exclusive_Process"
    return node


@pytest.mark.parametrize(
    ("node", "words", "users", "codes", "result"),
    [
        pytest.param(NEW, FULL, range(8), ["CONTAINER_GPUS_BUSY"], "busy", id="no memory is left"),
        pytest.param(
            exclusive(NEW), TAKEN, range(8), ["COMPUTE_EXCLUSIVE", "CONTAINER_GPUS_BUSY"], "busy",
            id="one program only",
        ),
        pytest.param(
            NEW, FULL, range(7), ["COMPUTE_FAILED", "CONTAINER_GPUS_BUSY"],
            "COMPUTE_FAILED", id="nobody uses the last one",
        ),
        pytest.param(
            NEW, TAKEN, range(8), ["COMPUTE_FAILED"], "COMPUTE_FAILED",
            id="many programs may use them, so they are lost",
        ),
        pytest.param(
            NEW, "1 uncorrectable ECC error encountered", range(8), ["COMPUTE_FAILED"],
            "COMPUTE_FAILED", id="another error",
        ),
    ],
)  # fmt: skip
def test_gpus_that_other_programs_use_are_not_proven(node, words, users, codes, result) -> None:
    one = host("one", node, in_use(node, *users), ran(node, words))
    assert verdicts(one) == {"one": codes}
    (found,) = portability.judge([one], WANTED, drift=False)
    assert portability.table([found])[1].split("0/8")[1].strip() == result
    for notice in (one for one in found["findings"] if one["code"] == "CONTAINER_GPUS_BUSY"):
        assert "which other programs use: vllm, process 4711 (" in notice["message"]
        assert uuids(node)[0] in notice["message"]


def test_host_of_which_other_programs_use_some_gpus_is_well() -> None:
    output = ran(NEW).replace("\n1 ok", f"\n1 {FULL}")
    (found,) = portability.judge([host("one", NEW, in_use(NEW, 0), output)], WANTED, drift=False)
    assert [one["code"] for one in found["findings"]] == ["CONTAINER_GPUS_BUSY"]
    assert portability.table([found])[1].split()[-2:] == ["7/8", "ok"]


def test_program_on_a_gpu_that_mig_splits_may_be_on_any_part() -> None:
    node = copy.deepcopy(NEW)
    split = {"mig": "Enabled", "mig_pending": "Enabled", "mig_instances": None}
    node["health"]["gpus"][0] |= split
    output = ran(node).replace(uuids(node)[0], PARTS[0]).replace("\n1 ok", f"\n1 {FULL}")
    (found,) = portability.judge([host("one", node, in_use(node, 0), output)], WANTED, drift=False)
    assert [one["code"] for one in found["findings"]] == ["CONTAINER_GPUS_BUSY"]


PARTS = [f"MIG-0b9d8c53-2d3a-5f5e-9a3c-7d1f8e6a4b2{number}" for number in range(2)]


@pytest.mark.parametrize(
    ("seen", "codes", "words", "computed"),
    [
        (slice(1, 8), [], "", "9/9"),
        (
            slice(1, 6),
            ["CONTAINER_GPUS_DIFFER"],
            "5 of 7 GPUs: not {6}, {7}; not counted: those that MIG",
            "7/9",
        ),
    ],
)
def test_gpu_that_mig_splits_hides_no_other_one(seen, codes, words, computed) -> None:
    node = copy.deepcopy(NEW)
    names = uuids(node)
    assert node["health"]["gpus"][0]["uuid"] == names[0]
    split = {"mig": "Enabled", "mig_pending": "Enabled", "mig_instances": None}
    node["health"]["gpus"][0] |= split
    listed = [*PARTS, *names[seen]]
    lines = [*listed, *(f"{number} ok" for number in range(1, len(listed) + 1))]
    output = "\n".join([*lines, "\n== errors\n\n== end\nexit 0\n"])
    (found,) = portability.judge([host("one", node, pulled(node), output)], WANTED, drift=False)
    assert [one["code"] for one in found["findings"]] == codes
    assert all(words.format(*names) in one["message"] for one in found["findings"])
    assert found["container"]["computed"] == computed


def split(instances: int | None) -> dict[str, Any]:
    """Return a host of which MIG splits all GPUs, each into this number of parts."""
    node = copy.deepcopy(NEW)
    parts = None if instances is None else [{} for _number in range(instances)]
    for gpu in node["health"]["gpus"]:
        gpu |= {"mig": "Enabled", "mig_pending": "Enabled", "mig_instances": parts}
    return node


ONE_PART = f"versions 580.1 13.0\n{PARTS[0]}\n1 ok\n\n== errors\n\n== end\nexit 0\n"
NO_DEVICE = "! 6 No devices were found\n\n== errors\n\n== end\nexit 1\n"
ENDLESS = "\n== errors\n\n== end\nexit 124 of at most 300 s\n"


@pytest.mark.parametrize(
    ("instances", "output", "code", "words", "computed"),
    [
        pytest.param(
            2, NO_DEVICE, "CONTAINER_GPUS_DIFFER",
            "has 0 of 16 GPUs or their parts: 0 of 16 parts of those that MIG splits; nvidia-smi "
            "exited with code 6: No devices were found", "0/16",
            id="no device",
        ),
        pytest.param(
            None, NO_DEVICE, "CONTAINER_GPUS_DIFFER",
            "has 0 of 8 GPUs: no part of those that MIG splits; nvidia-smi exited with code 6: No "
            "devices were found", "0/8",
            id="no device of GPUs whose parts are unknown",
        ),
        pytest.param(
            2, ONE_PART, "CONTAINER_GPUS_DIFFER",
            "has 1 of 16 GPUs or their parts: 1 of 16 parts of", "1/16", id="one part",
        ),
        pytest.param(2, ENDLESS, "CONTAINER_FAILED", "stopped after 300 s", "0/16", id="no end"),
    ],
)  # fmt: skip
def test_gpus_that_mig_splits_prove_nothing_by_themselves(
    instances, output, code, words, computed
) -> None:
    node = split(instances)
    (found,) = portability.judge([host("one", node, pulled(node), output)], WANTED, drift=False)
    assert [one["code"] for one in found["findings"]] == [code]
    assert words in found["findings"][0]["message"]
    assert found["container"]["computed"] == computed


def test_parts_beside_a_whole_gpu_are_counted() -> None:
    node = split(2)
    node["health"]["gpus"][7] |= {"mig": "Disabled", "mig_pending": "Disabled", "mig_instances": []}
    (found,) = portability.judge([host("one", node, pulled(node), ONE_PART)], WANTED, drift=False)
    assert (
        f"has 1 of 15 GPUs or their parts: not {uuids(node)[7]}; 1 of 14 parts"
        in (found["findings"][0]["message"])
    )


def ran_by_uuid(node: dict[str, Any], refused: int) -> str:
    """Return what the containers of single GPUs print. Docker refuses the first of them."""
    ends = ["docker: Error response from daemon: no\n== end\nexit 125", "\n== end\nexit 0"]
    return "".join(
        f"== gpu {uuid}\n\n== errors\n{ends[number >= refused]} of at most 300 s\n"
        for number, uuid in enumerate(uuids(node))
    )


@pytest.mark.parametrize("node", [NEW, split(2), split(None)])
@pytest.mark.parametrize("refused", [0, 7, 8])
def test_program_that_docker_does_not_start_on_each_gpu(node, refused: int) -> None:
    """The program runs with each GPU by its UUID, also if MIG splits it."""
    one = host("one", node, pulled(node), ran_by_uuid(node, refused))
    (found,) = portability.judge([one], WANTED._replace(has_command=True), drift=False)
    codes = {0: [], 7: ["CONTAINER_GPUS_DIFFER"], 8: ["CONTAINER_FAILED"]}[refused]
    assert [one["code"] for one in found["findings"]] == codes
    assert found["container"]["computed"] == f"{8 - refused}/8"
    words = {0: "", 7: "has 1 of 8 GPUs: not GPU-", 8: "Error response from daemon: no"}[refused]
    assert all(words in one["message"] for one in found["findings"])
    assert all("Error response from daemon: no" in one["message"] for one in found["findings"])


def test_gpus_without_a_report_may_be_split() -> None:
    node = copy.deepcopy(NEW)
    node["health"]["gpus"] = []
    output = ran(node, seen=7).replace(uuids(node)[0], PARTS[0])
    assert "CONTAINER_GPUS_DIFFER" not in verdicts(host("one", node, pulled(node), output))["one"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("docker: could not select device driver", "CONTAINER_FAILED"),
        ("requirement error: unsatisfied condition: cuda>=13.1", "IMAGE_NEEDS_DRIVER"),
    ],
)
def test_docker_that_does_not_start_it(words: str, code: str) -> None:
    (found,) = portability.judge(
        [host("one", NEW, pulled(NEW), refused(words))], WANTED, drift=False
    )
    assert [one["code"] for one in found["findings"]] == [code]
    assert words in found["findings"][0]["message"]


@pytest.mark.parametrize(("answers", "words"), [(True, "connection"), (False, "not answer")])
def test_host_on_which_nothing_was_started_is_not_well(answers: bool, words: str) -> None:
    node = copy.deepcopy(NEW)
    node["engines"]["docker"]["answers"] = answers
    first = pulled(NEW) if answers else None
    (found,) = portability.judge([host("one", node, first)], WANTED, drift=False)
    assert [one["code"] for one in found["findings"]] == ["CONTAINER_FAILED"]
    assert words in found["findings"][0]["message"]


def test_check_mode_knows_images_by_their_names_and_what_the_admin_says() -> None:
    nothing = "== gpus\n" + "".join(f"{uuid}, 6.0\n" for uuid in uuids(OLD)) + "== brand\n== end\n"
    one = host("two", OLD, nothing)
    assert portability.decide([one], WANTED)["two"] == []
    (found,) = portability.decide([one], WANTED._replace(capabilities=["9.0"]))["two"]
    assert found["code"] == "IMAGE_NEEDS_GPU"
    node = copy.deepcopy(OLD)
    node["nvml"]["driver_version"] = "535.309.01"
    known = WANTED._replace(image="nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0")
    (found,) = portability.decide([host("two", node, nothing)], known)["two"]
    assert found["code"] == "IMAGE_NEEDS_DRIVER"
    (judged,) = portability.judge([one], WANTED, drift=False, check_mode=True)
    assert judged["ok"]


def test_check_mode_starts_nothing_and_finds_nothing() -> None:
    (found,) = portability.judge([host("one", NEW, None)], WANTED, drift=False, check_mode=True)
    assert found["ok"]


OFFLINE = "Error response from daemon: dial tcp 10.0.0.1:443: connect: connection refused"


@pytest.mark.parametrize(
    ("name", "first", "codes"),
    [
        pytest.param(NAME, pulled(NEW), ["IMAGE_NOT_PULLED"], id="an older one may be there"),
        pytest.param(f"app@{DIGEST}", pulled(NEW), [], id="by digest"),
        pytest.param(
            NAME, pulled(NEW).replace(f'["app@{DIGEST}"]', "null"), [], id="loaded from a file"
        ),
    ],
)
def test_pull_that_fails_where_an_image_is_there(name: str, first: str, codes: list[str]) -> None:
    one = host("one", NEW, f"== failure\n{OFFLINE}\n{first}", ran(NEW))
    (found,) = portability.judge([one], WANTED._replace(image=name), drift=False)
    assert [one["code"] for one in found["findings"]] == codes
    assert all(DIGEST in one["message"] for one in found["findings"])
    assert all("connection refused" in one["message"] for one in found["findings"])
    assert (found["ok"], found["container"]["computed"]) == (True, "8/8")


@pytest.mark.parametrize(
    ("name", "digests"),
    [
        (NAME, [f"docker.io/other/app@{OTHER}", f"registry.example/app@{DIGEST}"]),
        ("registry.example:5000/app", [f"app@{OTHER}", f"registry.example:5000/app@{DIGEST}"]),
        ("docker.io/library/app:1", [f"registry.example/app@{OTHER}", f"app@{DIGEST}"]),
        (f"app:1@{DIGEST}", [f"app@{OTHER}", f"app@{DIGEST}"]),
        (NAME, [f"other@{DIGEST}"]),
    ],
)
def test_digest_of_the_table_is_that_of_the_name(name: str, digests: list[str]) -> None:
    first = pulled(NEW).replace(f'["app@{DIGEST}"]', json.dumps(digests))
    one = host("one", NEW, first, ran(NEW))
    (found,) = portability.judge([one], WANTED._replace(image=name), drift=False)
    assert found["container"]["digest"] == DIGEST[:19]


@pytest.mark.parametrize("error", cuda_errors.ERRORS.values(), ids=lambda one: str(one.number))
def test_words_about_errors_are_those_of_a_host_without_pods(error) -> None:
    output = ran(NEW, f"1 Failed (error code {error.words})!")
    (found,) = portability.judge([host("one", NEW, pulled(NEW), output)], WANTED, drift=False)
    assert found["findings"]
    for one in found["findings"]:
        assert "pod" not in f"{one['message']} {one['remedy']}"
        assert "drain" not in one["remedy"]


def test_host_that_cannot_be_observed_has_its_reason_only() -> None:
    (found,) = portability.judge([host("one", None, None)], WANTED, drift=False)
    assert [one["code"] for one in found["findings"]] == ["RUN_STOPPED"]
    assert portability.table([found])[1].split() == ["one", *["-"] * 6, "RUN_STOPPED"]


def test_export_that_is_gone_is_a_failure_of_the_host() -> None:
    words = {"server": "nas", "export": "/srv", "version": "4.2", "evidence": "error 2"}
    gone = finding("NFS_EXPORT_MISSING", "one", **words)
    (found,) = portability.judge([BOTH[0]._replace(exports=[gone])], WANTED, drift=False)
    assert [one["code"] for one in found["findings"]] == ["NFS_EXPORT_MISSING"]
    assert not found["ok"]
    assert found["container"]["computed"] == "8/8"


def test_faulty_machine_is_named_besides() -> None:
    node = copy.deepcopy(NEW)
    node["pci"].append({**node["pci"][0], "address": "0000:ff:00.0"})
    (found,) = portability.judge([host("one", node, pulled(NEW), ran(NEW))], WANTED, drift=False)
    assert "NVML_COUNT_DIFFERS" in [one["code"] for one in found["findings"]]

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.findings import CATALOGUE
from ansible_collections.metal.gpu.plugins.module_utils.read import cuda_errors, xids
from ansible_collections.metal.gpu.tests.unit.support import command
from metal_gpu.explanations import catalogue, explain, index, symptoms
from metal_gpu.explanations.logs import explain_lines
from metal_gpu.terminal import exit_codes

RECORDED = Path(__file__).parents[2] / "recorded"
DOCUMENT = index.parse(catalogue.PLACE.read_text(encoding="utf-8"), "docs/troubleshooting.md")
SYMPTOMS = symptoms.parse(catalogue.SYMPTOMS.read_text(encoding="utf-8"))
EXPLAINER = explain.Explainer(DOCUMENT, SYMPTOMS)
INSTALLED = catalogue.explainer()
TEXTS = [
    pytest.param(row, text, id=re.sub(r"\W+", "-", text))
    for row in DOCUMENT.rows
    for text in row.texts
]
IN_WORDS = [
    pytest.param(row, id=re.sub(r"\W+", "-", row.symptom)) for row in DOCUMENT.rows if not row.texts
]


def texts_of(name, key):
    rows = yaml.safe_load((RECORDED / name).read_text(encoding="utf-8"))[key]
    return [pytest.param(row, id=re.sub(r"\W+", "-", row["text"])[:60]) for row in rows]


def names(candidates):
    return [one.code or one.title for one in candidates]


def explained(text):
    return names(EXPLAINER.explain(text))


def test_the_whole_index_is_read():
    in_document = [
        line
        for line in catalogue.PLACE.read_text(encoding="utf-8").split("## The run")[0].splitlines()
        if line.startswith("| ") and "](" in line
    ]
    assert len(DOCUMENT.rows) == len(in_document)
    assert {*DOCUMENT.causes} >= {*CATALOGUE}
    assert all(DOCUMENT.causes[code] for code in CATALOGUE)


@pytest.mark.parametrize(("row", "text"), TEXTS)
def test_a_text_of_the_index_is_found_in_a_line(row, text):
    """A kind of docs/symptoms.txt that knows the text names the sections of the index, too."""
    line = f"Nov 24 09:00:01 gpu-1 program[123]: E! {text.replace('…', 'what-varies')}; retrying"
    assert {*names_of(row)} <= {*explained(line)}


def names_of(row):
    return [section.title for section in row.sections]


@pytest.mark.parametrize(("row", "text"), TEXTS)
def test_a_text_of_the_index_comes_before_what_others_only_have_in_common(row, text):
    found = EXPLAINER.explain(text.replace("…", "what-varies"))
    sure = [one for one in found if one.certainty != explain.READ] or found
    if sure[0].matched in {one.title for one in SYMPTOMS}:
        return  # the file of symptoms has the causes of this text
    related = {
        section.title
        for one in DOCUMENT.rows
        for section in one.sections
        if any(
            other.lower() in text.lower() or text.lower() in other.lower() for other in one.texts
        )
    }
    assert sure[0].title in related


@pytest.mark.parametrize("row", IN_WORDS)
def test_a_symptom_in_words_is_found(row):
    assert names_of(row)[0] in explained(f"{row.place} {index.plain(row.symptom)}")


@pytest.mark.parametrize("row", texts_of("symptoms.yml", "texts"))
def test_recorded_texts_are_known(row):
    assert explained(row["text"].replace("…", "what-varies"))


@pytest.mark.parametrize("row", texts_of("registries.yml", "words"))
def test_recorded_words_of_engines_have_the_code_of_the_record(row):
    text = f'Failed to pull image "registry.example:5000/a/b:1": {row["text"].replace("…", "x")}'
    assert row["code"] in explained(text)


@pytest.mark.parametrize("number", [*cuda_errors.ERRORS])
def test_cuda_errors_are_known_by_number_and_words(number):
    error = cuda_errors.ERRORS[number]
    for text in (f"CUDA error {number}", f"cudaErrorUnknown: {error.words}", error.words):
        (found,) = [one for one in EXPLAINER.explain(text) if str(number) in one.matched][:1]
        assert error.cause in found.cause
        assert found.code == (
            "COMPUTE_IMAGE_UNFIT" if error.fault == cuda_errors.IMAGE else "COMPUTE_FAILED"
        )


@pytest.mark.parametrize("number", [*xids.XIDS])
@pytest.mark.parametrize(
    "form", ["XID_{}", "Xid {}", "NVRM: Xid (PCI:0000:83:00): {}, pid=1, name=a, Fatal"]
)
def test_xids_are_known(number, form):
    found = EXPLAINER.explain(form.format(number))[0]
    xid = xids.XIDS[number]
    assert xid.meaning in found.cause
    expected = {
        xids.HARDWARE: "GPU_ERROR_LOGGED",
        xids.RESET: "GPU_ERROR_LOGGED",
        xids.UNKNOWN: "XID_UNKNOWN",
    }
    assert found.code == expected.get(xid.tier)
    assert found.remedy


# Names of machines that a person fills in, and words that are no placeholders.
IN_COMMANDS = frozenset(
    """ADDRESS DEVICE FILE FLAVOUR HOST IMAGE INDEX INVENTORY KEY LABEL MODULE NAME NAMESPACE NODE
    NUMBER PACKAGE PORT PROFILE PROGRAM PYTHON ROLE SERVER UNIT USER VALUE VERSION""".split()  # noqa: SIM905
)
ANYWHERE = frozenset(
    """ACS AER API BAR BIOS CDI CNI CPU CRI CRI-O CUDA DEFAULT DIGEST DKMS DNS DOCA-OFED
    DOCKER_HOST DRA ECC EKS EPEL FLAVOUR GPG GPU HOME ID INFO IOMMU JSON LOC MIG MPS
    NCCL NFS NVIDIA NVML OCI OFED PATH PCI PERFORMANCE POWER RDMA RHEL SR-IOV SYS
    TCP TEMPERATURE TLS TOML TTY URL UUID WARN""".split()  # noqa: SIM905
)
VERB = re.compile(
    r"\b(is|are|has|have|had|was|were|runs?|fails?|do|does|did|shows?|works?|lists?|names?|prints?"
    r"|needs?|uses?|stays?|belongs|got|asks?|offer|reported|switched|removed|builds|pulls|hangs|says?"
    r"|happens|lacks|holds?|allocate|gets|answers|installed|wrote|made|end|takes?|loads|sees?|comes"
    r"|begins|ran|saw|calls|permits|differ|failed|repeats|ends|starts?|stops|counts|came)\b"
)


def assert_is_english(candidate):
    """Nothing of a template, of a page or of a message that the reader does not have."""
    cause, remedy = candidate.cause, candidate.remedy
    assert cause.endswith((".", ")", "`")) or candidate.certainty == explain.READ
    assert not re.search(r"\{\w*\}|: ?$|\b(the|this) (message|notice)\b", cause, re.IGNORECASE)
    assert "{" not in remedy.replace("{{ ", "").replace(": {", "")
    assert remedy[0] not in " ;,"
    assert not re.search(
        r"  | [,;.](?:\s|$)|;;|^read \S+\.md#\S+$|(?<![\w/-])docs/", f"{cause} {remedy}"
    )
    for place, part in enumerate(remedy.split("`")):
        found = re.findall(r"(?<![$\w/.-])[A-Z][A-Z-]{2,}\b(?!_)", part)  # no variables
        known = IN_COMMANDS | ANYWHERE if place % 2 else ANYWHERE
        assert {*found} <= known | {*CATALOGUE}, part
    assert not candidate.condition or VERB.search(candidate.condition), candidate.condition
    assert not candidate.reference or Path(candidate.reference.partition("#")[0]).is_file()


@pytest.mark.parametrize("code", [*CATALOGUE])
def test_a_finding_is_known_by_its_code(code):
    found = INSTALLED.of_code(code)
    assert (found.code, found.severity) == (code, CATALOGUE[code].severity)
    assert_is_english(found)
    line = f"{code} gpu-2: the message of the finding"
    assert EXPLAINER.explain(line)[0].code == code


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda one: one.title)
def test_a_symptom_has_causes_remedies_and_what_tells_them_apart(symptom):
    assert {one.code for one in symptom.answers} <= {None, *CATALOGUE}
    answers = list(INSTALLED._of_symptoms([symptom]))
    for one in answers:
        assert one.cause
        assert one.remedy
        assert_is_english(one)
    assert all(one.condition for one in answers[1:])


@pytest.mark.parametrize("row", DOCUMENT.rows, ids=lambda row: re.sub(r"\W+", "-", row.symptom))
def test_conditions_are_sentences(row):
    conditions = [one.condition for one in row.sections if one.condition]
    assert [one for one in conditions if not VERB.search(one)] == []


@pytest.mark.parametrize(
    ("line", "code", "certainty"),
    [
        pytest.param(
            "NVRM: Xid (PCI:0000:83:00): 79, pid='<unknown>', GPU has fallen off the bus.",
            "GPU_ERROR_LOGGED",
            explain.READ,
            id="a line of the kernel log",
        ),
        pytest.param(
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "NVSWITCH_ERROR_LOGGED",
            explain.READ,
            id="an NVSwitch",
        ),
        pytest.param(
            'pods "a" is forbidden: exceeded quota: few, requested: requests.nvidia.com/gpu=1',
            "POD_OVER_QUOTA",
            explain.READ,
            id="a quota",
        ),
        pytest.param(
            "Err:1 https://x.example 404", "REPOSITORY_UNREACHABLE", "short text", id="404"
        ),
        pytest.param("nvidia-smi hangs", "NVML_UNAVAILABLE", explain.WORDS, id="words"),
        pytest.param(
            "Failed to initialize NVML: Unknown Error",
            "NVML_UNAVAILABLE",
            explain.TEXT,
            id="NVML has an unknown error, too",
        ),
        pytest.param(
            "nvidia-container-cli.real: initialization error: driver rpc error: timed out",
            "SMOKE_FAILED",
            explain.TEXT,
            id="container tools have an initialization error, too",
        ),
        pytest.param(
            "Unable to determine the device handle for GPU3: 0000:04:00.0: Unknown Error",
            "GPU_FAULTY",
            explain.TEXT,
            id="nvidia-smi has an unknown error, too",
        ),
        pytest.param(
            'failed to create the automatic CDI modifier: "GPU is lost"',
            "GPU_BLOCKS_CONTAINERS",
            explain.READ,
            id="a lost GPU and a container",
        ),
    ],
)
def test_the_most_probable_cause_is_first(line, code, certainty):
    first = EXPLAINER.explain(line)[0]
    assert (first.code, first.certainty) == (code, certainty)


@pytest.mark.parametrize(
    ("words", "condition"),
    [
        pytest.param(
            "permission denied",
            'you mean a line with "Permission denied (publickey" or "Permission denied (password"',
            id="of many programs",
        ),
        pytest.param(
            "no such file or directory",
            'you mean a line with "/device-plugins/nvidia-gpu.sock: connect: no such file or'
            ' directory"',
            id="a part of a text",
        ),
        pytest.param(
            "state of the fabric in progress",
            'you mean a line with "In Progress" or "Not Started", and Fabric Manager runs',
            id="a text, and where it stands",
        ),
        pytest.param("nvidia-smi hangs", "it prints nothing", id="a symptom"),
        pytest.param(
            "root gets no answer from docker",
            "the system's Docker runs",
            id="a symptom beside a text",
        ),
        pytest.param(
            "row remapping failed, volatile uncorrectable ECC errors",
            "",
            id="a symptom after a text",
        ),
        pytest.param("pod GPU lost bus", "", id="beside a longer text"),
    ],
)
def test_words_of_a_text_are_not_taken_for_the_text(words, condition):
    """What only words suggest says which line it would be."""
    first = EXPLAINER.explain(words)[0]
    assert (first.condition, first.certainty) == (condition, explain.WORDS)


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        ("pod stuck in pending", ["NODE_FULL", "GPUS_NOT_ALLOCATABLE", "POD_NOT_SCHEDULED"]),
        ("container cannot see GPU", ["SMOKE_FAILED"]),
        ("pod has no GPU", ["SMOKE_FAILED"]),
        ("no gpu in pod", ["SMOKE_FAILED"]),
        ("pod sees all gpus of the node", ["GPU_LEAKED"]),
        ("my pod gets all GPUs", ["GPU_LEAKED"]),
        ("pods with GPUs stay in Terminating", ["RUNTIME_UNUSABLE"]),
        ("a pod is Pending and has no event", ["POD_NOT_SCHEDULED", "KUBELET_SILENT"]),
        ("pod stuck in Terminating", ["RUNTIME_UNUSABLE", "ENGINE_STOPPED"]),
        ("pod stuck in ContainerCreating", ["RUNTIME_HANDLER_MISSING", "CDI_UNRESOLVABLE"]),
        ("gpu missing", ["NVML_COUNT_DIFFERS", "GPU_COUNT_DIFFERS"]),
        ("pytorch sees no gpu", ["SMOKE_FAILED", "CONTAINER_GPUS_DIFFER", "CUDA_UNAVAILABLE"]),
        ("tensorflow sees no GPU", ["SMOKE_FAILED"]),
        ("a program in a container sees all GPUs", ["GPU_LEAKED"]),
        ("container sees all gpus", ["GPU_LEAKED"]),
        ("pod does not start", ["RUNTIME_HANDLER_MISSING", "CDI_UNRESOLVABLE"]),
        ("GPU is slow", ["GPU_THROTTLED", "PCIE_LINK_DIFFERS"]),
        ("ECC errors", ["GPU_UNRELIABLE", "GPU_RESET_DUE"]),
        ("docker does not start", []),
        ("the kubelet does not start", []),
        ("GPU stuck at 100%", []),
    ],
)
def test_questions_of_people(words, codes):
    found = EXPLAINER.explain(words)
    assert [one.code for one in found][: len(codes)] == codes
    assert bool(found) is bool(codes)


@pytest.mark.parametrize(
    "answer", [" is False", " returns False", ": False", " = False", " == False", "\nFalse"]
)
def test_ways_to_say_that_pytorch_sees_no_gpu(answer):
    assert explained(f">>> torch.cuda.is_available(){answer}")[0] == "SMOKE_FAILED"
    assert explained(f">>> print(torch.cuda.is_available()){answer}")[0] == "SMOKE_FAILED"
    assert explained(f"torch.cuda.is_available(){answer.replace('False', 'True')}") == []


def test_a_reading_names_what_the_line_names():
    line = 'failed to get sandbox runtime: no runtime for "nvidia" is configured'
    first, *others = EXPLAINER.explain(line)
    assert "needs the runtime nvidia" in first.cause
    assert [(one.code, one.condition) for one in others] == [
        ("DISTRIBUTION_RESTART", "the node runs k3s or RKE2"),
        ("KUBESPRAY_OVERWRITES", "Kubespray has just run"),
    ]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            r'error="failed to get sandbox runtime: no runtime for \"nvidia\" is configured"',
            "RUNTIME_HANDLER_MISSING",
        ),
        (
            r'failed to get sandbox runtime: no runtime for \\\"nvidia\\\" is configured\""',
            "RUNTIME_HANDLER_MISSING",
        ),
        (
            r'"msg": "could not select device driver \"\" with capabilities: [[gpu]]"',
            None,
        ),
    ],
    ids=["containerd's log", "the kubelet's journal", "output of Ansible"],
)
def test_quotes_that_a_log_has_escaped(line, code):
    """A reader and a text of the index know such a line, also in a whole log."""
    first = EXPLAINER.explain(line, strict=True)[0]
    assert first.code == code
    assert "\\" not in first.matched


@pytest.mark.parametrize(
    "line",
    [
        "Started Session 4 of User root.",
        "kubelet is healthy",
        "pod/nginx created",
        "nvidia-smi",
        "the node is Ready",
        "eth0: link is up, 40400 Mbit/s",
        "make[1]: *** [Makefile:240: __sub-make] Error 2",
        "nvidia-driver-cuda\t3:580.178.04-1.el9\tinstalled",
        "{",
        "",
        "\x00\x1b[31m",
        "x" * 100_000,
    ],
)
def test_other_lines_are_not_known(line):
    assert EXPLAINER.explain(line, strict=True) == []
    assert explained(line) == []


def test_a_log_has_each_meaning_once():
    lines = [
        "booting",
        "[1.0] NVRM: Xid (PCI:0000:83:00): 48, one",
        "",
        "[2.0] NVRM: Xid (PCI:0000:84:00): 48, two",
        "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.12",
        "GET /a 404",  # too short to mean something among thousands of lines
    ]
    result = explain_lines(EXPLAINER, lines)
    assert [(one.number, one.lines, one.candidates[0].code) for one in result.explanations] == [
        (2, 2, "GPU_ERROR_LOGGED"),
        (5, 1, "KERNEL_HEADERS_GONE"),
    ]
    assert (result.lines, result.unknown) == (5, 2)


def test_in_a_log_the_cause_comes_before_what_follows_from_it():
    lines = [
        "nvidia 0000:14:00.0: enabling device (0000 -> 0003)",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
        "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:14:00.0)",
        "nvidia: probe of 0000:14:00.0 failed with error -1",
        "node1:1:2 [0] misc/ibvwrap.cc:187 NCCL WARN Call to ibv_query_gid failed",
        "node1:1:2 [0] NCCL WARN socketProgress: Connection closed by remote peer node2<1>",
    ]
    result = explain_lines(EXPLAINER, lines)
    assert [(one.number, one.lines) for one in result.explanations] == [
        (3, 1),
        (6, 1),
        (2, 2),
        (5, 1),
    ]
    assert "address range" in result.explanations[0].candidates[0].cause


def test_the_command_explains_a_line():
    found = command.run("explain", "Failed to initialize NVML: Driver/library version mismatch")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("REBOOT_NEEDED (stop), if the node has not rebooted")
    assert "remedy: set `nvidia_driver_reboot_ok: true`" in found.stdout
    place = re.sub(r"\s", "", found.stdout).partition("see:")[2].partition("#reboot_needed")[0]
    assert Path(place).is_file()


@pytest.mark.parametrize(
    "line", ["Failed to load driver", "NVIDIA kernel module missing. Is it loaded?"]
)
def test_the_command_says_that_only_words_resemble(line):
    found = command.run("explain", line)
    assert "it resembles" in found.stderr
    assert "if the line has" not in found.stdout
    assert "if you mean a line with" in " ".join(found.stdout.split())
    assert "resembles" not in command.run("explain", "gpu_faulty").stderr


def test_the_command_prints_json():
    found = command.run("explain", "--json", "gpu_faulty")
    document = command.parsed("explain", found.stdout)
    assert document["explanations"][0]["candidates"][0]["code"] == "GPU_FAULTY"


def test_the_command_reads_a_log():
    log = b"\xff\xfe\n[1.0] NVRM: Xid (PCI:0000:83:00): 48, one\nother\n".decode("latin-1")
    found = command.run("explain", "-", stdin=log)
    assert found.returncode == 0
    assert "line 2: [1.0] NVRM: Xid" in found.stdout
    assert "1 of 3 lines are known" in found.stderr
    document = command.parsed("explain", command.run("explain", "--json", "-", stdin=log).stdout)
    assert (document["lines"], document["unknown"]) == (3, 2)


@pytest.mark.parametrize("arguments", [["GPU_FALTY"], ["-"]])
def test_what_nobody_knows_is_said_and_ends_with_1(arguments):
    found = command.run("explain", *arguments, stdin="nothing\n")
    assert found.returncode == 1
    assert found.stdout == ""
    assert "as an issue of metal.gpu" in found.stderr
    assert ("GPU_FAULTY" in found.stderr) == (arguments != ["-"])
    assert command.run("explain", "--quiet", *arguments).stderr == ""
    document = command.parsed("explain", command.run("explain", "--json", "no such").stdout)
    assert document == {"explanations": [], "lines": 1, "unknown": 1}


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["lines", "json"])
def test_a_reader_that_has_enough_ends_it_as_it_ends_other_filters(options, unbuffered, tmp_path):
    texts = [row.texts[0].replace("…", "x") for row in DOCUMENT.rows if row.texts]
    (tmp_path / "log").write_text("\n".join(texts))
    with (tmp_path / "log").open() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "metal_gpu", "explain", *options, "-"],
            stdin=log,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=command.environment(PYTHONUNBUFFERED=unbuffered),
            text=True,
        )
    assert process.stdout.readline()
    process.stdout.close()  # long before the end: what follows does not fit a pipe
    assert process.stderr.read() == ""
    assert process.wait() == exit_codes.UNREAD

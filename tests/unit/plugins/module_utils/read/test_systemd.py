# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import systemd
from ansible_collections.metal.gpu.plugins.module_utils.read.systemd import Word
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording

UNIT = "/usr/lib/systemd/system/a.service"
DROPIN = "/etc/systemd/system/a.service.d/10.conf"
ENV = "/etc/default/a"


def words(texts):
    return systemd.parse_service(texts, "a.service").words


def test_parse_show():
    units = systemd.parse_show(recording("systemd/show-252.txt"))
    assert units["kubelet.service"]["ActiveState"] == "inactive"
    assert units["containerd.service"]["SubState"] == "running"
    assert units["docker.service"]["LoadState"] == "not-found"


def test_parse_show_keys_a_unit_by_each_of_its_names():
    """systemctl shows a queried alias under the name of its unit."""
    units = systemd.parse_show("Id=crio.service\nNames=cri-o.service crio.service\n")
    assert units["cri-o.service"] == units["crio.service"]


@pytest.mark.parametrize(
    ("unit", "can_run"),
    [
        ("k3s-gpu.service", True),
        ("k3s-backup@1.service", True),
        ("k3s-a\\x2db.service", True),
        ("k3s-backup@.service", False),
        ("k3s-a b.service", False),
        (f"k3s-{'a' * 250}.service", False),
    ],
)
def test_templates_and_invalid_names_are_no_units(unit, can_run):
    assert systemd.can_run(unit) is can_run


def test_parse_show_without_systemd():
    assert systemd.parse_show("") == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("A=b c\n", {"A": "b c"}, id="plain"),
        pytest.param("A='b c' \nB=\"d\"\n", {"A": "b c", "B": "d"}, id="quoted"),
        pytest.param('A="b \\"c\\" \\d"\n', {"A": 'b "c" \\d'}, id="escaped-in-quotes"),
        pytest.param("A=b \\\n  c\n", {"A": "b   c"}, id="continued"),
        pytest.param('A="b\n c"\nB=d', {"A": "b\n c", "B": "d"}, id="line-break-in-quotes"),
        pytest.param('A=--b="c d"\n', {"A": '--b="c d"'}, id="quotes-inside-stay"),
        pytest.param("# A=b\n; A=c\n\n  B = d \n", {"B": "d"}, id="comments-and-blanks"),
        pytest.param("export A=b\nno assignment\n", {}, id="shell-is-not-understood"),
        pytest.param('Environment="A=b"\n', {"Environment": "A=b"}, id="the-common-mistake"),
        pytest.param("A=b\nA=\n", {"A": ""}, id="last-one-wins"),
    ],
)
def test_parse_environment_file(text, expected):
    assert systemd.parse_environment_file(text) == expected


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        pytest.param("/bin/a --b 'c d'", ["/bin/a", "--b", "c d"], id="quotes"),
        pytest.param("-/bin/a", ["/bin/a"], id="mark"),
        pytest.param("/bin/a \\\n  # why\n  --b", ["/bin/a", "--b"], id="continued"),
        pytest.param("/bin/a $V", ["/bin/a", "x", "y z"], id="variable-becomes-words"),
        pytest.param("/bin/a --b=${V}", ["/bin/a", "--b=x 'y z'"], id="variable-becomes-text"),
        pytest.param("/bin/a --b=$V $$", ["/bin/a", "--b=$V", "$"], id="no-variable"),
        pytest.param("/bin/a $UNSET ${UNSET}", ["/bin/a", ""], id="unset"),
        pytest.param("/bin/a 'b", [], id="unbalanced"),
    ],
)
def test_command_line(line, texts):
    unit = f"[Service]\nEnvironment=\"V=x 'y z'\"\nExecStart={line}\n"
    found = words({UNIT: unit})
    assert [word.text for word in found if word.effective] == texts


def test_a_word_knows_its_file_and_variable():
    texts = {
        UNIT: "[Service]\nExecStart=/bin/a\n",
        DROPIN: f"[Service]\nEnvironmentFile=-{ENV}\nExecStart=\nExecStart=/bin/a $B\n",
        ENV: "B=--c\n",
    }
    assert words(texts) == (
        Word("/bin/a", DROPIN, None, True),
        Word("--c", ENV, "B", True),
    )


def test_a_file_overrides_environment_and_the_overridden_word_is_ineffective():
    texts = {
        UNIT: f"[Service]\nEnvironment=B=--unit\nEnvironmentFile={ENV}\nExecStart=/bin/a $B\n",
        DROPIN: "[Service]\nEnvironment=B=--dropin\n",
        ENV: "B=--file\n",
    }
    assert words(texts)[1:] == (
        Word("--file", ENV, "B", True),
        Word("--unit", UNIT, "B", False),
        Word("--dropin", DROPIN, "B", False),
    )


@pytest.mark.parametrize(
    ("unit", "environment", "flags"),
    [
        pytest.param(
            '/opt/kubernetes/bin/kubelet "$DAEMON_ARGS"',
            'DAEMON_ARGS="--cgroup-driver=systemd --v=2"\nHOME="/root"\n',
            ["--cgroup-driver=systemd", "--v=2"],
            id="kops: a variable in quotes",
        ),
        pytest.param(
            "/usr/local/bin/wrapper \\\n /usr/bin/kubelet \\\n  --config=/etc/k.conf --v=${L}",
            "L=2\n",
            ["--config=/etc/k.conf", "--v=2"],
            id="OpenShift: a wrapper",
        ),
        pytest.param(
            '/opt/bin/kubelet \\\n        --node-labels="${LABELS}" \\\n        $FLAGS',
            "FLAGS=--cgroup-driver=systemd --cloud-config= \nLABELS=a=b,c=d\n",
            ["--node-labels=a=b,c=d", "--cgroup-driver=systemd", "--cloud-config="],
            id="AKS: two variables",
        ),
    ],
)
def test_kubelets_of_public_clusters(unit, environment, flags):
    text = f"[Service]\nEnvironmentFile=/etc/k\nExecStart={unit}\n"
    texts = {"/etc/systemd/system/kubelet.service": text, "/etc/k": environment}
    service = systemd.parse_service(texts, "kubelet.service", program="kubelet")
    words = [part for word in service.words if word.effective for part in word.text.split()]
    assert [word for word in words if word.startswith("--")] == flags


def test_unused_words_are_ineffective():
    texts = {
        UNIT: "[Service]\nEnvironment=B=--b\nExecStart=/bin/a --c=${C}\n",
        DROPIN: "[Service]\nEnvironment=C=c\n",
        ENV: "B=--file\n",
    }
    service = systemd.parse_service(texts, "a.service", [ENV, "/etc/sysconfig/absent"])
    assert service.words == (
        Word("/bin/a", UNIT, None, True),
        Word("--c=c", UNIT, None, True),
        Word("--b", UNIT, "B", False),
        Word("--file", ENV, "B", False),
    )


def test_a_file_that_the_unit_does_not_read_sets_nothing():
    texts = {UNIT: "[Service]\nExecStart=/bin/a $B\n", ENV: "B=--file\n"}
    assert systemd.parse_service(texts, "a.service", [ENV]).words == (
        Word("/bin/a", UNIT, None, True),
        Word("--file", ENV, "B", False),
    )


def test_an_empty_assignment_takes_everything_back():
    texts = {
        UNIT: f"[Service]\nEnvironment=B=--b\nEnvironmentFile={ENV}\nExecStart=/bin/a $B\n",
        DROPIN: "[Service]\nEnvironment=\nEnvironmentFile=\n",
        ENV: "B=--file\n",
    }
    service = systemd.parse_service(texts, "a.service")
    assert [word.text for word in service.words] == ["/bin/a"]
    assert service.environment_files == ()


def test_drop_ins_apply_by_name_and_etc_hides_namesakes():
    texts = {
        UNIT: "[Service]\nExecStart=/bin/a $B\n",
        f"{UNIT}.d/20.conf": "[Service]\nEnvironment=B=--twenty\n",
        f"{UNIT}.d/10.conf": "[Service]\nEnvironment=B=--hidden\n",
        DROPIN: "[Service]\nEnvironment=B=--ten\n",
    }
    assert [word.text for word in words(texts)] == ["/bin/a", "--twenty", "--ten"]


def test_other_sections_do_not_count():
    assert words({UNIT: "[Unit]\nExecStart=/bin/a\n[Service]\nExecStart=/bin/b\n"}) == (
        Word("/bin/b", UNIT, None, True),
    )


def test_environment_files_are_named_before_they_are_read():
    unit = "[Service]\nEnvironmentFile=-/etc/default/a\nEnvironmentFile=/etc/a.d/*.env\n"
    service = systemd.parse_service({UNIT: unit}, "a.service")
    assert service.environment_files == ("/etc/default/a", "/etc/a.d/*.env")


def test_no_unit():
    assert words({}) == ()


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ({"ActiveState": "active", "ActiveEnterTimestampMonotonic": "60000000"}, 40.0),
        ({"ActiveState": "failed", "ActiveEnterTimestampMonotonic": "60000000"}, None),
        ({"ActiveState": "active"}, None),
        ({}, None),
        ({"ActiveState": "active", "ActiveEnterTimestampMonotonic": "²"}, None),
        ({"ActiveState": "active", "ActiveEnterTimestampMonotonic": "9" * 5000}, None),
    ],
)
def test_seconds_active(unit, expected):
    assert systemd.seconds_active(unit, uptime_s=100.0) == expected
    changed = {name.replace("ActiveEnter", "StateChange"): value for name, value in unit.items()}
    assert systemd.seconds_unchanged(changed, uptime_s=100.0) == expected


def test_seconds_of_a_reload_are_not_those_of_the_start():
    unit = {"ActiveState": "active", "ActiveEnterTimestampMonotonic": "1000000"}
    unit["StateChangeTimestampMonotonic"] = "90000000"
    seconds = (systemd.seconds_active(unit, 100.0), systemd.seconds_unchanged(unit, 100.0))
    assert seconds == (99.0, 10.0)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param("exec a --b", ["a", "--b"], id="exec"),
        pytest.param("V=1 /bin/a --b='c d'; true", ["/bin/a", "--b=c d"], id="quotes"),
        pytest.param("umask 022 && a --b --c=x;y", ["a", "--b", "--c=x"], id="operators"),
        pytest.param("a --b > /log 2>&1", ["a", "--b"], id="redirection"),
        pytest.param("a --b=#c", ["a", "--b=#c"], id="no comment"),
        pytest.param("a $ARGS --tail=${ONE}", ["a", "--x", "--y", "--tail=1"], id="variables"),
        pytest.param("a --b ''", ["a", "--b", ""], id="empty word"),
    ],
)
def test_a_shell_that_starts_the_program(script, expected):
    """In the unit file, and flattened as systemd shows it (quotes are lost there)."""
    quoted = script.replace("'", '"').replace('"', '\\"')
    unit = f'[Service]\nEnvironment="ARGS=--x --y" ONE=1\nExecStart=/bin/sh -ec "{quoted}"\n'
    found = systemd.parse_service({UNIT: unit}, "a.service", program="a")
    assert [word.text for word in found.words if word.effective] == expected
    shown = {
        "ExecStart": f"{{ path=/bin/sh ; argv[]=/bin/sh -ec {script} ; ignore_errors=no ; pid=0 }}",
        "Environment": '"ARGS=--x --y" ONE=1',
    }
    assert list(systemd.parse_command(shown, {}, "a")) == expected


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("/bin/sh -c 'b --c'", id="no such program"),
        pytest.param("/bin/sh /usr/local/bin/start-a --c", id="script in a file"),
        pytest.param('/bin/sh -c "a \'b"', id="unbalanced"),
    ],
)
def test_a_script_that_does_not_name_the_program(words):
    unit = f"[Service]\nExecStart={words}\n"
    found = systemd.parse_service({UNIT: unit}, "a.service", program="a").words
    assert found[0].text == "/bin/sh"


def test_parse_show_keeps_every_value_of_a_property():
    units = systemd.parse_show(recording("systemd/show-services-running.txt"))
    assert systemd.parse_environment_files(units["kubelet.service"]) == [
        "/var/lib/kubelet/kubeadm-flags.env",
        "/etc/default/kubelet",
    ]


def test_a_command_of_a_unit_that_systemd_does_not_know():
    assert systemd.parse_command({"Id": "a.service", "LoadState": "not-found"}, {}, "a") == ()


def test_environment_of_a_unit():
    """The last value counts; an empty one forgets those before it."""
    folder = "/etc/systemd/system/a.service.d"
    texts = {
        UNIT: "[Service]\nEnvironment=LOST=1\nEnvironmentFile=-/etc/default/a\n",
        f"{folder}/1.conf": "[Service]\nEnvironment=\nEnvironment='A=x y' B=50%%\n",
        f"{folder}/2.conf": "[Service]\nEnvironment=A=z\n",
        "/etc/default/a": "C=3\n",
    }
    found = systemd.parse_environment(texts, "a.service")
    assert {name: (one.value, one.file.rpartition("/")[2]) for name, one in found.items()} == {
        "A": ("z", "2.conf"),
        "B": ("50%", "1.conf"),
        "C": ("3", "a"),
    }

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stand in for the programs of a node."""

from __future__ import annotations

from pathlib import Path


class Programs:
    """Answers from a table keyed by how a command line begins; only what is in it is installed."""

    def __init__(
        self, answers: dict[str, tuple[int, str, str]], *, off_path: tuple[str, ...] = ()
    ) -> None:
        self.asked: list[str] = []  # command lines, in no order
        self.started: set[str] = set()  # paths of programs
        self._answers = answers
        self._off_path = off_path  # programs that no shell finds

    def find(self, name: str) -> str | None:
        installed = {line.split()[0] for line in self._answers} - {*self._off_path}
        return f"/usr/bin/{name}" if name in installed else None

    def run(self, argv: list[str], **options: object) -> tuple[int, str, str]:
        """Do what AnsibleModule.run_command does with a command below timeout(1)."""
        self.started.add(argv[3])
        line = " ".join([Path(argv[3]).name, *argv[4:]])
        self.asked.append(line)
        rc, stdout, stderr = next(
            answer for start, answer in self._answers.items() if line.startswith(start)
        )
        return rc, stdout, stderr

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the sessions of this machine and of others share: how a command is run and judged."""

from __future__ import annotations

import errno
from types import TracebackType

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read import login_refusals
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from metal_gpu.hosts import Host
from metal_gpu.ssh.conversation import Conversation, NotRoot, Pipe, TooSlow
from metal_gpu.ssh.settings import RUN_TIMEOUT_S, Answer, Settings, Unreachable

# A login shell may wait for a home directory, and sudo for a directory service.
_START_S = 30.0
# Why a password that was given does not count.
KEPT_BACK = (
    ". The password is kept back: nobody has named the machine, and this run has accepted its host "
    "key. Compare its fingerprint in known_hosts with that of the machine, and run the command "
    "again"
)
_TOO_MANY = (
    "this computer has too many open files: run `ulimit -n 65536` before, or ask fewer machines at "
    "a time"
)


def unreachable(host: Host, error: object) -> Unreachable:
    words = _TOO_MANY if is_full(error) else redact(str(error))
    return Unreachable(finding("NODE_UNREACHABLE", host.name, error=words))


def is_full(error: object) -> bool:
    """Tell whether this computer has no room for one more open file."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


class CommandSession:
    """Runs commands by starting them, each as a pipe."""

    def __init__(self, host: Host, settings: Settings, *, is_proven: bool = True) -> None:
        """Take a machine. One that is not proven to be ours gets no password."""
        self.host = host
        self._settings = settings
        self._is_proven = is_proven

    def start(self, command_line: str) -> Pipe:
        """Start a command. Raises Unreachable."""
        raise NotImplementedError

    def stop(self, pipe: Pipe) -> None:
        """Leave nothing of the command that this side holds."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def run(
        self,
        command: str,
        stdin: bytes = b"",
        timeout_s: float = RUN_TIMEOUT_S,
        sudo: bool = True,
    ) -> Answer:
        """Run a command of the shell `sh`; see Session."""
        root = sudo and self.host.become
        password = self.host.become_password or self._settings.become_password
        kept_back = "" if self._is_proven or not password else KEPT_BACK
        talk = Conversation(command, root=root, password=None if kept_back else password)
        pipe = self.start(talk.command_line)
        try:
            return talk.hold(pipe, stdin, max(_START_S, self._settings.timeout_s), timeout_s)
        except NotRoot as error:
            refusal = login_refusals.find(str(error))
            code = refusal.code if refusal else "SUDO_REFUSED"
            refused = finding(code, self.host.name, error=redact(f"{error}{kept_back}"))
            raise Unreachable(refused) from error
        except (TooSlow, OSError) as error:
            raise unreachable(self.host, error) from error
        finally:
            self.stop(pipe)

    def __enter__(self) -> CommandSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

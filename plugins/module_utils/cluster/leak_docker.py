# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""The leak test by `docker run`, for a node without a kubelet.

Who may call Docker is root on the node, and can always ask for GPUs. So only what happens without
asking is an attempt: an image, a variable, a mount that was copied from somewhere. One script does
all of it in one remote operation.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.cluster import leak_pods
from ansible_collections.metal.gpu.plugins.module_utils.cluster.leak_pods import Result

if TYPE_CHECKING:
    from collections.abc import Mapping

_BEGIN = "== "
_END = re.compile(r"^exit (?P<code>\d+)$", re.MULTILINE)
ATTEMPTS = (
    leak_pods.IMAGE,
    leak_pods.POD,
    leak_pods.PLAIN,
    leak_pods.MOUNT,
    leak_pods.PRIVILEGED,
)
_NO_DRIVER = "no container can get a GPU of this host: the driver is not loaded"
_REFUSED = 125  # by the daemon
# Words of a daemon or a toolkit that cannot start the container, whoever asks for it.
_BROKEN = re.compile(
    r"(?i)no space left on device|(?:cannot|failed to) connect to the docker|initialization error"
    r"|unresolvable CDI devices"
)


def script(image: str, cuda_image: str) -> str:
    """Return a shell script that runs a container for each attempt, and prints what it saw."""
    look = leak_pods.SCRIPT.replace("/dev/termination-log", "/dev/stdout")
    options: Mapping[str, tuple[str, ...]] = {
        leak_pods.IMAGE: (cuda_image,),
        leak_pods.POD: ("--env", f"{leak_pods.VARIABLE}=all", image),
        leak_pods.PLAIN: (image,),
        leak_pods.MOUNT: ("--volume", f"/dev/null:{leak_pods.VOLUME_MOUNT}", image),
        leak_pods.PRIVILEGED: ("--privileged", image),
    }
    lines = [
        # A missing image must not look like a container that the daemon refuses.
        f"docker image inspect {shlex.quote(one)} >/dev/null 2>&1 || "
        f"docker pull --quiet {shlex.quote(one)} 2>&1 || exit 0"
        for one in dict.fromkeys((image, cuda_image))
    ]
    run = ("docker", "run", "--rm", "--network", "none", "--entrypoint", "sh")
    for attempt in ATTEMPTS:
        lines.append(f"echo '{_BEGIN}{attempt}'")
        lines.append(shlex.join((*run, *options[attempt], "-c", look)) + ' 2>&1; echo "exit $?"')
    return "\n".join(lines)


def parse(output: str, *, is_loaded: bool = True) -> dict[str, Result]:
    """Return the results of the script; for attempts that it did not come to, why not.

    `is_loaded` tells whether the kernel has the driver.
    """
    found = {}
    for part in f"\n{output}".split(f"\n{_BEGIN}")[1:]:
        attempt, _newline, text = part.partition("\n")
        end = _END.search(text)
        said = " ".join(_END.sub("", text).split())
        if end and int(end["code"]) == _REFUSED:
            state = leak_pods.UNPROVEN if _BROKEN.search(said) else leak_pods.REFUSED
            found[attempt] = Result(state, message=said)
        else:
            found[attempt] = leak_pods.judge_output(text, attempt)
    why = " ".join(output.split()) if not found else "the script ended before this attempt"
    missing = Result(leak_pods.UNPROVEN, message=why)
    results = {name: found.get(name, missing) for name in ATTEMPTS}
    return leak_pods.controlled(results, "" if is_loaded else _NO_DRIVER)

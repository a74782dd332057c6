# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Many machines, observed at the same time and judged together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from metal_gpu import answering, inventory, parallel, ssh
from metal_gpu.hosts import Host
from metal_gpu.ssh.settings import Session, Settings, Unreachable

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import Verdict
    from metal_gpu.nodes import Node

Connect = Callable[[Host, Settings], Session]


class Fleet:
    """Machines that are observed together.

        for node in Fleet.from_inventory("inventory.yml").observe():
            print(node.name, [finding["code"] for finding in node.findings])

    Nothing is kept between calls: each `observe` asks the machines again.
    """

    def __init__(
        self,
        hosts: Iterable[Host],
        settings: Settings | None = None,
        *,
        limit: int = parallel.LIMIT,
        connect: Connect = ssh.connect,
    ) -> None:
        """Take hosts. At most `limit` of them are asked at the same time.

        `connect` logs in to a host. Whoever reaches machines in another way than SSH replaces it.
        """
        self.hosts = tuple(hosts)
        self.settings = settings or Settings()
        self._limit = limit
        self._connect = connect

    @classmethod
    def of(
        cls,
        hosts: Iterable[Host | str],
        settings: Settings | None = None,
        *,
        limit: int = parallel.LIMIT,
    ) -> Fleet:
        """Return the fleet of some hosts, or of texts such as `admin@10.0.0.7:2222`.

        Raises ValueError.
        """
        parsed = [Host.parse(one) if isinstance(one, str) else one for one in hosts]
        return cls(parsed, settings, limit=limit)

    @classmethod
    def from_inventory(
        cls,
        path: str | Path,
        settings: Settings | None = None,
        *,
        group: str | None = None,
        limit: int = parallel.LIMIT,
    ) -> Fleet:
        """Return the fleet of an Ansible inventory, or of one of its groups.

        Raises metal_gpu.inventory.InventoryError.
        """
        return cls(inventory.read(Path(path), group), settings, limit=limit)

    @classmethod
    def scan(
        cls,
        targets: Iterable[str],
        settings: Settings | None = None,
        *,
        rate: float = answering.RATE,
        timeout_s: float = answering.TIMEOUT_S,
        limit: int = parallel.LIMIT,
    ) -> Fleet:
        """Return the fleet of the machines with NVIDIA GPUs among targets such as 10.0.0.0/24.

        Each has its number of GPUs as the variable `gpu_count`. A machine that was named, or that
        answers SSH, and could not be observed is in the fleet as well: `observe` says why.
        At most `rate` connections are opened in a second.

        Raises metal_gpu.targets.TargetsInvalid, and metal_gpu.ssh.targets.ConfigInvalid.
        """
        from metal_gpu import scan
        from metal_gpu.targets import parse

        login = settings or Settings()
        found = scan.scan(parse([*targets]), login, rate=rate, timeout_s=timeout_s, limit=limit)
        return cls(scan.hosts_with_gpus(found.machines), login, limit=limit)

    def observe(self) -> Iterator[Node]:
        """Yield each machine when it has answered, or with the finding why it has not.

        Changes nothing on a machine, and keeps no node after it was yielded.
        """
        from metal_gpu.nodes import failed

        for host, answer in parallel.each(self.hosts, self._observe, self._limit):
            yield failed(host, answer) if isinstance(answer, Exception) else answer

    def verify(
        self, kubeconfig: str | None = None, *, context: str | None = None, wait_s: int = 0
    ) -> dict[str, Verdict]:
        """Return the verdict on each host: of its machine, and of what the cluster says about it.

        The cluster gets `wait_s` seconds to report the expected GPUs. The layer `smoke` is not
        asked: the playbook metal.gpu.verify also runs pods that compute.
        """
        from metal_gpu import verdicts

        return verdicts.judge(self.observe(), kubeconfig, context, wait_s, order=self._names())

    def _names(self) -> list[str]:
        return [host.name for host in self.hosts]

    def _observe(self, host: Host) -> Node:
        from metal_gpu import nodes

        try:
            with self._connect(host, self.settings) as session:
                return nodes.observe(host, session)
        except Unreachable as error:
            return nodes.Node(host, None, error.finding)

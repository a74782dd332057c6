#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet
short_description: Put together what a run knows about all hosts of a play
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Reads the results of M(metal.gpu.plan), which the hosts of the play have registered as
    C(metal_gpu). Returns what to ask the cluster, or the verdict on each host. Runs nothing.
  - Use it with C(run_once). Internal to P(metal.gpu.preflight#role) and P(metal.gpu.verify#role).
extends_documentation_fragment:
  - metal.gpu.attributes.reads
options:
  query:
    description:
      - V(reports) is what decides about the admission of each host.
      - V(admission) is which hosts may go on, and which of these have work.
      - V(members) are the nodes for the device plugin.
      - V(questions) is what to ask the cluster about each node.
      - V(images) is on which hosts an image can run, and V(containers) the judgement of each host
        without Kubernetes, from what two scripts have printed there.
      - V(downloads) is what the plans of all hosts fetch.
      - V(doubts) are the hosts to observe again, because they have changed since.
      - V(verdicts) is the judgement of each host, and V(left_out) of those that the run left out.
      - V(ended) is how many hosts a teardown has restored.
    type: str
    required: true
    choices:
      [reports, admission, members, questions, doubts, verdicts, left_out, ended, images,
       containers, downloads]
  cluster:
    description: What the cluster has answered to preflight. RV(metal.gpu.gpu_capacity#module:nodes)
      or, for a teardown, RV(metal.gpu.gpu_drain#module:nodes), the error, the missing permissions,
      and refusals that concern all hosts.
    type: dict
    default: {nodes: {}}
  invalid: {description: "The refusals of variables, by host and name.", type: dict, default: {}}
  drain: {description: Whether pods that hold GPUs may be evicted., type: bool, default: false}
  skip_refused:
    description: Whether the other hosts may go on if hosts are refused.
    type: bool
    default: false
  run:
    description: The RV(run) that O(query=admission) has returned, with more C(findings). Without
      it, what the hosts have registered in roles counts for nothing.
    type: dict
    default: {}
  capacity:
    description: The nodes, which are RV(metal.gpu.gpu_capacity#module:nodes).
    type: dict
    default: {}
  smoke:
    description: The nodes, which are RV(metal.gpu.gpu_smoke_pod#module:nodes).
    type: dict
    default: {}
  unanswered:
    description: Findings that explain why the cluster gave no answer about any node.
    type: list
    elements: dict
    default: []
  asked:
    description: What was queried. A layer that was queried and has no answer is a finding.
    type: list
    elements: str
    choices: [cluster, smoke]
    default: [cluster, smoke]
  again:
    description: Second results of M(metal.gpu.plan), each with its C(host).
    type: list
    elements: dict
    default: []
  since:
    description: When the run started, in seconds of the epoch, for the last line of the table.
    type: float
  drift: {description: Whether the steps of plans are findings., type: bool, default: true}
  rehearsal:
    description: Whether a real run would carry out the steps of plans. In check mode, what they
      mend is then no finding.
    type: bool
    default: true
  image:
    description: With O(query=images) and O(query=containers), the image.
    type: str
    default: ""
  capabilities:
    description: Compute capabilities for which the image has code. Empty if nobody knows them.
    type: list
    elements: str
    default: []
  command:
    description: The program that the image runs on each GPU. Empty for C(vectorAdd).
    type: list
    elements: str
    default: []
  mirror:
    description: With O(query=downloads), the address of the mirror that the hosts will use.
    type: str
    default: ""
  registry:
    description: With O(query=downloads), the registry with the images, such as
      C(registry.example:5000). Default is the host of O(mirror).
    type: str
    default: ""
  report:
    description: With O(query=verdicts) and O(query=containers), a file on the controller. The
      verdicts are compared with those that it has, and written to it, except in check mode.
    type: path
"""

EXAMPLES = r"""
- name: Judge all nodes
  metal.gpu.fleet:
    query: verdicts
    capacity: "{{ capacity.nodes }}"
    asked: [cluster]
  register: verdict
  run_once: true

- name: Show the table of all nodes
  ansible.builtin.debug:
    msg: "{{ verdict.table }}"
  run_once: true
"""

RETURN = r"""
reports:
  description: >-
    The name of each host's node, whether its kubelet runs, its refusals, and whether it has work.
  type: dict
  returned: with O(query=reports)
members:
  description: The host, the name of its node and the engine, of each observed host.
  type: list
  elements: dict
  returned: with O(query=members)
questions:
  description: For each observed node its name, the expected number of GPUs, whether to wait for
    them, whether to run pods, and the image with a CUDA program that fits it.
  type: list
  elements: dict
  returned: with O(query=questions)
hosts:
  description: The hosts to observe again, or those on which the image can run.
  type: list
  elements: str
  returned: with O(query=doubts) and O(query=images)
verdicts:
  description: The verdict on each host, with C(layers), C(findings) and C(ok). A host can be C(ok)
    and C(busy), if pods hold all GPUs, so that none is proven. In check mode, it is C(planned) if
    it lacks only what a real run is about to set up. C(level) is how far pods proved GPUs. C(gpus)
    has each GPU with its C(address) and C(uuid), the first layer that lacks it (C(lost_at)),
    whether a program in a pod C(computed) on it, and the pod that keeps it C(busy). C(seen) has the
    GPUs of each layer, and C(lost) the lines about lost GPUs. With O(query=containers),
    C(container) has the versions that the container saw, the digest of the image, and on how many
    GPUs it computed.
  type: dict
  returned: with O(query=verdicts), O(query=left_out) and O(query=containers)
report:
  description: O(report), or empty.
  type: str
  returned: with O(query=verdicts), O(query=left_out) and O(query=containers)
downloads:
  description: The C(repositories) with the packages and the hosts that install them, the packages
    of the C(system)'s own sources, the C(files), the C(images), and the C(variables) of the hosts
    for the mirror.
  type: dict
  returned: with O(query=downloads)
refusals:
  description: Why nobody knows what a host will fetch, by host. The list is without these hosts.
  type: dict
  returned: with O(query=downloads)
cordoned:
  description: Hosts that are cordoned although nothing is wrong with them.
  type: list
  elements: str
  returned: with O(query=verdicts)
failures:
  description: The codes of the findings for which a host fails, by host.
  type: dict
  returned: with O(query=verdicts), O(query=left_out) and O(query=containers)
begin: {description: Whether the run may start., type: bool, returned: with O(query=admission)}
stopped:
  description: The refusals and stops of each host that has any. Those of no host have other names.
  type: dict
  returned: with O(query=admission)
run:
  description: The C(id) of the run, when it C(started), the hosts that are C(admitted) and
    C(refused), the roles that have C(work) by host, one host without work among the C(bystanders),
    and the C(findings) by host.
  type: dict
  returned: with O(query=admission), if the run starts
explained:
  description: Each finding once, as lines.
  type: list
  elements: str
  returned: >-
    with O(query=admission), O(query=verdicts), O(query=left_out), O(query=images) and
    O(query=containers)
table:
  description: The verdicts as lines. The last line counts nodes and GPUs. Empty if
    O(query=admission) lets the run start.
  type: list
  elements: str
  returned: with O(query=admission), O(query=verdicts), O(query=left_out) and O(query=containers)
outcome:
  description:
    - V(ok) or V(unhealthy). V(planned) in check mode, if only a real run can prove some hosts, and
      no host fails. V(cluster_down) if the API server gave no usable answer. V(refused) if the run
      does not start.
    - V(unproven) instead of V(ok) with O(query=left_out), which proves no GPU.
    - It is also the custom statistic C(metal_gpu_outcome) of the run.
  type: str
  returned: >-
    with O(query=verdicts), O(query=left_out) and O(query=containers), and if the run does not start
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

_LAYERS = ["cluster", "smoke"]
ARGUMENT_SPEC: dict[str, Any] = {
    "query": {
        "type": "str",
        "required": True,
        "choices": [
            *("reports", "admission", "members", "questions", "doubts", "verdicts", "left_out"),
            *("ended", "images", "containers", "downloads"),
        ],
    },
    "cluster": {"type": "dict", "default": {"nodes": {}}},
    "invalid": {"type": "dict", "default": {}},
    "drain": {"type": "bool", "default": False},
    "skip_refused": {"type": "bool", "default": False},
    "run": {"type": "dict", "default": {}},
    "capacity": {"type": "dict", "default": {}},
    "smoke": {"type": "dict", "default": {}},
    "unanswered": {"type": "list", "elements": "dict", "default": []},
    "asked": {"type": "list", "elements": "str", "choices": _LAYERS, "default": _LAYERS},
    "again": {"type": "list", "elements": "dict", "default": []},
    "since": {"type": "float"},
    "drift": {"type": "bool", "default": True},
    "rehearsal": {"type": "bool", "default": True},
    "report": {"type": "path"},
    "image": {"type": "str", "default": ""},
    "capabilities": {"type": "list", "elements": "str", "default": []},
    "command": {"type": "list", "elements": "str", "default": []},
    "mirror": {"type": "str", "default": ""},
    "registry": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(msg="the action plugin of this module runs on the controller")


if __name__ == "__main__":
    main()

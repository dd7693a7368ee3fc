"""**What.** Containers or pods of one job meet at a name that they cannot find: the name of a container in Docker's
default network or in that of the host, the loopback in containers of their own, a service that compose does not have,
a pod without the headless service of its JobSet, indexed Job, StatefulSet or job of Volcano.

**Why it hurts.** `Name or service not known`, or a loopback at which nobody listens: rank 0 waits, the others give up
when the rendezvous times out, and no log says which name would be right.

**Fix.** `docker network create` and `--network` for all; the name of the service; `POD.SERVICE` with the subdomain
that the pods have (a JobSet: its own name, unless `network.subdomain` says otherwise).

**When it stays quiet.** For addresses that nobody can read, for names of other machines, with `--link`, `--add-host`,
`extra_hosts`, `include` or files of variables, and for rank 0 itself.

**Evidence.** Docker's manual (bridge networks: no names in the default one; host networking), and the documentation of
compose, of Kubernetes (DNS for pods) and of JobSet (`network.subdomain`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.traits import LOST_ADDRESSES
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL333",
    name="meeting-at-lost-name",
    kind="launch",
    severity=Severity.WARNING,
    summary="Containers or pods of one job meet at a name that they cannot find",
    references=(
        "https://docs.docker.com/engine/network/drivers/bridge/",
        "https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/",
        "https://jobset.sigs.k8s.io/docs/concepts/",
    ),
    no_experiment="it takes containers or a cluster, and the sources are the manuals of Docker and Kubernetes",
    needs=(LOST_ADDRESSES,),
)

_DOCKER = (
    "docker run -d --name node0 {n} -e MASTER_ADDR={a} -e WORLD_SIZE=2 -e RANK=0 team/train\n"
    "docker run -d --name node1 {n} -e MASTER_ADDR={a} -e WORLD_SIZE=2 -e RANK=1 team/train\n"
)
_COMPOSE = """\
services:
  trainer-0:
    image: team/train{m}
    command: torchrun --nnodes=2 --node_rank=0 --nproc_per_node=1 --master_addr={a} train.py
  trainer-1:
    image: team/train{m}
    command: torchrun --nnodes=2 --node_rank=1 --nproc_per_node=1 --master_addr={a} train.py
"""
_JOBSET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: bert
spec:
  {network}replicatedJobs:
    - name: node
      replicas: 1
      template:
        spec:
          parallelism: 2
          template:
            spec:
              containers:
                - name: main
                  image: team/train:1
                  command: [bash, -c, "torchrun --nnodes=2 --master_addr={a} --node_rank=$RANK train.py"]
"""
_JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  completionMode: Indexed
  completions: 2
  parallelism: 2
  template:
    spec:
      {sub}containers:
        - name: main
          image: team/train:1
          env:
            - name: MASTER_ADDR
              value: {a}
          command: ["torchrun", "--nnodes=2", "--rdzv_backend=c10d", "--rdzv_endpoint=$(MASTER_ADDR):29500", "train.py"]
"""
_VOLCANO = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata:
  name: asr
spec:
  minAvailable: 2
  plugins: {plugins}
  tasks:
    - name: master
      replicas: 1
      template:
        spec:
          {sub}containers: &containers
            - name: main
              image: team/train:1
              env:
                - {{name: MASTER_ADDR, value: {a}}}
              command: ["python", "train.py"]
    - name: worker
      replicas: 1
      template:
        spec:
          containers: *containers
"""
_SCRIPT = {"train.py": "print()\n"}


def _docker(network: str, address: str) -> dict[str, str]:
    return {"run.sh": _DOCKER.format(n=network, a=address)}


def _compose(address: str, mode: str = "") -> dict[str, str]:
    mode = f"\n    network_mode: {mode}" if mode else ""
    return {"compose.yaml": _COMPOSE.format(a=address, m=mode), **_SCRIPT}


def _jobset(address: str, network: str = "") -> dict[str, str]:
    network = f"network:\n    subdomain: {network}\n  " if network else ""
    return {"jobset.yaml": _JOBSET.format(a=address, network=network), **_SCRIPT}


def _job(address: str, subdomain: str = "") -> dict[str, str]:
    subdomain = f"subdomain: {subdomain}\n      " if subdomain else ""
    return {"job.yaml": _JOB.format(a=address, sub=subdomain), **_SCRIPT}


def _volcano(address: str, plugins: str = "{svc: [], env: []}", sub: str = "") -> dict[str, str]:
    return {"job.yaml": _VOLCANO.format(a=address, plugins=plugins, sub=sub), **_SCRIPT}


EXAMPLES = (
    bad("Docker's default network", _docker("--gpus all", "node0"), "run.sh:2"),
    bad("a variable, and the bridge by its name", {
        "run.sh": "HEAD=node0\n" + _DOCKER.format(n="--net bridge", a='"$HEAD"'),
    }, "run.sh:3"),
    bad("the network of the host", _docker("--network=host", "node0"), "run.sh:2"),
    bad("the loopback of each container", _docker("--gpus all", "localhost"), "run.sh:2"),
    bad("services at the loopback", _compose("127.0.0.1"), "compose.yaml:7"),
    bad("a service that has another name", _compose("trainer0"), ("compose.yaml:4", "compose.yaml:7")),
    bad("the name of a service in the network of the host", _compose("trainer-0", "host"), "compose.yaml:9"),
    bad("the subdomain of a JobSet", _jobset("bert-node-0-0.bert-node"), "jobset.yaml:17"),
    bad("a JobSet with another subdomain", _jobset("bert-node-0-0.bert", "train"), "jobset.yaml:19"),
    bad("an indexed Job without a subdomain", _job("train-0.train"), "job.yaml:16"),
    bad("a pod without its service", _job("train-0", "train"), "job.yaml:17"),
    bad("a pod of Volcano without its service", _volcano("asr-master-0"), "job.yaml:17"),
    bad("a pod of Volcano with another service", _volcano("asr-master-0.asr-svc"), "job.yaml:17"),
    bad("pods of Volcano that nobody serves", _volcano("asr-master-0.asr", "{env: []}"), "job.yaml:17"),
    good("a network of their own", _docker("--network train", "node0")),
    good("a link", {"run.sh": _DOCKER.format(n="--link node0:node0", a="node0")}),
    good("the name of a machine", _docker("--network=host", "gpu-node-7")),
    good("the loopback of one host", _docker("--network host", "127.0.0.1")),
    good("the service", _compose("trainer-0")),
    good("one network for both", {
        "run.sh": _DOCKER.format(n="", a="127.0.0.1").replace("node1 ", "node1 --network container:node0"),
    }),
    good("the JobSet itself", _jobset("bert-node-0-0.bert")),
    good("the subdomain that it has", _jobset("bert-node-0-0.train", "train")),
    good("an indexed Job", _job("train-0.train", "train")),
    good("a pod of Volcano", _volcano("asr-master-0.asr")),
    good("a service of their own", _volcano("asr-master-0.peers", "{env: []}", "subdomain: peers\n          ")),
    good("with its namespace", _job("train-0.train.default.svc.cluster.local", "train")),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Each address at which nobody is found."""
    del context
    for lost in doc.lost_addresses:
        yield META.finding(
            lost.location,
            f"`{lost.address}` {lost.why}",
            hint=lost.hint,
            related=lost.related,
            severity=Severity.INFO if doc.in_docs else None,
        )

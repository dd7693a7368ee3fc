"""Options of a launcher that exclude each other, or of which one is missing: it stops before it starts anything.

The real `main` of the launcher reads the words, as written and as fixed; only the start of processes is left out. Hosts
are names in a file; none is reached.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

_RANK = Expect((Kind.RAISE,), r"AssertionError: Launching training without ssh, but --node_rank is not set")
_BOTH = Expect((Kind.RAISE,), r"ValueError: .*(Don't use both|cannot be used together)")
_FILTER = Expect((Kind.RAISE,), r"ValueError: .*(does not support worker include|does not support limiting num nodes)")
_MACHINE = Expect((Kind.RAISE,), r"TypeError: int\(\) argument must be a string")
_HOSTS = "--hostfile hosts"
_GOOD = "a slots=2\nb slots=2\n"
_MULTI = "--multi_gpu --num_machines 2 --num_processes 4"
_INTEGER = Expect((Kind.RAISE,), r"invalid int value: '0,1'")
_ONE_NODE = Expect((Kind.WRONG,), r"starts on 1 node instead of 2")
_ZERO = "--use_deepspeed --num_machines 2 --num_processes 4 --deepspeed_multinode_launcher standard"

_NODES = (
    "--use_deepspeed --num_machines 2 --num_processes 4 --machine_rank 0 --main_process_ip a --main_process_port 29501"
)


def _case(
    name: str,
    rule: str,
    expect: Expect,
    launcher: str,
    words: str,
    right: str,
    verdict: Verdict = Verdict.CONFIRMED,
    hosts: str = _GOOD,
) -> Case:
    lines = {"launcher": launcher, "words": f"{words} train.py", "right": f"{right} train.py", "hosts": hosts}
    return Case(name, lines, expect, verdict, (rule,))


EXPERIMENT = Experiment(
    name="launcher-options-refused",
    summary="a launcher stops because its options exclude each other, or one of them is missing",
    flavour="deepspeed",
    ranks=1,
    cpu_only=True,
    expect=_BOTH,
    cases=(
        _case("no-ssh-without-rank", "DSL327", _RANK, "deepspeed", f"{_HOSTS} --no_ssh",
              f"{_HOSTS} --no_ssh --node_rank 0 --master_addr a"),
        _case("no-ssh-on-one-node", "DSL327", _RANK, "deepspeed", "--no_ssh --num_gpus 2",
              "--no_ssh --num_gpus 2 --node_rank 0"),
        _case("no-ssh-with-rank", "DSL327", _RANK, "deepspeed", f"{_HOSTS} --no_ssh --node_rank 1 --master_addr a",
              f"{_HOSTS} --no_ssh --node_rank 0 --master_addr a", Verdict.NOT_REPRODUCED),
        _case("openmpi-with-include", "DSL328", _FILTER, "deepspeed", f"{_HOSTS} --launcher openmpi --include a:0@b:0",
              f"{_HOSTS} --launcher pdsh --include a:0@b:0"),
        _case("mpich-with-num-gpus", "DSL328", _FILTER, "deepspeed", f"{_HOSTS} --launcher mpich --num_gpus 1",
              f"{_HOSTS} --launcher pdsh --num_gpus 1"),
        _case("slurm-with-include", "DSL328", _FILTER, "deepspeed", f"{_HOSTS} --launcher slurm --include a@b",
              f"{_HOSTS} --launcher slurm", Verdict.NOT_REPRODUCED),
        _case("module-no-python-deepspeed", "DSL329", _BOTH, "deepspeed", "--num_gpus 2 --module --no_python",
              "--num_gpus 2 --module"),
        _case("module-no-python-torchrun", "DSL329", _BOTH, "torchrun", "--nproc_per_node 2 -m --no-python",
              "--nproc_per_node 2 -m"),
        _case("module-no-python-accelerate", "DSL329", _BOTH, "accelerate", "--num_processes 2 --module --no_python",
              "--num_processes 2 --module"),
        _case("deepspeed-m", "DSL329", Expect((Kind.RAISE,), r"unrecognized arguments: -m"), "deepspeed",
              "--num_gpus 2 -m", "--num_gpus 2 --module"),
        _case("no-machine-rank", "DSL345", _MACHINE, "accelerate", _MULTI, f"{_MULTI} --machine_rank 1"
              " --main_process_ip a --main_process_port 29501"),
        _case("no-machine-rank-c10d", "DSL345", _MACHINE, "accelerate", f"{_MULTI} --rdzv_backend c10d"
              " --main_process_ip a --main_process_port 29501", f"{_MULTI} --rdzv_backend c10d --machine_rank 1"
              " --main_process_ip a --main_process_port 29501"),
        _case("no-machine-rank-deepspeed", "DSL345", _MACHINE, "accelerate", f"{_ZERO} --zero_stage 2",
              f"{_ZERO} --machine_rank 1 --main_process_ip a --main_process_port 29501"),
        _case("hostfile-missing", "DSL451", _ONE_NODE, "deepspeed", "--hostfile other", _HOSTS),
        *(
            _case(f"machines-without-hostfile-{by}", "DSL355", _ONE_NODE, "accelerate",
                  f"{_NODES} --deepspeed_multinode_launcher {by}", f"{_NODES} {right}", verdict)
            for by, right, verdict in (
                ("pdsh", "--deepspeed_hostfile hosts", Verdict.CONFIRMED),
                ("openmpi", "--deepspeed_multinode_launcher standard", Verdict.CONFIRMED),
                ("nossh", "--deepspeed_hostfile hosts --deepspeed_multinode_launcher nossh", Verdict.CONFIRMED),
                ("standard", "--deepspeed_hostfile hosts", Verdict.NOT_REPRODUCED),
            )
        ),
        _case("hostfile-line", "DSL451", Expect((Kind.RAISE,), r"ValueError: Hostfile contains a bad entry: b 2"),
              "deepspeed", _HOSTS, _HOSTS, hosts="a slots=2\nb 2\n"),
        _case("hostfile-twice", "DSL451", Expect((Kind.RAISE,), r"ValueError: Hostfile contains multiple entries"),
              "deepspeed", _HOSTS, _HOSTS, hosts="a slots=2\na slots=2\n"),
        _case("hostfile-empty", "DSL451", Expect((Kind.RAISE,), r"ValueError: Hostfile is empty"), "deepspeed", _HOSTS,
              _HOSTS, hosts="# later\n"),
        _case("hostfile-with-more-words", "DSL451", _BOTH, "deepspeed", _HOSTS, _HOSTS, Verdict.NOT_REPRODUCED,
              "a slots=2 gpus=2\n\n# end\nb slots=2\n"),
        _case("multi-gpu-one-process", "DSL346", Expect((Kind.RAISE,), r"ValueError: You need to use at least 2"),
              "accelerate", "--multi_gpu --num_processes 1", "--num_processes 1"),
        _case("multi-gpu-two-processes", "DSL346", Expect((Kind.RAISE,), r"ValueError: You need to use at least 2"),
              "accelerate", "--multi_gpu --num_processes 2", "--num_processes 2", Verdict.NOT_REPRODUCED),
        _case("option-of-torchrun", "DSL308", Expect((Kind.RAISE,), r"unrecognized arguments: --nproc_per_node"),
              "accelerate", "--nproc_per_node=2", "--num_processes=2"),
        _case("hyphens", "DSL308", Expect((Kind.RAISE,), r"unrecognized arguments: --num-gpus"), "deepspeed",
              "--num-gpus 2", "--num_gpus 2"),
        _case("count-deepspeed", "DSL395", _INTEGER, "deepspeed", "--num_gpus 0,1", "--num_gpus 2"),
        _case("count-accelerate", "DSL395", _INTEGER, "accelerate", "--num_processes 0,1", "--num_processes 2"),
    ),
)  # fmt: skip


def written(rank: RankApi) -> Json:
    """The words as they are."""
    return _starts(rank, rank.params["words"], rank.params["hosts"])


def fixed(rank: RankApi) -> Json:
    """The words without the contradiction."""
    return _starts(rank, rank.params["right"], _GOOD)


def _starts(rank: RankApi, words: str, hosts: str) -> Json:
    from dslint.probe.parts.launch_parsers import launched

    with open("hosts", "w", encoding="utf-8") as file:
        file.write(hosts)
    return launched(rank.params["launcher"], words.split()).get("nodes")


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Fewer nodes than the words seem to say."""
    return f"it starts on {values[0]} node instead of {reference[0]}" if values[0] != reference[0] else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The case with the launcher and the options of the finding."""
    finding = subject.finding
    if finding.code == "DSL451":
        return {} if case.name == f"hostfile-{finding.fact('kind')}" else None
    if finding.code == "DSL327":
        return {} if finding.fact("missing") == "node_rank" and case.name == "no-ssh-without-rank" else None
    if finding.code == "DSL308":
        wanted = {"accelerate": "option-of-torchrun", "deepspeed": "hyphens"}
        return {} if case.name == wanted.get(str(finding.fact("launcher"))) else None
    if finding.code == "DSL395":
        return {} if case.name == f"count-{finding.fact('launcher')}" else None
    if finding.code == "DSL328":
        return {} if case.name == finding.fact("case") else None
    if finding.code == "DSL329":
        of_launcher = f"module-no-python-{finding.fact('launcher')}"
        return {} if case.name == ("deepspeed-m" if finding.fact("options") == "m" else of_launcher) else None
    if finding.code == "DSL355":
        return {} if case.name == f"machines-without-hostfile-{finding.fact('starter')}" else None
    return {} if case.name in ("no-machine-rank", "multi-gpu-one-process") else None

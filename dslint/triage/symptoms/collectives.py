"""Ranks that run different collectives, or wait in one for a rank that does not come."""

from __future__ import annotations

from dslint.triage.symptom import Cause, Pattern, Symptom, doctor

WATCHDOG, ENQUEUED = "nccl-watchdog", "nccl-watchdog-status"
XTUNER = "xtuner-dataset-timeout"
_GUARDED = Cause("a call that every rank must make is made by some ranks only", ("DSL201",))
_UNEVEN = Cause("ranks run a loop with a collective a different number of times", ("DSL207",))
_LABELS = Cause(
    "evaluation gathers a `label_names` entry whose shape or presence differs by rank", ("DSL203", "DSL412")
)
_FAILED = Cause("a rank failed or was killed before: its own first error is the cause", peer=True)

SYMPTOMS = (
    Symptom(
        name=WATCHDOG,
        title="NCCL's watchdog ended a collective that did not finish in time",
        meaning="A rank waited in a collective until the process group's timeout. The other ranks did not come "
        "to it, came "
        "to another one, or cannot be reached.",
        role="timeout",
        causes=(
            _GUARDED,
            _UNEVEN,
            _LABELS,
            _FAILED,
            Cause("one rank does slow work while the others wait: a longer timeout helps only here", ("DSL223",)),
            Cause(
                "the links between GPUs or nodes: peer-to-peer, InfiniBand, the chosen interface",
                checks=doctor("gpus", "network-interface"),
            ),
        ),
        patterns=(
            Pattern(
                r"[Ww]atchdog caught collective operation timeout: WorkNCCL\("
                r"(?:SeqNum=(?P<seq>\d+), )?OpType=(?P<op>\w+)"
                r"(?:, NumelIn=(?P<numel_in>\d+), NumelOut=(?P<numel_out>\d+)|, TensorShape=\[(?P<shape>[\d, ]*)\])?"
                r".{0,80}?Timeout\(ms\)=(?P<timeout>\d+)\)(?: ran for (?P<ran>\d+) milliseconds)?",
                gate="WorkNCCL(",
            ),
        ),
    ),
    Symptom(
        name="nccl-heartbeat",
        title="NCCL's watchdog thread itself is stuck",
        meaning="The thread that watches the collectives made no progress: a CUDA call does not return, or another "
        "thread holds the interpreter's lock.",
        role="timeout",
        causes=(
            Cause("a GPU or its driver does not answer", checks=doctor("gpus")),
            _FAILED,
            Cause("one thread of the process blocks the others for minutes (a large save or a C++ call)"),
        ),
        patterns=(Pattern(r"watchdog got stuck for (?P<time>\d+) seconds", gate="watchdog got stuck"),),
    ),
    Symptom(
        name="collective-mismatch",
        title="Ranks run different collectives at the same time",
        meaning="With TORCH_DISTRIBUTED_DEBUG=DETAIL torch compares what the ranks are about to run. They "
        "differ in the "
        "operation, or in the shape or type of the tensor.",
        role="state",
        causes=(_GUARDED, _LABELS, _UNEVEN),
        patterns=(Pattern(r"Detected mismatch between collectives on ranks\. (?P<what>.{0,2000})"),),
    ),
    Symptom(
        name="gloo-size-mismatch",
        title="A rank received a tensor of another size than it expects",
        meaning="Two ranks are in different collectives, or in the same one with tensors of different shapes. "
        "On NCCL the "
        "same mistake hangs or gives wrong numbers.",
        role="state",
        causes=(_LABELS, _UNEVEN, _GUARDED, Cause("a batch that does not divide among the ranks", ("DSL270",))),
        patterns=(
            Pattern(r"op\.preamble\.length <= op\.nbytes\. (?P<got>\d+) vs (?P<wanted>\d+)", gate="op.preamble.length"),
        ),
    ),
    Symptom(
        name="peer-closed",
        title="A rank lost the connection to another rank",
        meaning="The other rank ended while this one waited for it in a collective: it failed, was killed, or finished "
        "early. This line is the consequence; the other rank's log holds the cause.",
        role="lost",
        causes=(_FAILED, _GUARDED, _UNEVEN),
        patterns=(
            Pattern(r"(?:gloo|c10d|SocketImpl).{0,400}Connection (?:closed|reset) by peer", gate="by peer"),
            Pattern(r"[Rr]ecv, got 0 bytes"),
            Pattern(r"NCCL error.{0,300}remote process exited"),
        ),
    ),
    Symptom(
        name="gloo-timeout",
        title="A rank waited in a gloo collective until its timeout",
        meaning="Another rank did not come to the collective in time.",
        role="timeout",
        causes=(_GUARDED, _UNEVEN, _FAILED, Cause("one rank is late: a longer timeout helps only here", ("DSL223",))),
        patterns=(Pattern(r"Timed out waiting (?P<time>\d+)ms for (?P<op>recv|send) operation to complete"),),
    ),
    Symptom(
        name="monitored-barrier",
        title="monitored_barrier names the ranks that did not come",
        meaning="The named ranks were elsewhere, or had ended, when the others stood in the barrier.",
        role="timeout",
        causes=(_FAILED, _GUARDED, Cause("the named ranks still prepare data", ("DSL353",))),
        patterns=(
            Pattern(r"Ranks? (?P<missing>[\d, ]+) failed to pass monitoredBarrier in (?P<time>\d+) ?ms"),
            Pattern(r"monitoredBarrier.{0,120}errors while waiting for send/recv from rank (?P<missing>\d+)"),
        ),
    ),
    Symptom(
        name=XTUNER,
        title="XTuner's ranks waited for rank 0 to prepare the data set",
        meaning="XTuner prepares the data set on rank 0; the others wait in a monitored barrier for "
        "XTUNER_DATASET_TIMEOUT "
        "minutes (60 unless it is set).",
        role="state",
        causes=(
            Cause(
                "the data set takes longer than the timeout: set XTUNER_DATASET_TIMEOUT, or prepare it beforehand",
                ("DSL353",),
            ),
        ),
    ),
    Symptom(
        name="unused-parameters",
        title="DDP found parameters without a gradient",
        meaning="The backward pass of the last step did not reach every parameter, so the reduction never "
        "finished. The "
        "rank that notices raises; the others wait for it.",
        role="cause",
        causes=(
            Cause(
                "a part of the model is used for some batches only (an image tower, an expert): use it always, with "
                "weight 0, or set find_unused_parameters"
            ),
            _UNEVEN,
        ),
        patterns=(Pattern(r"Expected to have finished reduction in the prior iteration"),),
    ),
    Symptom(
        name="gather-of-text",
        title="Evaluation tries to gather something that is no tensor",
        meaning="accelerate pads and gathers what `label_names` lists. A list of strings or a dict cannot be gathered.",
        role="cause",
        causes=(_LABELS,),
        patterns=(
            Pattern(r"TypeError: Unsupported types \(.{1,80}\) passed to `?_?(?:pad_across_processes|gpu_gather)"),
            Pattern(r"TypeError: Can't pad the values of type"),
        ),
    ),
    Symptom(
        name="timeout-type",
        title="The timeout of a process group is no timedelta",
        meaning="torch takes a datetime.timedelta only.",
        role="cause",
        causes=(Cause("timeout= is a number", ("DSL221",)),),
        patterns=(Pattern(r"Expected timeout argument to be of type ?datetime\.timedelta"),),
    ),
)

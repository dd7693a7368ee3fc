"""Launch commands that start something else than what was meant."""

from __future__ import annotations

from dslint.triage.symptom import Cause, Pattern, Symptom

SYMPTOMS = (
    Symptom(
        name="option-as-command",
        title="The shell ran an option as a command",
        meaning="The line above lost its backslash: the job started without the options below it.",
        role="cause",
        causes=(Cause("a broken line continuation", ("DSL301", "DSL302", "DSL303")),),
        patterns=(Pattern(r"(?:^|: )(?P<flag>--?[A-Za-z][\w-]*): (?:command )?not found", gate=": command not found"),),
    ),
    Symptom(
        name="local-rank-argument",
        title="The script does not know the --local_rank that its launcher adds",
        meaning="deepspeed and torch.distributed.launch append --local_rank or --local-rank to the script's arguments.",
        role="cause",
        causes=(
            Cause(
                "the parser declares only one of the spellings, or none: declare both, or use torchrun and LOCAL_RANK"
            ),
        ),
        patterns=(Pattern(r"unrecognized arguments: .{0,400}--local[-_]rank"),),
    ),
    Symptom(
        name="launcher-argument",
        title="The script was given an option of the launcher",
        meaning="Options after the script's name go to the script.",
        role="cause",
        causes=(Cause("an option such as --nproc_per_node or --master_port comes after the script"),),
        patterns=(
            Pattern(
                r"unrecognized arguments: .{0,400}--(?:nproc[-_]per[-_]node|nnodes|node[-_]rank|master[-_](?:port|addr)"
                r"|num_gpus|num_nodes|hostfile|include|rdzv)"
            ),
        ),
    ),
    Symptom(
        name="launcher-unknown",
        title="deepspeed does not know the launcher it was given",
        meaning="`deepspeed --launcher` takes the name of one of its backends.",
        role="cause",
        causes=(Cause("--launcher holds another tool's value", ("DSL328",)),),
        patterns=(Pattern(r"NotImplementedError: Unknown launcher \w+"),),
    ),
    Symptom(
        name="slurm-time-limit",
        title="Slurm ended the job at its time limit",
        meaning="What other lines say about that moment is the consequence. A job that hung reaches the limit "
        "too: look at "
        "when the last step was logged.",
        role="state",
        causes=(Cause("the limit is too short, or the job hung before: look at the ranks' last lines"),),
        patterns=(Pattern(r"CANCELLED AT \S+ DUE TO TIME LIMIT"),),
    ),
)

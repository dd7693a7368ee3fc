"""A command passes its script what the parser of the script refuses.

As written, the words of the case go to a script whose argparse or HfArgumentParser does not take them: the process ends
with the parser's own error. As fixed, the words are what the declaration takes. The controls are words that look wrong
and are taken.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict


def _case(
    name: str, rule: str, old: str, new: str, match: str, adds: str = "", fields: bool = False, taken: bool = False
) -> Case:
    parameters: dict[str, Json] = {"old": old.split(), "new": new.split(), "adds": adds, "fields": fields}
    verdict = Verdict.NOT_REPRODUCED if taken else Verdict.CONFIRMED
    return Case(name, parameters, Expect((Kind.RAISE,), match), verdict=verdict, rules=(rule,))


_UNKNOWN = "unrecognized arguments: "
_UNUSED = r"ValueError.*not used by the HfArgumentParser"
EXPERIMENT = Experiment(
    name="script-refuses-arguments",
    summary="a command passes its script words that its parser refuses",
    rules=("DSL403", "DSL406", "DSL407", "DSL419", "DSL420"),
    flavour="transformers",
    ranks=1,
    expect=Expect((Kind.RAISE,), "error: "),
    cases=(
        _case("unknown-option", "DSL403", "--quant-bits 4", "--quant_bits 4", _UNKNOWN + "--quant-bits"),
        _case("unknown-word", "DSL403", "quiet", "--quiet", _UNKNOWN + "quiet"),
        _case("unknown-field", "DSL403", "--learing_rate 1", "--learning_rate 1", _UNUSED, fields=True),
        _case("abbreviated", "DSL403", "--quant 4", "--quant_bits 4", _UNKNOWN, taken=True),
        _case("with-hyphens", "DSL403", "--learning-rate 1", "--learning_rate 1", _UNUSED, fields=True, taken=True),
        _case("switch-with-value", "DSL407", "--quiet True", "--quiet", _UNKNOWN + "True"),
        _case("switch-with-glued-value", "DSL407", "--quiet=True", "--quiet", "ignored explicit argument 'True'"),
        _case("switch-of-a-dataclass", "DSL407", "--lazy True", "--lazy", _UNUSED, fields=True, taken=True),
        _case("choice", "DSL419", "--dtype float16", "--dtype fp16", "invalid choice: 'float16'"),
        _case("type", "DSL419", "--quant_bits 3.5", "--quant_bits 3", "invalid int value: '3.5'"),
        _case("no-value", "DSL419", "--quant_bits --quiet", "--quant_bits 4 --quiet", "expected one argument"),
        _case("ambiguous", "DSL419", "--qu 4", "--quant_bits 4", "ambiguous option: --qu could match"),
        _case("literal", "DSL419", "--dtype float16", "--dtype fp16", "invalid choice: 'float16'", fields=True),
        _case("boolean", "DSL419", "--lazy maybe", "--lazy True", "error: argument --lazy", fields=True),
        _case("underscore-in-a-number", "DSL419", "--quant_bits 1_0", "--quant_bits 10", "invalid int", taken=True),
        _case("required", "DSL420", "", "--data d", "arguments are required: --data", "--data"),
        _case("operand", "DSL420", "", "d", "arguments are required: data", "data"),
        _case("field", "DSL420", "", "--path d", "arguments are required: --path", "path", fields=True),
        _case("default", "DSL420", "", "--path d", "are required", "path with default", fields=True, taken=True),
        _case("removed-field", "DSL406", "--evaluation_strategy no", "--eval_strategy no", _UNUSED, "Trainer", True),
        _case("renamed-field", "DSL406", "--eval_strategy no", "", _UNUSED, "Trainer", fields=True, taken=True),
    ),
)  # fmt: skip


def written(rank: RankApi) -> Json:
    """The words that the parser refuses."""
    return _run(rank, rank.params["old"])


def fixed(rank: RankApi) -> Json:
    """Words that it takes."""
    return _run(rank, rank.params["new"])


def _run(rank: RankApi, words: list[str]) -> Json:
    import sys

    from dslint.probe.parts.launcher import told

    def run() -> None:
        sys.argv = ["train.py", *words]
        (_parse_fields if rank.params["fields"] else _parse)(rank.params["adds"])

    told("train.py", run)
    return "parsed"


def _parse(adds: str) -> None:
    import argparse

    parser = argparse.ArgumentParser("train.py")
    parser.add_argument("--quant_bits", type=int)
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--dtype", choices=["bf16", "fp16"])
    if adds.startswith("-"):
        parser.add_argument(adds, required=True)
    elif adds:
        parser.add_argument(adds)
    parser.parse_args()


def _parse_fields(adds: str) -> None:
    import sys
    from dataclasses import field, make_dataclass
    from typing import Any, Literal

    from transformers import HfArgumentParser, TrainingArguments

    parser: Any
    fields: list[Any] = [
        ("dtype", Literal["bf16", "fp16"], field(default="bf16")),
        ("lazy", bool, field(default=False)),
        ("learning_rate", float, field(default=5e-5)),
    ]
    if adds == "Trainer":
        parser = HfArgumentParser(TrainingArguments)
        parser.parse_args_into_dataclasses([*sys.argv[1:], "--output_dir", "out", "--use_cpu", "--report_to", "none"])
        return
    if adds:
        fields.insert(0, (adds.split()[0], str, field(default="d") if adds.endswith("default") else field()))
    parser = HfArgumentParser(make_dataclass("Arguments", fields))
    parser.parse_args_into_dataclasses(look_for_args_file=False)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The words of the finding are those of its script; the mechanism is the case of the same problem."""
    problem = subject.finding.fact("problem")
    names = {"unknown": "unknown-option", "leftover": "unknown-word", "no-value": "no-value"}
    if isinstance(problem, str) and names.get(problem, problem) != case.name:
        return None
    return {} if case.verdict is Verdict.CONFIRMED else None

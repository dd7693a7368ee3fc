"""An option that stands in a command twice: the first value is gone without a word.

The parser that a script or a launcher has reads the words, as written and with the first of the two alone.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="last-option-wins",
    summary="the second of two equal options replaces the value of the first",
    rules=("DSL450",),
    flavour="transformers",
    ranks=1,
    cpu_only=True,
    expect=Expect((Kind.WRONG,), r"the value is 2\S* instead of 1"),
    cases=(
        Case("argparse", {"parser": "argparse", "values": [1, 2]}),
        Case("hf", {"parser": "hf", "values": [1e-5, 2e-5]}),
        Case("torchrun", {"parser": "torchrun", "values": [1, 2]}),
        Case("append", {"parser": "append", "values": [1, 2]}, verdict=Verdict.NOT_REPRODUCED),
    ),
)  # fmt: skip


def written(rank: RankApi) -> Json:
    """The option twice."""
    return _value(rank, rank.params["values"])


def fixed(rank: RankApi) -> Json:
    """The option once."""
    return _value(rank, rank.params["values"][:1])


def _value(rank: RankApi, values: list[float]) -> Json:
    kind = rank.params["parser"]
    if kind == "hf":
        from transformers import HfArgumentParser, TrainingArguments

        words = [word for value in values for word in ("--learning_rate", str(value))]
        (parsed,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses([*words, "--use_cpu"])
        return parsed.learning_rate
    if kind == "torchrun":
        from dslint.probe.parts.launch_parsers import launched

        words = [word for value in values for word in ("--nproc_per_node", str(value))]
        return launched("torchrun", [*words, "train.py"])["per_node"]
    from argparse import ArgumentParser

    parser = ArgumentParser()
    parser.add_argument("--size", type=int, action="append" if kind == "append" else "store")
    size = parser.parse_args([word for value in values for word in ("--size", str(value))]).size
    return size[0] if isinstance(size, list) else size


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Another value than the one that stands first."""
    return f"the value is {values[0]} instead of {reference[0]}" if values[0] != reference[0] else None

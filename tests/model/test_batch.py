"""The batch triangle against DeepSpeed's own arithmetic, written out here as in its source."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import SourceFile
from dslint.model.deepspeed.batch import Batch, data_parallel_world, judge, read_batch
from dslint.parse.jsondoc import parse_json

MAYBE = st.one_of(st.none(), st.integers(-2, 24))


def deepspeed_accepts(train: int | None, micro: int | None, steps: int | None, world: int) -> bool:
    """``_set_batch_related_parameters`` and ``_batch_assertion`` of ``deepspeed/runtime/config.py``."""
    try:
        if train is not None and micro is not None and steps is not None:
            pass
        elif train is not None and micro is not None:
            steps = train // micro // world
        elif train is not None and steps is not None:
            micro = train // world // steps
        elif micro is not None and steps is not None:
            train = micro * steps * world
        elif train is not None:
            steps, micro = 1, train // world
        elif micro is not None:
            train, steps = micro * world, 1
        else:
            return False
    except ZeroDivisionError:
        return False
    return train > 0 and micro > 0 and steps > 0 and train == micro * steps * world


def fact(value: int | None) -> Fact[int]:
    return absent() if value is None else known(value)


@given(MAYBE, MAYBE, MAYBE, st.integers(1, 9))
def test_with_a_world_size_the_verdict_is_deepspeeds(
    train: int | None, micro: int | None, steps: int | None, world: int
) -> None:
    verdict = judge(Batch(fact(train), fact(micro), fact(steps)), known(world))
    assert verdict.is_wrong is not deepspeed_accepts(train, micro, steps, world), verdict


@given(MAYBE, MAYBE, MAYBE)
def test_without_a_world_size_only_what_no_world_size_mends_is_wrong(
    train: int | None, micro: int | None, steps: int | None
) -> None:
    possible = any(deepspeed_accepts(train, micro, steps, world) for world in range(1, 30))
    for world in (absent(), unknown("SLURM decides")):
        assert judge(Batch(fact(train), fact(micro), fact(steps)), world).is_wrong is not possible


@given(st.integers(1, 24), st.integers(1, 5), st.integers(1, 5), st.integers(1, 6), st.sets(st.sampled_from("tmsw")))
def test_an_unknown_part_is_wrong_only_when_no_value_of_it_fits(
    train: int, micro: int, steps: int, world: int, hidden: set[str]
) -> None:
    def shown(name: str, value: int) -> Fact[int]:
        return unknown("auto") if name in hidden else known(value)

    verdict = judge(Batch(shown("t", train), shown("m", micro), shown("s", steps)), shown("w", world))
    possible = any(
        t == m * s * w
        for t in (range(1, 25) if "t" in hidden else (train,))
        for m in (range(1, 25) if "m" in hidden else (micro,))
        for s in (range(1, 25) if "s" in hidden else (steps,))
        for w in (range(1, 25) if "w" in hidden else (world,))
    )
    if "t" not in hidden:
        assert verdict.is_wrong is not possible
    else:
        assert not verdict.is_wrong


def test_the_message_spells_the_arithmetic_and_every_number_has_its_place() -> None:
    text = (
        '{\n  "train_batch_size": 30,\n  "train_micro_batch_size_per_gpu": 4,\n  "gradient_accumulation_steps": 1\n}\n'
    )
    doc = parse_json(SourceFile("ds.json", text))
    launch = SourceFile("run.sh", "torchrun --nproc_per_node 8 train.py\n")
    from dslint.core.source import Span

    verdict = judge(read_batch(doc), known(8, launch.location(Span(9, 27))))
    assert verdict.kind == "inconsistent"
    assert "is 30, but micro batch 4 x accumulation steps 1 x world size 8 = 32" in verdict.message
    assert str(verdict.at) == "ds.json:2"
    assert [str(place) for place in verdict.related] == ["ds.json:3", "ds.json:4", "run.sh:1"]
    assert "8 (--world-size)" in judge(read_batch(doc), known(8)).message


def test_text_and_auto_in_a_batch_size_are_unknown_and_null_is_absent() -> None:
    text = '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "4", "gradient_accumulation_steps": null}'
    batch = read_batch(parse_json(SourceFile("ds.json", text)))
    assert (batch.train.state, batch.micro.state, batch.steps.state) == ("unknown", "unknown", "absent")
    assert not judge(batch, known(7)).is_wrong


def test_ranks_that_share_a_sequence_or_a_layer_leave_the_product() -> None:
    def world(extra: str) -> Fact[int | float]:
        return data_parallel_world(parse_json(SourceFile("ds.json", f'{{"train_batch_size": 8{extra}}}')), known(8))

    assert world("").get() == 8
    assert world(', "sequence_parallel_size": 4').get() == 2
    assert world(', "sequence_parallel_size": 3').is_unknown
    assert world(', "tensor_parallel": {"autotp_size": 2}').get() == 8
    assert world(', "tensor_parallel": {"autotp_size": 1}').get() == 8
    assert world(', "pipeline": {}').is_unknown

"""Losses that are no longer losses."""

from __future__ import annotations

from dslint.triage.symptom import Cause, Pattern, Symptom

ZERO, NAN = "loss-zero", "loss-nan"
_OVERLAP = Cause(
    "`overlap_comm` with a DeepSpeed release in which gradients are overwritten while they are reduced", ("DSL160",)
)

SYMPTOMS = (
    Symptom(
        name=ZERO,
        title="The loss falls to 0 at once and stays there",
        meaning="The loss is not small, it is not a number any more: the Trainer prints NaN as 0 "
        "(logging_nan_inf_filter). The weights are spoilt from the step before on.",
        role="state",
        causes=(
            _OVERLAP,
            Cause("overflow in fp16 on a model trained in bf16"),
            Cause("every label is masked (-100): look at one batch as the model gets it"),
        ),
    ),
    Symptom(
        name=NAN,
        title="The loss is not a number",
        meaning="Every later step computes with NaN.",
        role="state",
        causes=(
            _OVERLAP,
            Cause("overflow in fp16: use bf16, or look at the loss scale"),
            Cause("a learning rate too high, or a batch without any label"),
        ),
    ),
    Symptom(
        name="loss-scale-minimum",
        title="The loss scale is at its minimum: every step overflows",
        meaning="Some skipped steps at the start of an fp16 run are normal. Here the scale cannot go lower, so "
        "gradients "
        "are inf or NaN whatever the scale.",
        role="cause",
        causes=(
            Cause("a model trained in bf16 is run in fp16: switch the DeepSpeed config to bf16"),
            _OVERLAP,
        ),
        patterns=(
            Pattern(r"Current loss scale already at minimum", gate="loss scale already at minimum"),
            Pattern(
                r"OVERFLOW! .{0,60}Attempted loss scale: [\d.]+, reducing to (?:0|1)(?:\.0+)?(?![\d.])",
                gate="OVERFLOW!",
            ),
        ),
    ),
)

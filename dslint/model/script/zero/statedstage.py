"""A first look at the bytes of a script: can its ZeRO stage be certain anywhere?"""

from __future__ import annotations

import re

from dslint.model.context import Context

# What states the stage (``stated.py``), and what asks for it (``stagetests.py``).
_STATES = re.compile(
    rb"zero_?optimization|zero[_-]?stage|(?:ds|deepspeed)_stage|z(?:ero)?_?(?:stage_?)?3|DeepSpeedPlugin|\bzero\b"
    rb"|ds_(?:id|tensor|status|shape|numel|process_group)",
    re.IGNORECASE,
)


def may_know_stage(context: Context, raw: bytes) -> bool:
    """The run says the stage, or the script may: without either, no rule that needs a certain stage can fire."""
    return context.zero_stage.is_known or _STATES.search(raw) is not None

"""How a name stands in the releases that a project allows; Python itself says which calls fit a signature."""

from __future__ import annotations

import ast
import inspect

import pytest

from dslint.model.context import Context
from dslint.model.standing.allowance import Allowance, allowance
from dslint.model.standing.binding import misfit, of_function
from dslint.model.standing.calls import made, refusal
from dslint.model.standing.standing import stand
from dslint.model.versions.allowed import Allowed, AllowedReleases, Bound

CAME, GONE = "4.41.0", "4.46.1"


def of(*specifiers: str) -> Allowance:
    ways = (tuple(Bound(text) for text in specifiers),) if specifiers else ()
    return allowance("transformers", Context(allowed=Allowed({"transformers": AllowedReleases("transformers", ways)})))


def number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".")[:3] if part.isdigit())


def before(release: str) -> bool:
    return number(release) < number(CAME)


def after(release: str) -> bool:
    return number(release) >= number(GONE)


def told(allowed: Allowance, fails: object, runs: object = lambda _: True) -> tuple[object, ...] | None:
    found = stand(allowed, fails, runs)  # type: ignore[arg-type]
    return None if found is None else (found.reach, found.severity.value, found.change, found.came)


@pytest.mark.parametrize(
    ("specifiers", "fails", "expected"),
    [
        (("==4.37.2",), before, ("all", "error", CAME, True)),
        (("==4.49.0",), after, ("all", "error", GONE, False)),
        ((">=4.37",), after, ("fresh", "warning", GONE, False)),
        ((">=4.37,<4.45",), after, None),
        ((">=4.37",), before, ("oldest", "info", CAME, True)),
        ((), after, ("fresh", "warning", GONE, False)),
        ((), before, None),
        ((">=4.37",), lambda _: None, None),
    ],
)
def test_severity_says_which_allowed_releases_fail(
    specifiers: tuple[str, ...], fails: object, expected: tuple[object, ...] | None
) -> None:
    assert told(of(*specifiers), fails) == expected


def test_releases_that_a_guard_keeps_away_do_not_count() -> None:
    assert told(of(">=4.37"), after, before) is None
    assert told(of("==4.49.0"), after, before) is None


FUNCTIONS = (
    "def f(self, a, b=1): ...",
    "def f(self, a, b, c): ...",
    "def f(self, *args): ...",
    "def f(self, a, *, k): ...",
    "def f(self, a, **kwargs): ...",
    "def f(self, a, /, b): ...",
)
CALLS = (((1,), {}), ((1, 2), {}), ((1, 2, 3), {}), ((1,), {"b": 2}), ((1,), {"k": 2}), ((1, 2), {"b": 3}), ((), {}))


@pytest.mark.parametrize("code", FUNCTIONS)
def test_a_call_fits_where_python_takes_it(code: str) -> None:
    node = ast.parse(code).body[0]
    assert isinstance(node, ast.FunctionDef)
    space: dict[str, object] = {}
    exec(code, space)  # noqa: S102 - the function is our own
    signature = inspect.signature(space["f"])  # type: ignore[arg-type]
    for args, kwargs in CALLS:
        try:
            signature.bind(None, *args, **kwargs)
            fits = True
        except TypeError:
            fits = False
        assert (misfit(of_function(node), len(args), tuple(kwargs)) == "") is fits, (args, kwargs)


def test_the_calls_of_the_trainer_are_those_of_its_releases() -> None:
    assert made("transformers", "Trainer", "training_step", "4.45.2") == ((2, (), ("_inner_training_loop",)),)
    assert made("transformers", "Trainer", "training_step", "4.46.1") == ((3, (), ("_inner_training_loop",)),)
    assert made("transformers", "Trainer", "training_step", "4.0.0") is None
    assert made("transformers", "Trainer", "_pad_across_processes", "4.40.0") == ()
    assert "removed in v2.0.0" in refusal("lightning", "LightningModule", "training_epoch_end", "2.2.0")
    assert refusal("lightning", "LightningModule", "training_epoch_end", "1.9.5") == ""

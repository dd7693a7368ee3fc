"""Where values come from."""

from __future__ import annotations

from script_helpers import call, script


def texts(code: str, argument: int = 0) -> list[str]:
    """The sources of an argument of the first ``use(...)``."""
    ctx = script(code)
    found = ctx.loaders.sources.of(call(ctx, "use").args[argument].value)
    return [ctx.text(s.node) + (f"[{s.position}]" if s.position is not None else "") if s.node else "?" for s in found]


def test_sources_pass_through_branches_helpers_and_unpacking() -> None:
    """Both arms count, a helper is looked through, a tuple gives its element."""
    code = """
    def make(n):
        return first(n), second(n)

    def run(flag, other):
        if flag:
            x = one()
        else:
            _, x = make(2)
        y = x if flag else other
        use(y)
    """
    assert texts(code) == ["one()", "second(n)", "?"]


def test_sources_of_parameters_and_own_attributes() -> None:
    """A parameter is what the callers of the file pass; `self.x` what the class assigns."""
    code = """
    class Runner:
        def __init__(self):
            self.data = load()
            self.go(self.data, size=3)

        def go(self, data, size):
            use(data, size)
    """
    assert texts(code) == ["load()"]
    assert texts(code, 1) == ["3"]


def test_a_recursive_name_ends() -> None:
    """`x = wrap(x)` is no endless walk."""
    assert texts("x = x\nuse(x)") == ["x"]

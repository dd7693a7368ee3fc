"""Where values come from, and what loops over data loaders repeat."""

from __future__ import annotations

import textwrap

from script_helpers import call, script

HEAD = "from torch.utils.data import DataLoader, DistributedSampler\n"


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


def repeats(code: str) -> bool:
    """Whether something begins the loop over the loader anew."""
    ctx = script(HEAD + code)
    return any(
        p.outer is not None for p in ctx.loaders.passes() if any(ctx.loaders.is_loader(s.node) for s in p.sources)
    )


LOADER = "loader = DataLoader(data)\n"


def test_loops_that_repeat() -> None:
    """Epochs, endless loops, helpers called in a loop, iterators begun again."""
    body = "    for i, b in enumerate(tqdm(loader)):\n        train(b)\n"
    assert repeats(LOADER + "for epoch in range(args.epochs):\n" + body)
    assert repeats(LOADER + "while step < 100:\n" + body)
    assert repeats(LOADER + "for e in tqdm(range(start, 9)):\n" + body)
    assert repeats(LOADER + "epochs = trange(int(args.epochs), desc='Epoch')\nfor e in epochs:\n" + body)
    assert repeats(LOADER + "def one(loader):\n" + body + "for e in range(3):\n    one(loader)\n")
    assert repeats(
        LOADER + "it = iter(loader)\nfor s in range(9):\n    try: next(it)\n    except E: it = iter(loader)\n"
    )


def test_loops_that_run_once() -> None:
    """One epoch, a loop over other things, a `while` that leaves at once."""
    body = "    for b in loader:\n        train(b)\n"
    assert not repeats(LOADER + "for epoch in range(1):\n" + body)
    assert not repeats(LOADER + "for name in names:\n" + body)
    assert not repeats(LOADER + "while True:\n" + body + "    break\n")
    assert not repeats(LOADER + "for b in loader:\n    train(b)\n")


def test_a_loader_handed_to_a_class_that_trains() -> None:
    """The epoch loop is a method, the loader an argument of the constructor, its sampler in a dictionary."""
    code = """
    class Runner:
        def __init__(self, model, loader):
            self.loader = loader

        def epoch(self, number):
            for batch in self.loader:
                step(batch)

        def train(self, epochs):
            for number in range(epochs):
                self.epoch(number)

    def make(data):
        options = {"batch_size": 4, "sampler": DistributedSampler(data)}
        return DataLoader(data, **options)

    runner = Runner(net, make(data))
    """
    ctx = script(HEAD + textwrap.dedent(code))
    (run,) = [p for p in ctx.loaders.passes() if any(ctx.loaders.is_loader(s.node) for s in p.sources)]
    assert run.outer is not None

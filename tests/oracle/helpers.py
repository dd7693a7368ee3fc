"""Functions of the file that a program calls: collectives inside, guards inside, two levels, decorators."""

from __future__ import annotations

from oracle.style import Style

Lines = list[str]
Needed = dict[str, Lines]


def draw(style: Style, behind: bool) -> tuple[Lines, Needed]:
    """A call, and the functions that it needs. Behind a guard no helper that takes the ranks apart itself."""
    plain = [_sync, _sync_all, _log, _optional]
    makers = plain if behind else [*plain, _save, _only_main, _after, _guarded, _leaves, _asks]
    return style.rng.choice(makers)(style)


def _main(style: Style) -> str:
    """The test inside a helper: it knows no variable of its caller."""
    if style.accelerate:
        return "accelerator.is_main_process"
    if style.maybe(0.25):
        return "is_main_rank()"
    return f"{style.op('get_rank')}() == 0"


def _with_test(style: Style, test: str, needed: Needed) -> Needed:
    if test == "is_main_rank()":
        first = [f"    if not {style.op('is_initialized')}():", "        return True"] if style.maybe(0.5) else []
        question = ["def is_main_rank():", *first, f"    return {style.op('get_rank')}() == 0"]
        return {"is_main_rank": question, **needed}
    return needed


def _barrier(style: Style) -> str:
    return "accelerator.wait_for_everyone()" if style.accelerate else f"{style.op('barrier')}()"


def _reduce(style: Style) -> str:
    return "accelerator.reduce(grads)" if style.accelerate else f"{style.op('all_reduce')}(grads)"


def _sync(style: Style) -> tuple[Lines, Needed]:
    return ["sync()"], {"sync": ["def sync():", f"    {_barrier(style)}"]}


def _sync_all(style: Style) -> tuple[Lines, Needed]:
    style.tags.add("two levels")
    needed = {"sync": ["def sync():", f"    {_barrier(style)}"]}
    return ["sync_all()"], {**needed, "sync_all": ["def sync_all():", f"    {_reduce(style)}", "    sync()"]}


def _log(style: Style) -> tuple[Lines, Needed]:
    test = _main(style)
    needed = {"print0": ["def print0(text):", f"    if {test}:", "        print(text)"]}
    return ["print0('hello')"], _with_test(style, test, needed)


def _optional(style: Style) -> tuple[Lines, Needed]:
    """A helper whose argument decides whether it talks to others."""
    style.tags.add("optional")
    call = style.pick(["finish()", "finish(wait=True)", "finish(wait=False)", f"finish(wait={style.flag()})"])
    function = ["def finish(wait=False):", "    print('end')", "    if wait:", f"        {_barrier(style)}"]
    return [call], {"finish": function}


def _save(style: Style) -> tuple[Lines, Needed]:
    test = _main(style)
    function = ["def save(path):", f"    if {test}:", "        torch.save(path, path)", f"    {_barrier(style)}"]
    return ["save(args.out)"], _with_test(style, test, {"save": function})


def _guarded(style: Style) -> tuple[Lines, Needed]:
    test = _main(style)
    function = ["def report(path):", f"    if {test}:", "        print(path)", f"        {_reduce(style)}"]
    if style.maybe(0.5):
        function += ["    else:", f"        {_reduce(style)}"]
        return ["report(args.out)"], _with_test(style, test, {"report": function})
    return ["report_main(args.out)"], _with_test(
        style, test, {"report_main": [function[0].replace("report", "report_main"), *function[1:]]}
    )


def _leaves(style: Style) -> tuple[Lines, Needed]:
    test = _main(style)
    name = "export" if style.maybe(0.5) else "export_all"
    ending = ["    torch.save(path, path)"] + ([f"    {_barrier(style)}"] if name == "export_all" else [])
    function = [
        f"def {name}(path):",
        f"    if not {test}:" if "==" not in test else f"    if not ({test}):",
        "        return",
    ]
    return [f"{name}(args.out)"], _with_test(style, test, {name: [*function, *ending]})


def _only_main(style: Style) -> tuple[Lines, Needed]:
    """A decorator that lets only rank 0 in: of a library, or of the file."""
    style.tags.add("decorator")
    test = _main(style)
    kind = style.rng.random()
    if style.accelerate:
        decorator, needed = "accelerator.on_main_process", {}
    elif kind < 0.4:
        decorator, needed = "rank_zero_only", {}
    else:
        decorator = "master_only" if kind < 0.7 else "first_rank"
        function = [f"def {decorator}(fn):", "    @functools.wraps(fn)", "    def wrapper(*args, **kwargs):"]
        function += [
            f"        if {test}:",
            "            return fn(*args, **kwargs)",
            "        return None",
            "    return wrapper",
        ]
        needed = _with_test(style, test, {decorator: function})
    name = "write" if style.maybe(0.7) else "write_all"
    body = "    print(path)" if name == "write" else f"    {_reduce(style)}"
    return [f"{name}(args.out)"], {**needed, name: [f"@{decorator}", f"def {name}(path):", body]}


def _after(style: Style) -> tuple[Lines, Needed]:
    """A decorator that waits for everybody."""
    style.tags.add("decorator")
    function = ["def synced(fn):", "    def wrapper(*args, **kwargs):", "        result = fn(*args, **kwargs)"]
    function += [f"        {_barrier(style)}", "        return result", "    return wrapper"]
    return ["clean(args.out)"], {"synced": function, "clean": ["@synced", "def clean(path):", "    print(path)"]}


def _asks(style: Style) -> tuple[Lines, Needed]:
    """A helper that returns what rank 0 should do."""
    test = _main(style)
    needed = _with_test(style, test, {"should_write": ["def should_write():", f"    return {test}"]})
    inside = _barrier(style) if style.maybe(0.3) else "print('writing')"
    return ["if should_write():", f"    {inside}"], needed

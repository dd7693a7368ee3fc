"""How ranks come to one decision, in the ways people write it, and twins in which they do not."""

from __future__ import annotations

from oracle.style import Style

Lines = list[str]
Made = tuple[Lines, dict[str, Lines]]


def draw(style: Style, in_loop: bool, in_batches: bool) -> Made:
    """Lines, and the helpers that they need."""
    makers = [
        _decided_by_first,
        _flag_tensor,
        _halves,
        _expression,
        _argument_rank,
        _gathered_roots,
        _conditional_value,
    ]
    if in_loop:
        makers += [_early_stop]
    if in_batches:
        makers += [_reduced_loss, _reduced_loss, _any_rank, _any_rank]
    maker = style.rng.choice(makers)
    style.tags.add(maker.__name__.lstrip("_"))
    return maker(style)


def _way(style: Style) -> str:
    return style.pick(["continue", "break"])


def _told(style: Style, name: str, chance: float = 0.75) -> Lines:
    return [f"{style.op('broadcast_object_list')}({name}, src=0)"] if style.maybe(chance) else []


def _decided_by_first(style: Style) -> Made:
    """``answer = [x] if main else [None]``, told to the others or not."""
    lines = [
        f"answer = [os.path.exists(args.path)] if {style.main()} else [False]",
        *_told(style, "answer"),
        "if answer[0]:",
        f"    {style.op('all_reduce')}(grads)",
    ]
    return lines, {}


def _early_stop(style: Style) -> Made:
    lines = ["stop = [False]", f"if {style.main()}:", f"    stop = [{style.flag()}]", *_told(style, "stop")]
    return [*lines, "if stop[0]:", f"    {_way(style)}", f"{style.op('barrier')}()"], {}


def _flag_tensor(style: Style) -> Made:
    """Rank 0 sets a tensor; a broadcast or a reduction makes it one for all."""
    reduce = f"{style.op('all_reduce')}(ready)"
    tell = style.pick([f"{style.op('broadcast')}(ready, src=0)", reduce, reduce, ""])
    lines = ["ready = torch.zeros(1)", f"if {style.main()}:", "    ready += 1", *([tell] if tell else [])]
    return [*lines, "if ready.item() > 0:", f"    {style.op('barrier')}()"], {}


def _halves(style: Style) -> Made:
    """The two halves of "rank 0 first" stand in two functions."""
    get_rank, barrier = style.op("get_rank"), style.op("barrier")
    needed = {
        "enter_first": ["def enter_first():", f"    if {get_rank}() != 0:", f"        {barrier}()"],
        "leave_first": ["def leave_first():", f"    if {get_rank}() == 0:", f"        {barrier}()"],
    }
    if style.maybe(0.3):
        return ["enter_first()", "data = model.load()"], {"enter_first": needed["enter_first"]}
    return ["enter_first()", "data = model.load()", "leave_first()"], needed


def _expression(style: Style) -> Made:
    """A collective in an expression that only some ranks evaluate."""
    call = f"{style.op('barrier')}()"
    shape = style.rng.random()
    if shape < 0.3:
        return [f"{call} if {style.main()} else None"], {}
    if shape < 0.5:
        return [f"{style.main()} and {call}"], {}
    if shape < 0.75:
        return [f"waited = {call} if {style.uniform()} else None"], {}
    return [f"text = 'main' if {style.main()} else 'other'", call], {}


def _argument_rank(style: Style) -> Made:
    """A helper that is told the rank."""
    get_rank = style.op("get_rank")
    if style.maybe(0.6):
        return [f"tell({get_rank}(), 'x')"], {
            "tell": ["def tell(rank, text):", "    if rank == 0:", "        print(text)"]
        }
    function = ["def hold(rank):", "    if rank == 0:", f"        {style.op('barrier')}()"]
    if style.maybe(0.5):
        function += ["    else:", f"        {style.op('barrier')}()"]
        return [f"hold({get_rank}())"], {"hold": function}
    return [f"hold_main({get_rank}())"], {"hold_main": ["def hold_main(rank):", *function[1:]]}


def _gathered_roots(style: Style) -> Made:
    """Every rank is the root once."""
    call = f"{style.op('broadcast')}(stats, src=source)"
    return [f"for source in range({style.op('get_world_size')}()):", f"    {call}"], {}


def _conditional_value(style: Style) -> Made:
    """The rank chooses a value, but not a way."""
    lines = [f"weight = 1.0 if {style.main()} else 0.0", f"folder = args.path if {style.main()} else None"]
    return [*lines, f"{style.op('all_reduce')}(stats)"], {}


def _reduced_loss(style: Style) -> Made:
    """The loss itself is reduced before it is tested; or after."""
    test = style.pick(["torch.isnan(loss)", "not torch.isfinite(loss)", "math.isnan(loss.item())"])
    reduce = f"{style.op('all_reduce')}(loss)"
    if style.maybe(0.7):
        return ["loss = model(batch)", reduce, f"if {test}:", f"    {_way(style)}", f"{style.op('barrier')}()"], {}
    return ["loss = model(batch)", f"if {test}:", f"    {_way(style)}", reduce], {}


def _any_rank(style: Style) -> Made:
    """A helper that asks all ranks."""
    function = [
        "def any_rank(value):",
        "    flag = torch.tensor(float(value))",
        f"    {style.op('all_reduce')}(flag)",
        "    return flag.item() > 0",
    ]
    test = style.pick(["torch.isnan(loss).item()", "len(batch) == 0"])
    lines = ["loss = model(batch)", f"if any_rank({test}):", f"    {_way(style)}", f"{style.op('all_reduce')}(grads)"]
    return lines, {"any_rank": function}

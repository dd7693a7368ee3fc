"""Distributed idioms of random programs: ranks through helpers, guards, collectives, tensors made equal, loaders."""

from __future__ import annotations

from .statements import Place, Statement, Statements
from .writing import BOOL, FLOAT, INT, INTS, STR, TENSOR, Lines, Scope, indent


def helpers(s: Statements, scope: Scope) -> Lines:
    """How this program asks for its rank: through dist, the environment, a class, or a helper with a default."""
    words = s.words
    rank, main = words.fresh("get_rank"), words.fresh("is_main")
    form = words.rng.randrange(4)
    lines = [f"def {rank}():"]
    if form == 0:
        lines += ["    if not dist.is_available() or not dist.is_initialized():", "        return 0"]
        lines += ["    return dist.get_rank()"]
    elif form == 1:
        lines += [f"    return int(os.environ.get('{words.pick(('RANK', 'LOCAL_RANK'))}', 0))"]
    elif form == 2:
        lines += ["    return dist.get_rank() if dist.is_initialized() else int(os.environ['RANK'])"]
    else:
        lines += ["    try:", "        return dist.get_rank()", "    finally:", "        pass"]
    lines += [f"def {main}():", f"    return {rank}() == 0"]
    words.define(INT, f"{rank}()")
    words.define(BOOL, f"{main}()")
    words.define(INT, "dist.get_rank()")
    words.define(INT, "dist.get_world_size()")
    words.define(BOOL, "(dist.get_rank() == 0)")
    words.define(FLOAT, "<tensor>.sum().item()")
    words.define(BOOL, "bool(torch.isnan(<tensor>).any())")
    words.define(BOOL, "((<tensor>) > <float>).all().item()")
    words.define(INT, "len(<tensor>)")
    words.define(INT, "(<tensor>).shape[0]")
    words.define(INTS, "[int(x) for x in <tensor>]")
    words.define(STR, "str((<tensor>).device)")
    words.define(TENSOR, "torch.randn(2)")
    s.own += [(guard, 1.2), (collective, 2.2), (exchange, 1.2), (own_tensor, 1.5), (agreed, 0.7)]
    return lines + _wrapped(s, main)


def _wrapped(s: Statements, main: str) -> Lines:
    """Helpers around collectives."""
    mean, log = s.words.fresh("reduce_mean"), s.words.fresh("log")
    lines = [f"def {mean}(value, name='loss'):", "    flat = torch.tensor([float(value)])", "    dist.all_reduce(flat)"]
    lines += ["    return flat.item() / dist.get_world_size()", f"def {log}(*words, all_ranks=False):"]
    lines += [f"    if all_ranks or {main}():", "        print(*words)"]

    def use_mean(s: Statements, scope: Scope, place: Place) -> Lines:
        if not _allowed(s, place):
            return [f"{log}('skipped')"]
        name, value = s.words.fresh("mean"), s.words.expr(INT, scope)
        scope.add(FLOAT, name)
        return [f"{name} = {mean}({value})"]

    def use_log(s: Statements, scope: Scope, place: Place) -> Lines:
        return [f"{log}({s.words.expr(INT, scope)}, all_ranks={s.words.expr(BOOL, scope, 1)})"]

    s.own += [(use_mean, 0.8), (use_log, 0.8)]
    return lines


def _allowed(s: Statements, place: Place) -> bool:
    """Collectives stand where all ranks come, and seldom elsewhere: a deadlock is an outcome, too."""
    return place.together or s.words.maybe(0.02)


def own_tensor(s: Statements, scope: Scope, place: Place) -> Lines:
    name, value = s.words.fresh("t"), s.words.expr(TENSOR, scope)
    scope.add(TENSOR, name)
    return [f"{name} = {value}"]


def guard(s: Statements, scope: Scope, place: Place) -> Lines:
    test = s.words.pick(("dist.get_rank() == 0", "dist.get_rank() != 0", "int(os.environ['RANK']) % 2 == 0"))
    return [f"if {test}:", *s.inner(scope, place)] if place.rooms > 0 else [f"if {test}:", "    print('here')"]


def collective(s: Statements, scope: Scope, place: Place) -> Lines:
    if not _allowed(s, place):
        return own_tensor(s, scope, place)
    words = s.words
    name = words.pick(scope.of(TENSOR)) if scope.of(TENSOR) else "torch.ones(1)"
    form = words.pick(
        (
            "dist.barrier()",
            f"dist.all_reduce({name})",
            f"dist.all_reduce({name}, op=dist.ReduceOp.MAX)",
            f"dist.broadcast({name}, src=0)",
            f"dist.reduce({name}, dst=0)",
            f"dist.all_reduce({name}, async_op=True).wait()",
        )
    )
    return [form]


def exchange(s: Statements, scope: Scope, place: Place) -> Lines:
    """Objects and lists of tensors that ranks exchange."""
    if not _allowed(s, place):
        return guard(s, scope, place)
    words, name = s.words, s.words.fresh("parts")
    value = words.expr(words.pick((INT, STR)), scope)
    form = words.rng.randrange(4)
    if form == 0:
        lines = [f"{name} = [None] * dist.get_world_size()", f"dist.all_gather_object({name}, {value})"]
        return [*lines, f"print(len({name}))"]
    if form == 1:
        lines = [f"{name} = [{words.expr(INT, scope)}]", f"dist.broadcast_object_list({name}, src=0)"]
        scope.add(INTS, name)
        return lines
    if form == 2:
        lines = [f"{name} = [torch.zeros(1) for _ in range(dist.get_world_size())]"]
        lines += [f"dist.all_gather({name}, torch.tensor([float({words.expr(INT, scope)})]))"]
        total = words.fresh("total")
        scope.add(FLOAT, total)
        return [*lines, f"{total} = torch.cat({name}).sum().item()"]
    return [f"{name} = dist.new_group([0])", "if dist.get_rank() in [0]:", f"    dist.barrier(group={name})"]


def agreed(s: Statements, scope: Scope, place: Place) -> Lines:
    """A decision of one rank that all ranks then share."""
    if not _allowed(s, place):
        return own_tensor(s, scope, place)
    name = s.words.fresh("flag")
    lines = [f"{name} = torch.tensor([int({s.words.expr(BOOL, scope)})])", f"dist.broadcast({name}, 0)"]
    body = s.inner(scope, place, together=True) if place.rooms > 0 else ["    dist.barrier()"]
    return [*lines, f"if {name}.item():", *body]


def training(s: Statements, scope: Scope) -> Lines:
    """A model, a loader over parts of the data, and a loop of steps."""
    words, data, model, train = s.words, s.words.fresh("Numbers"), s.words.fresh("Net"), s.words.fresh("train")
    lines = [f"class {data}(torch.utils.data.Dataset):", "    def __init__(self, n):", "        self.n = n"]
    lines += ["    def __len__(self):", "        return self.n", "    def __getitem__(self, index):"]
    lines += ["        return {'x': torch.tensor([float(index), 1.0]), 'y': index % 2}"]
    lines += [f"class {model}(torch.nn.Module):", "    def __init__(self, width=2):", "        super().__init__()"]
    lines += [
        "        self.layer = torch.nn.Linear(width, 1)",
        "    def forward(self, x):",
        "        return self.layer(x).sum()",
    ]
    size, batch = words.rng.choice((4, 6, 8)), words.rng.choice((1, 2))
    lines += [f"def {train}(epochs, rank):", f"    dataset = {data}({size})"]
    lines += ["    sampler = torch.utils.data.distributed.DistributedSampler(dataset)"]
    lines += [f"    loader = torch.utils.data.DataLoader(dataset, batch_size={batch}, sampler=sampler)"]
    lines += [f"    model = torch.nn.parallel.DistributedDataParallel({model}())"]
    lines += ["    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)", "    step = 0"]
    lines += ["    for epoch in range(epochs):", "        sampler.set_epoch(epoch)", "        for batch in loader:"]
    inside = Scope({INT: ["epoch", "step"], TENSOR: ["batch['x']"], INTS: []})
    lines += ["            loss = model(batch['x'])", "            loss.backward()", "            optimizer.step()"]
    lines += ["            optimizer.zero_grad()", "            step += 1"]
    lines += indent(indent(indent(s.block(inside, Place(0), words.rng.randrange(3)))))
    lines += ["        if rank == 0:", "            torch.save(model.state_dict(), 'out.pt')", "        dist.barrier()"]
    lines += ["    return step"]

    def use(s: Statements, scope: Scope, place: Place) -> Lines:
        if not _allowed(s, place):
            return ["print('no training here')"]
        name = s.words.fresh("steps")
        scope.add(INT, name)
        return [f"{name} = {train}({s.words.rng.randrange(1, 3)}, dist.get_rank())"]

    added: tuple[Statement, float] = (use, 1.0)
    s.own.append(added)
    return lines

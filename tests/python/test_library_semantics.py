"""What the rows of libraries do in the engine: short programs, and the events and values that they lead to."""

from __future__ import annotations

import textwrap

from dslint.python.entries import Analysis
from dslint.python.events import Alt, Call, Context, Event, events, walk
from dslint.python.files import Texts
from dslint.python.values import ClassAtom, Instance, Unknown, Value


def analysis(code: str, **more: str) -> Analysis:
    texts = {"train.py": code, **{f"{name}.py": text for name, text in more.items()}}
    found = Analysis(Texts({path: textwrap.dedent(text) for path, text in texts.items()}))
    found.script("train.py")
    return found


def happened(found: Analysis, *names: str) -> list[Event]:
    """Return the events of all entries whose path ends with one of the names."""
    every = [event for entry in found.entries for event in events(entry.tree)]
    return [e for e in every if not names or e.api.rpartition(".")[2] in names]


def ranks(found: Analysis, event: Event) -> set[int]:
    lanes = found.machine.worlds.lanes
    return {lanes[lane][0] for lane in range(len(lanes)) if event.lanes >> lane & 1}


def class_of(value: Value | None) -> str:
    atom = value.single if value is not None else None
    assert isinstance(atom, Instance)
    return atom.cls.node.name if isinstance(atom.cls, ClassAtom) else atom.cls


def test_a_pattern_names_the_class_of_a_model() -> None:
    found = analysis(
        """
        from transformers import LlamaForCausalLM, Qwen2TokenizerFast
        model = LlamaForCausalLM.from_pretrained("x")
        model.save_pretrained("y")
        Qwen2TokenizerFast.from_pretrained("x").save_pretrained("y")
        """
    )
    assert next(class_of(e.receiver) for e in happened(found, "save_pretrained")) == "transformers.LlamaForCausalLM"
    assert {e.api for e in happened(found, "save_pretrained")} == {
        "transformers.PreTrainedModel.save_pretrained",
        "transformers.PreTrainedTokenizerBase.save_pretrained",
    }


def test_from_pretrained_makes_an_object_of_the_subclass() -> None:
    found = analysis(
        """
        import torch.distributed as dist
        from transformers import LlamaForCausalLM
        class Mine(LlamaForCausalLM):
            def __init__(self, config, size=3):
                super().__init__(config)
                self.size = size
            def wait(self):
                dist.barrier()
        Mine.from_pretrained("x").wait()
        """
    )
    assert len(happened(found, "barrier")) == 1
    assert found.entries[0].kind == "script"


def test_decorators_let_functions_run_on_some_ranks() -> None:
    found = analysis(
        """
        import torch.distributed as dist
        from accelerate import Accelerator
        from lightning.pytorch.utilities import rank_zero_only
        accelerator = Accelerator()
        @rank_zero_only
        def first():
            dist.barrier()
        @accelerator.on_local_main_process
        def second():
            dist.barrier()
        @accelerator.on_process(process_index=1)
        def third():
            dist.barrier()
        @accelerator.on_last_process
        def fourth():
            dist.barrier()
        first(); second(); third(); fourth()
        """
    )
    first, second, third, fourth = (ranks(found, e) for e in happened(found, "barrier"))
    assert first == {0}
    assert second == {0, 2, 8}  # the worlds have 2, 4 and 8 processes on a machine
    assert third == {1}
    assert fourth == {1, 3, 15}
    assert any(isinstance(node, Alt) and node.varies for node in walk(found.entries[0].tree))


def test_a_decorated_method_runs_on_some_ranks() -> None:
    found = analysis(
        """
        import torch
        from lightning.pytorch.utilities import rank_zero_only
        class Saver:
            @rank_zero_only
            def save(self, state):
                torch.save(state, "x.pt")
        Saver().save({})
        """
    )
    assert [ranks(found, e) for e in happened(found, "save")] == [{0}]


def test_calls_that_do_something_on_some_ranks() -> None:
    found = analysis(
        """
        from accelerate import Accelerator
        accelerator = Accelerator()
        accelerator.save({}, "x")
        """
    )
    assert [ranks(found, e) for e in happened(found, "save")] == [{0}]


PREPARED = """
    import torch
    from accelerate import Accelerator
    from torch.utils.data import DataLoader
    class Net(torch.nn.Module):
        def forward(self, x):
            return x
        def describe(self):
            torch.distributed.barrier()
    accelerator = Accelerator()
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader([1, 2])
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        loss = model(batch)
        accelerator.backward(loss)
        optimizer.step()
"""


def test_prepare_wraps_each_argument_as_its_class() -> None:
    found = analysis(PREPARED)
    assert [class_of(e.receiver) for e in happened(found, "step")] == ["accelerate.optimizer.AcceleratedOptimizer"]
    (backward,) = happened(found, "backward")
    assert {a.cls for a in backward.snapshot["loss"][2]} == {"accelerate.PreparedModel"}
    assert backward.snapshot["loss"][0]  # each rank has data of its own


def test_members_of_prepared_models_are_looked_up_inside_and_in_what_they_stand_for() -> None:
    found = analysis(textwrap.dedent(PREPARED) + "model.describe()\nmodel.save_checkpoint('x')\n")
    assert len(happened(found, "barrier")) == 1
    assert [e.api for e in happened(found, "save_checkpoint")] == ["deepspeed.DeepSpeedEngine.save_checkpoint"]


def test_what_a_context_manager_gives() -> None:
    found = analysis(
        """
        import torch
        from accelerate import Accelerator
        accelerator = Accelerator()
        prompts = ["a", "b", "c"]
        with accelerator.split_between_processes(prompts) as part:
            for prompt in part:
                torch.distributed.barrier()
        """
    )
    contexts = [n for n in walk(found.entries[0].tree) if isinstance(n, Context)]
    assert [sorted(c.tags) for c in contexts] == [["shards-data"]]


def test_main_first_by_machine() -> None:
    found = analysis(
        """
        import torch.distributed as dist
        from transformers import TrainingArguments
        args = TrainingArguments("x")
        with args.main_process_first():
            dist.barrier()
        with args.main_process_first(local=False):
            dist.barrier()
        """
    )
    contexts = [n for n in walk(found.entries[0].tree) if isinstance(n, Context)]
    assert [("local-main-first" in c.tags, "main-first" in c.tags) for c in contexts] == [(True, False), (False, True)]


def test_deepspeed_initialize_gives_the_parts_of_the_engine() -> None:
    found = analysis(
        """
        import deepspeed, torch
        net = torch.nn.Linear(2, 2)
        mine = torch.optim.SGD(net.parameters())
        engine, optimizer, loader, _ = deepspeed.initialize(model=net, optimizer=mine, config={})
        optimizer.step()
        engine.optimizer.zero_grad()
        engine.module.eval()
        other, made, *_ = deepspeed.initialize(model=net, config={})
        made.zero_grad()
        """
    )
    assert [class_of(e.receiver) for e in happened(found, "step")] == ["deepspeed.EngineOptimizer"]
    assert [class_of(e.receiver) for e in happened(found, "zero_grad")] == ["deepspeed.EngineOptimizer"] * 2


def test_a_pipeline_module_gives_a_pipeline_engine() -> None:
    found = analysis(
        """
        import deepspeed
        class Pipe(deepspeed.PipelineModule):
            pass
        engine, *_ = deepspeed.initialize(model=Pipe(layers=[]), config={})
        engine.train_batch()
        """
    )
    assert [class_of(e.receiver) for e in happened(found, "train_batch")] == ["deepspeed.PipelineEngine"]


def test_a_model_that_is_sharded_in_place() -> None:
    found = analysis(
        """
        import torch
        from torch.distributed.fsdp import fully_shard
        net = torch.nn.Linear(2, 2)
        fully_shard(net)
        net(torch.ones(2)).sum().backward()
        net.set_requires_gradient_sync(False)
        """
    )
    (backward,) = happened(found, "backward")
    assert {a.cls for a in backward.snapshot["self"][2]} == {"torch.nn.Linear"}
    assert len(happened(found, "set_requires_gradient_sync")) == 1


def test_an_endless_loader_is_left_by_break_only() -> None:
    found = analysis(
        """
        import torch.distributed as dist
        from deepspeed.utils import RepeatingLoader
        from torch.utils.data import DataLoader
        for batch in RepeatingLoader(DataLoader([1])):
            dist.all_reduce(batch)
        dist.barrier()
        """
    )
    assert happened(found, "all_reduce")
    assert not happened(found, "barrier")


def test_a_trainer_of_the_project_runs_its_own_methods_and_callbacks() -> None:
    found = analysis(
        """
        import torch, torch.distributed as dist
        from transformers import Trainer, TrainerCallback, TrainingArguments
        class Mine(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False):
                if self.args.process_index == 0:
                    dist.barrier()
                return model(**inputs).loss
        class Hook(TrainerCallback):
            def on_step_end(self, args, state, control, **kwargs):
                if state.is_world_process_zero:
                    dist.all_reduce(torch.ones(1))
        trainer = Mine(model=torch.nn.Linear(2, 2), args=TrainingArguments("x"), callbacks=[Hook()])
        trainer.train()
        """
    )
    assert len(found.entries) == 1
    assert [ranks(found, e) for e in happened(found, "barrier", "all_reduce")] == [{0}, {0}]
    assert any(e.api == "accelerate.PreparedModel.forward" for e in happened(found, "forward"))


def test_a_trainer_that_nobody_makes_knows_its_arguments() -> None:
    found = analysis(
        """
        import torch.distributed as dist
        from transformers import Trainer
        class Mine(Trainer):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
            def evaluate(self):
                if self.args.local_rank == 0:
                    dist.barrier()
        """
    )
    assert [ranks(found, e) for e in happened(found, "barrier")] == [{0, 2, 8}]


def test_hooks_of_lightning_are_entries() -> None:
    found = analysis(
        """
        import lightning as L
        import torch.distributed as dist
        class Net(L.LightningModule):
            def training_step(self, batch, batch_idx):
                if self.trainer.is_global_zero:
                    dist.barrier()
                return self(batch)
            def prepare_data(self):
                dist.all_reduce(None)
        class Hook(L.Callback):
            def on_train_epoch_end(self, trainer, pl_module):
                trainer.save_checkpoint("x")
                pl_module.log("x", 1)
        """
    )
    assert [ranks(found, e) for e in happened(found, "barrier")] == [{0}]
    assert [ranks(found, e) for e in happened(found, "all_reduce")] == [{0, 2, 8}]
    assert {e.api for e in happened(found, "save_checkpoint", "log")} == {
        "lightning.Trainer.save_checkpoint",
        "lightning.LightningModule.log",
    }


def printed(found: Analysis) -> list[Value]:
    """Return the arguments of the first `print`."""
    return list(happened(found, "print")[0].arguments.values())


PARSER = """
    import argparse
    import torch.distributed as dist
    def add(parser):
        group = parser.add_argument_group("training")
        group.add_argument("--lr", type=float, default=0.1)
        group.add_argument("-s", "--max-steps", type=int, default=3)
    def parse():
        parser = argparse.ArgumentParser()
        add(parser)
        parser.add_argument("--local_rank", type=int, default=-1)
        parser.add_argument("--rank", type=int, default=4)
        parser.add_argument("--names", nargs="+")
        return parser.parse_args()
    args = parse()
    args.extra = 3
"""


def test_options_are_inputs_that_are_the_same_on_all_ranks() -> None:
    found = analysis(textwrap.dedent(PARSER) + "print(args.lr, args.max_steps, args.lr, args.extra, args.rank)\n")
    lr, steps, again, extra, rank = printed(found)
    kinds = [(a.kind, a.type) for v in (lr, steps, rank) for a in v.atoms if isinstance(a, Unknown)]
    assert kinds == [("input", "builtins.float"), ("input", "builtins.int"), ("input", "builtins.int")]
    assert lr.number == again.number is not None
    assert lr.number != steps.number
    assert extra.constants == (3,)
    assert not any(v.varies for v in (lr, steps, rank))


def test_launchers_fill_the_local_rank() -> None:
    found = analysis(textwrap.dedent(PARSER) + "if args.local_rank == 0:\n    dist.barrier()\n")
    assert [ranks(found, e) for e in happened(found, "barrier")] == [{0, 2, 8}]


def test_a_parser_that_reads_its_own_words() -> None:
    found = analysis(
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float, default=0.1)
        parser.add_argument("--steps", type=int, default=3)
        args = parser.parse_args(["--steps", "5"])
        print(args.lr, args.steps)
        """
    )
    lr, steps = printed(found)
    assert lr.constants == (0.1,)
    assert steps.constants is None


def test_commands_of_subparsers_are_called() -> None:
    found = analysis(
        """
        import argparse
        import torch.distributed as dist
        def train(args):
            if args.epochs:
                dist.barrier()
        def evaluate(args):
            dist.all_reduce(None)
        parser = argparse.ArgumentParser()
        commands = parser.add_subparsers()
        first = commands.add_parser("train")
        first.add_argument("--epochs", type=int, default=1)
        first.set_defaults(run=train)
        commands.add_parser("evaluate").set_defaults(run=evaluate)
        args = parser.parse_args()
        args.run(args)
        """
    )
    assert len(found.entries) == 1
    assert len(happened(found, "barrier", "all_reduce")) == 2


DATACLASSES = """
    from dataclasses import dataclass, field
    from transformers import HfArgumentParser, TrainingArguments
    import torch.distributed as dist
    @dataclass
    class Model:
        name: str = "x"
    @dataclass
    class Mine(TrainingArguments):
        cache: str = "q"
"""


def test_dataclasses_of_a_parser() -> None:
    found = analysis(
        textwrap.dedent(DATACLASSES)
        + "model, args = HfArgumentParser((Model, TrainingArguments)).parse_args_into_dataclasses()\n"
        + "print(model.name, args.bf16)\nif args.local_rank == 0:\n    dist.barrier()\n"
    )
    name, half = printed(found)
    assert [a.kind for a in (*name.atoms, *half.atoms) if isinstance(a, Unknown)] == ["input", "input"]
    assert [ranks(found, e) for e in happened(found, "barrier")] == [{0, 2, 8}]
    assert any("starts-group" in e.tags for e in happened(found, "TrainingArguments"))


def test_dataclasses_that_come_through_a_function() -> None:
    found = analysis(
        textwrap.dedent(DATACLASSES)
        + "def parse(*classes):\n    return HfArgumentParser(classes).parse_args_into_dataclasses()\n"
        + "model, args = parse(Model, Mine)\nprint(args.cache, args.learning_rate)\n"
        + "if args.process_index == 0:\n    dist.barrier()\n"
    )
    assert [a.type for v in printed(found) for a in v.atoms if isinstance(a, Unknown)] == [
        "builtins.str",
        "builtins.float",
    ]
    assert [ranks(found, e) for e in happened(found, "barrier")] == [{0}]


def test_a_dataclass_inside_the_namespace() -> None:
    found = analysis(
        """
        from dataclasses import dataclass
        from simple_parsing import ArgumentParser
        @dataclass
        class Options:
            lr: float = 0.1
        parser = ArgumentParser()
        parser.add_arguments(Options, dest="options")
        print(parser.parse_args().options.lr)
        """
    )
    (lr,) = printed(found)
    assert [a.type for a in lr.atoms if isinstance(a, Unknown)] == ["builtins.float"]


def test_functions_that_get_their_arguments_from_outside() -> None:
    found = analysis(
        """
        import click, fire, hydra
        import torch.distributed as dist
        @hydra.main(config_path="conf", config_name="config")
        def main(cfg):
            if cfg.steps:
                dist.barrier()
            if not cfg.steps:
                dist.all_reduce(None)
        @click.command()
        @click.option("--local_rank", type=int)
        def other(local_rank):
            if local_rank == 0:
                dist.broadcast(None, 0)
        def third(steps=3):
            if steps > 5:
                dist.all_gather(None, None)
        if __name__ == "__main__":
            main()
            other()
            fire.Fire(third)
        """
    )
    assert len(found.entries) == 1
    assert [ranks(found, e) for e in happened(found, "broadcast")] == [{0, 2, 8}]
    assert happened(found, "all_gather")


def test_a_list_of_modules_gives_what_was_put_into_it() -> None:
    found = analysis(
        """
        import torch
        from torch import nn

        class Block(nn.Module):
            def forward(self, x):
                return torch.flatten(x)

        class Net(nn.Module):
            def __init__(self, blocks):
                super().__init__()
                self.listed = nn.ModuleList([Block()])
                self.generated = nn.ModuleList(Block() for _ in range(blocks))
                self.appended = nn.ModuleList()
                for _ in range(blocks):
                    self.appended.append(Block())
                self.extended = nn.ModuleList().extend([Block()])

            def forward(self, x):
                for block in self.listed:
                    x = block(x)
                for _, block in enumerate(self.generated):
                    x = block(x)
                for block in self.appended:
                    x = block(x)
                return self.extended[0](x)

        Net(int(input()))(torch.ones(2))
        """
    )
    calls = [node for entry in found.entries for node in walk(entry.tree) if isinstance(node, Call)]
    assert len({id(node.node) for node in calls if getattr(node.function, "name", "") == "forward"}) == 5


def test_where_with_one_argument_has_a_shape_of_its_own_on_each_rank() -> None:
    found = analysis(
        """
        import torch
        import torch.distributed as dist
        x = torch.ones(3) * dist.get_rank()
        (rows,) = torch.where(x > 0)
        dist.all_reduce(rows)
        dist.all_reduce(torch.where(x > 0, x, -x))
        """
    )
    own, fixed = (event.snapshot["tensor"][1] for event in happened(found, "all_reduce"))
    assert own
    assert not fixed


def test_a_method_of_an_unknown_object_in_a_variable() -> None:
    for call in ("net.load_state_dict(state)", "load = net.load_state_dict; load(state)"):
        found = analysis(f"from zoo import make, state\nnet = make()\n{call}")
        (event,) = happened(found, "load_state_dict")
        assert event.receiver is not None
        assert isinstance(event.receiver.single, Instance)


def test_what_a_call_gets_as_options() -> None:
    found = analysis(
        """
        from transformers import TrainingArguments
        how = {"use_reentrant": True}
        if open("x"):
            how["early"] = 1
        TrainingArguments("out", gradient_checkpointing_kwargs=how)
        """
    )
    (event,) = happened(found, "TrainingArguments")
    assert [v.constants for v in event.items["gradient_checkpointing_kwargs.use_reentrant"]] == [(True,)]
    assert "gradient_checkpointing_kwargs.early" not in event.items


def test_methods_behind_a_decorator_of_the_project() -> None:
    found = analysis(
        """
        import functools
        import torch.distributed as dist
        def logged(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                return function(*args, **kwargs)
            return wrapper
        class Trainer:
            @logged
            def __init__(self, model):
                self.model = torch.nn.parallel.DistributedDataParallel(model)
            @logged
            def step(self, batch):
                dist.broadcast(batch, 0)
        import torch
        """
    )
    (made,) = happened(found, "DistributedDataParallel")
    assert isinstance(made.arguments["module"].single, Instance)
    assert happened(found, "broadcast")

"""Signatures as text: the parameters as Python writes them, without annotations.

A default that is long or takes more than one line is written ``...``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

_LONG = 60
# Decorators that leave what a function takes and returns to a call as it is.
_SAFE = frozenset(
    [
        "staticmethod",
        "classmethod",
        "property",
        "abstractmethod",
        "cached_property",
        "cache",
        "lru_cache",
        "wraps",
        "contextmanager",
        "no_grad",
        "inference_mode",
        "enable_grad",
        "deprecated",
        "override",
        "final",
        "overload",
        "typing_extensions",
        "compatibility",
        "ignore",
        "export",
        "unused",
        "add_start_docstrings",
        "add_start_docstrings_to_model_forward",
        "add_end_docstrings",
        "replace_return_docstrings",
        "add_code_sample_docstrings",
        "auto_docstring",
        "requires",
        "requires_backends",
        "is_documented_by",
        "exposed_in",
        "publicapi",
        "substitute_in_graph",
        "experimental",
        "capture_outputs",
        "can_return_tuple",
        "check_model_inputs",
        "merge_with_config_defaults",
        "deprecate_kwarg",
        "deprecated_arg",
        "deprecate_nonkeyword_arguments",
        "use_kernel_forward_from_hub",
        "instrument_w_nvtx",
        "torch_function_dispatch",
        "handle_torch_function",
        "wrap_numpy",
        "register_to_config",
        "validate_hf_hub_args",
        "accepts_variable",
        "on_main_process",
        "on_local_main_process",
        "on_last_process",
        "rank_zero_only",
        "wraps_tmp",
        "_exception_logger",
        "time_logger",
        "_overload",
        "deprecate_arguments",
        "_deprecate_method",
        "add_model_info_to_auto_map",
        "docstring",
        "script_if_tracing",
        "_use_grad_for_differentiable",
        "profile_hook_step",
        "disable_dynamo",
        "dynamo_disable",
    ]
)
_OLD_NAMES = frozenset({"deprecate_kwarg", "deprecated_arg", "_deprecate_kwarg", "deprecate_argument"})


@dataclass
class Sig:
    """What a function takes."""

    text: str
    certain: bool = True
    old: dict[str, str] = field(default_factory=dict)

    def row(self) -> list[object]:
        """As it is kept between the steps."""
        return [self.text, int(self.certain), self.old]


def of_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Sig:
    """The signature of a function as it is defined."""
    certain, old = True, {}
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = last_name(called)
        if name in _OLD_NAMES and isinstance(decorator, ast.Call):
            old.update(_old_name(decorator))
        elif name not in _SAFE:
            certain = False
    return Sig(parameters(node.args), certain, old)


def last_name(node: ast.expr) -> str:
    """The last name of a dotted one."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def default(node: ast.expr) -> str:
    """A default as text."""
    text = ast.unparse(node)
    return text if len(text) <= _LONG and "\n" not in text else "..."


def parameters(args: ast.arguments) -> str:
    """The parameters as text."""
    positional = [*args.posonlyargs, *args.args]
    bare = len(positional) - len(args.defaults)
    parts = []
    for index, arg in enumerate(positional):
        parts.append(arg.arg if index < bare else f"{arg.arg}={default(args.defaults[index - bare])}")
        if index + 1 == len(args.posonlyargs):
            parts.append("/")
    if args.vararg or args.kwonlyargs:
        parts.append(f"*{args.vararg.arg}" if args.vararg else "*")
    for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        parts.append(arg.arg if value is None else f"{arg.arg}={default(value)}")
    if args.kwarg:
        parts.append(f"**{args.kwarg.arg}")
    return ", ".join(parts)


def _old_name(call: ast.Call) -> dict[str, str]:
    texts = {word.arg: word.value.value for word in call.keywords if word.arg and isinstance(word.value, ast.Constant)}
    first = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else texts.get("old_name")
    new = texts.get("new_name")
    return {str(first): str(new or "")} if first else {}


def evaluated(node: ast.FunctionDef | ast.AsyncFunctionDef, is_future: bool) -> Iterator[ast.expr]:
    """What of a function runs where it is defined: decorators, defaults, and annotations unless they are texts."""
    arguments = node.args
    yield from (*node.decorator_list, *arguments.defaults, *filter(None, arguments.kw_defaults))
    if not is_future:
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        yield from (each.annotation for each in every if each is not None and each.annotation is not None)
        if node.returns is not None:
            yield node.returns


def is_overloaded(node: ast.FunctionDef) -> bool:
    """A type checker alone reads this signature."""
    return any(last_name(each) == "overload" for each in node.decorator_list)

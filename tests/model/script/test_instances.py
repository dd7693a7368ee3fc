"""Which method of a class of the same file a call runs, by what its receiver certainly is."""

from __future__ import annotations

import libcst as cst
import pytest

from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

CLASSES = """\
from typing import Optional

class Base:
    def __enter__(self):
        return self
    def sync(self):
        pass

class Job(Base):
    def __init__(self, saver=None):
        self.saver = saver
    def __call__(self, x):
        pass
    def run(self):
        pass
    @property
    def todo(self):
        pass

class Other:
    def __enter__(self):
        return self.file
    def run(self):
        pass
    def stop(self):
        pass

class Alone:
    def halt(self):
        pass
"""


def _run(code: str) -> str:
    """What the last call of a script runs: ``Class.method``, or nothing."""
    tree = Tree(cst.parse_module(CLASSES + code))
    names = Names(tree)
    call = max(tree.every(cst.Call), key=lambda c: tree.position(getattr(c.func, "attr", c.func)))
    found = names.local_function(call)
    owner = tree.enclosing(found, cst.ClassDef) if found is not None else None
    return f"{owner.name.value}.{found.name.value}" if found and isinstance(owner, cst.ClassDef) else ""


@pytest.mark.parametrize(
    ("code", "method"),
    [
        pytest.param("Job().run()\n", "Job.run", id="made on the spot"),
        pytest.param("job = Job()\njob.run()\n", "Job.run", id="variable"),
        pytest.param("job = Job()\njob.sync()\n", "Base.sync", id="method of the base"),
        pytest.param("job = None\nif a:\n    job = Job()\njob.run()\n", "Job.run", id="or None"),
        pytest.param("job = Job()\njob.run()\ndel job\njob.run()\n", "Job.run", id="deleted"),
        pytest.param("job = Job()\nagain = job\nagain.run()\n", "Job.run", id="alias"),
        pytest.param("with Job() as job:\n    job.run()\n", "Job.run", id="with"),
        pytest.param("made = Job()\nwith made as job:\n    job.run()\n", "Job.run", id="with, made before"),
        pytest.param("with Job() as job:\n    job(1)\n", "Job.__call__", id="with, called"),
        pytest.param("job = Job()\njob(1)\n", "Job.__call__", id="called"),
        pytest.param(
            "class A:\n    def __init__(self):\n        self.job = None\n        self.job = Job()\n"
            "    def go(self):\n        self.job(1)\n",
            "Job.__call__",
            id="attribute, called",
        ),
        pytest.param(
            "class A:\n    def __init__(self):\n        self.job = Job()\n"
            "class B(A):\n    def go(self):\n        self.job.run()\n",
            "Job.run",
            id="attribute that the base sets",
        ),
        pytest.param(
            "A(Job())\nclass A:\n    def __init__(self, job):\n        self.job = job\n"
            "    def go(self):\n        self.job.run()\n",
            "Job.run",
            id="attribute that is passed",
        ),
        pytest.param("f(Job())\nf(job=Job())\ndef f(job):\n    job(1)\n", "Job.__call__", id="parameter, called"),
        pytest.param("f(Job(), *rest)\ndef f(job, *rest):\n    job.run()\n", "Job.run", id="before unpacked arguments"),
        pytest.param("f(*a, job=Job())\ndef f(a, job):\n    job.run()\n", "Job.run", id="by name, behind them"),
        pytest.param("f(Other(), Job())\ndef f(self, job):\n    job.run()\n", "Job.run", id="function with a `self`"),
        pytest.param("def f(job: Optional[Alone]):\n    job.halt()\n", "Alone.halt", id="annotation"),
    ],
)
def test_the_method_is_found(code: str, method: str) -> None:
    assert _run(code) == method


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("job = make()\njob.run()\n", id="made elsewhere"),
        pytest.param("job = Job() if a else Other()\njob.run()\n", id="one of two, by an expression"),
        pytest.param("job = Job()\nif a:\n    job = Other()\njob.run()\n", id="one of two"),
        pytest.param("job = Job()\nfor job in jobs:\n    pass\njob.run()\n", id="of a loop"),
        pytest.param("job = Job()\njob.todo()\n", id="value of a property"),
        pytest.param("with Other() as file:\n    file.stop()\n", id="with, another object"),
        pytest.param("with Alone() as it:\n    it.halt()\n", id="with, nothing known"),
        pytest.param("def job():\n    pass\njob = Job()\njob(1)\n", id="function or object"),
        pytest.param("other = Other()\nother(1)\n", id="no `__call__`"),
        pytest.param("f(Job())\nf(x)\ndef f(job):\n    job.run()\n", id="passed by one call of two"),
        pytest.param("f(*a, Job())\ndef f(job):\n    job.run()\n", id="behind unpacked arguments"),
        pytest.param(
            "A(Job())\nB(Other())\nclass B(A):\n    pass\n"
            "class A:\n    def __init__(self, job):\n        self.job = job\n"
            "    def go(self):\n        self.job.run()\n",
            id="passed to a class that inherits",
        ),
        pytest.param("f(**a)\ndef f(job=Job()):\n    job.run()\n", id="default, and unpacked names"),
        pytest.param("f(Job())\ndef f(job):\n    return lambda job: job.run()\n", id="of a lambda"),
        pytest.param("def f(job: Base):\n    job.sync()\n", id="annotation with a class that derives"),
    ],
)
def test_what_is_open_stays_open(code: str) -> None:
    assert _run(code) == ""

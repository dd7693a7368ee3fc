"""PyTorch's own parser judges what dslint says about settings of the allocator."""

from __future__ import annotations

import pytest

from dslint.model.launch.allocator import complaint, mended

torch = pytest.importorskip("torch")

REFUSED = (
    "max_split_size_mb=512",
    "expandable_segments=True",
    "expandable_segments:true",
    "expandable_segments:1",
    "max_split_size_mb:10",
    "garbage_collection_threshold:1.5",
    "garbage_collection_threshold:80",
    "max_split_size_mb:512;garbage_collection_threshold:0.6",
    "max_split_size_mb",
)
TAKEN = (
    "",
    "max_split_size_mb:512",
    "max_split_size_mb: 512 ",
    "max_split_size_mb:20",
    "expandable_segments:True",
    "expandable_segments:False,",
    "garbage_collection_threshold:0.8,max_split_size_mb:128",
    "roundup_power2_divisions:[256:1,512:2,>:4]",
    "backend:cudaMallocAsync",
)


def _takes(value: str) -> bool:
    apply = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    if apply is None:
        pytest.skip("this release has no parser outside of CUDA")
    try:
        apply(value)
    except (RuntimeError, ValueError):
        return False
    finally:
        apply("expandable_segments:False")
    return True


@pytest.mark.parametrize("value", [*REFUSED, *TAKEN])
def test_the_parser_agrees(value: str) -> None:
    assert _takes(value) == (not complaint(value))
    assert (value in TAKEN) == (not complaint(value))


@pytest.mark.parametrize("value", REFUSED)
def test_what_is_written_instead_is_taken(value: str) -> None:
    other = mended(value)
    assert not other or _takes(other)

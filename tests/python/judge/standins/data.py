"""`torch.utils.data`: datasets, samplers and a loader that collates as torch does."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from ..api import Constructed, api, api_class, outside
from ..ranks import current
from .tensors import Tensor, make, stack

PATH = "torch.utils.data"


class Dataset(metaclass=Constructed):
    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __add__(self, other: Any) -> Any:
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    pass


class TensorDataset(Dataset):
    def __init__(self, *tensors: Any) -> None:
        self.tensors = tensors

    def __getitem__(self, index: Any) -> Any:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class Subset(Dataset):
    def __init__(self, dataset: Any, indices: Any) -> None:
        self.dataset, self.indices = dataset, list(indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset):
    def __init__(self, datasets: Any) -> None:
        self.datasets = list(datasets)

    def __getitem__(self, index: int) -> Any:
        for dataset in self.datasets:
            if index < len(dataset):
                return dataset[index]
            index -= len(dataset)
        raise IndexError(index)

    def __len__(self) -> int:
        return sum(len(d) for d in self.datasets)


class Sampler(metaclass=Constructed):
    def __init__(self, data_source: Any = None, *_: Any, **__: Any) -> None:
        self.data_source = data_source

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class SequentialSampler(Sampler):
    pass


class RandomSampler(Sampler):
    def __iter__(self) -> Iterator[int]:
        order = list(range(len(self.data_source)))
        current().own["torch random"].shuffle(order)
        return iter(order)


class BatchSampler(Sampler):
    def __init__(self, sampler: Any, batch_size: int, drop_last: bool = False) -> None:
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[Any]:
        return _batches(iter(self.sampler), self.batch_size, self.drop_last)

    def __len__(self) -> int:
        return (len(self.sampler) + self.batch_size - 1) // self.batch_size


class DistributedSampler(Sampler):
    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        me = current()
        self.dataset, self.shuffle, self.seed, self.drop_last = dataset, shuffle, seed, drop_last
        self.num_replicas = me.size if num_replicas is None else num_replicas
        self.rank = me.number if rank is None else rank
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        wanted = len(self) * self.num_replicas
        order = (order * (1 + wanted // max(1, len(order))))[:wanted]
        return iter(order[self.rank : wanted : self.num_replicas])

    def __len__(self) -> int:
        count = len(self.dataset)
        return count // self.num_replicas if self.drop_last else -(-count // self.num_replicas)


def _batches(items: Iterator[Any], size: int, drop_last: bool) -> Iterator[list[Any]]:
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch and not drop_last:
        yield batch


def _collate(batch: list[Any]) -> Any:
    """Numbers and tensors become tensors; tuples and dicts are collated by their parts."""
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(batch)
    if isinstance(first, int | float):
        return make(batch)
    if isinstance(first, dict):
        return {key: _collate([b[key] for b in batch]) for key in first}
    if isinstance(first, tuple | list):
        return [_collate(list(part)) for part in zip(*batch, strict=True)]
    return batch


class DataLoader(metaclass=Constructed):
    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        **others: Any,
    ) -> None:
        self.dataset, self.drop_last = dataset, drop_last
        self.batch_size = int(batch_size) if batch_size else 1
        self.num_workers, self.collate_fn, self.batch_sampler = num_workers, collate_fn, batch_sampler
        if not isinstance(dataset, IterableDataset):
            self.sampler = (
                sampler if sampler is not None else (RandomSampler if shuffle else SequentialSampler)(dataset)
            )

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def _collated(self, batch: list[Any]) -> Any:
        return outside(self.collate_fn, batch) if self.collate_fn is not None else _collate(batch)

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.dataset, IterableDataset):
            for batch in _batches(iter(self.dataset), self.batch_size, self.drop_last):
                yield self._collated(batch)
            return
        order = self.batch_sampler if self.batch_sampler is not None else None
        for places in order or _batches(iter(self.sampler), self.batch_size, self.drop_last):
            yield self._collated([self.dataset[i] for i in places])

    def __len__(self) -> int:
        count = len(self.sampler) if self.batch_sampler is None else len(self.batch_sampler) * self.batch_size
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


@api(f"{PATH}.random_split")
def random_split(dataset: Any, lengths: Any, generator: Any = None) -> list[Subset]:
    count = len(dataset)
    sizes = [int(count * part) if isinstance(part, float) else int(part) for part in lengths]
    if any(isinstance(part, float) for part in lengths):
        sizes[0] += count - sum(sizes)
    order = list(range(count))
    (current().own["torch random"] if generator is None else generator.source).shuffle(order)
    found, start = [], 0
    for size in sizes:
        found.append(Subset(dataset, order[start : start + size]))
        start += size
    return found


NAMES: dict[str, Any] = {"default_collate": api(f"{PATH}.default_collate")(_collate), "random_split": random_split}
NAMES["get_worker_info"] = api(f"{PATH}.get_worker_info")(lambda: None)
for _class in (Dataset, IterableDataset, TensorDataset, Subset, ConcatDataset, Sampler, SequentialSampler):
    NAMES[_class.__name__] = api_class(f"{PATH}.{_class.__name__}")(_class)
for _class in (RandomSampler, BatchSampler, DataLoader):
    NAMES[_class.__name__] = api_class(f"{PATH}.{_class.__name__}")(_class)
api_class(f"{PATH}.distributed.DistributedSampler")(DistributedSampler)
NAMES["DistributedSampler"] = DistributedSampler

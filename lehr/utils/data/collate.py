"""Samples made one batch."""

from __future__ import annotations

import collections.abc
import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.tensor import create
from lehr.tensor.tensor import Tensor

ERROR = ("default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
         "found "
         "{}")


def default_convert(data: Any) -> Any:
    """numpy arrays within the data as tensors; everything else as it is."""
    if isinstance(data, Tensor):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        return data if data.dtype.kind in "SUO" else create.as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return _like(data, {k: default_convert(v) for k, v in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(v) for v in data))
    if isinstance(data, tuple):
        return [default_convert(v) for v in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        return _like(data, [default_convert(v) for v in data])
    return data


def _like(template: Any, values: Any) -> Any:
    """A container of the template's type where it can be made, else a plain one."""
    if type(template) in (dict, list):
        return values
    try:
        if isinstance(template, collections.abc.MutableMapping):
            made = copy.copy(template)
            made.update(values)
            return made
        return type(template)(values)
    except TypeError:
        return values


def collate_tensors(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Tensors [*] as one [n, *]."""
    return Tensor.F.stack(list(batch), 0)


def _arrays(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if batch[0].dtype.kind in "SUO":
        raise TypeError(ERROR.format(batch[0].dtype))
    return collate([create.as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def _scalars(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return create.as_tensor(np.asarray(batch))


def _floats(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return create.tensor(batch, dtype=dt.float64)


def _integers(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return create.tensor(batch)


def _as_they_are(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return batch


# Type of a sample -> how a batch of them is made; the first that fits counts.
default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    Tensor: collate_tensors, np.ndarray: _arrays,
    (np.bool_, np.number, np.object_): _scalars, float: _floats, int: _integers, str: _as_they_are,
    bytes: _as_they_are}


def collate(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """A batch from a list of samples; `collate_fn_map` maps types to functions."""
    first = batch[0]
    known = {} if collate_fn_map is None else collate_fn_map
    if type(first) in known:
        return known[type(first)](batch, collate_fn_map=collate_fn_map)
    for kind, function in known.items():
        if isinstance(first, kind):
            return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, collections.abc.Mapping):
        return _like(first, {k: collate([d[k] for d in batch], collate_fn_map=collate_fn_map)
                             for k in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(collate(group, collate_fn_map=collate_fn_map)
                             for group in zip(*batch, strict=True)))
    if isinstance(first, collections.abc.Sequence):
        if not all(len(b) == len(first) for b in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        made = [collate(group, collate_fn_map=collate_fn_map)
                for group in zip(*batch, strict=True)]
        return made if isinstance(first, tuple) else _like(first, made)
    raise TypeError(ERROR.format(type(first)))


def default_collate(batch: Any) -> Any:
    """A batch from a list of samples: tensors are stacked, numbers become tensors, containers keep
    their structure."""
    return collate(batch, collate_fn_map=default_collate_fn_map)


__all__ = ["collate", "default_collate", "default_convert"]

"""Modules, and parameters, in sequence and by name."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from lehr.nn.module import Module
from lehr.nn.parameter import Parameter
from lehr.tensor.tensor import Tensor


def _position(index: Any, count: int) -> int:
    """A non-negative index; IndexError outside."""
    index = operator.index(index)
    if not -count <= index < count:
        raise IndexError(f"index {index} is out of range")
    return index % count


class Sequential(Module):
    """Modules called one after the other, each on the result of the one before.

    Takes modules, or one ordered dictionary of them.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input: Any) -> Any:
        """The last module's result."""
        for module in self._modules.values():
            input = module(input)
        return input

    def _name(self, index: Any) -> str:
        return next(islice(self._modules, _position(index, len(self)), None))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.__class__(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._name(index)]

    def __setitem__(self, index: Any, module: Any) -> None:
        setattr(self, self._name(index), module)

    def __delitem__(self, index: Any) -> None:
        names = list(self._modules)[index] if isinstance(index, slice) else [self._name(index)]
        for name in names:
            delattr(self, name)
        self._renumber()

    def _renumber(self) -> None:
        kept = list(self._modules.values())
        self._modules.clear()
        for i, module in enumerate(kept):
            self.add_module(str(i), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __dir__(self) -> list[str]:
        return [k for k in super().__dir__() if not k.isdigit()]

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Sequential):
            raise ValueError("add operator supports only objects of Sequential class, but "
                             f"{type(other)} is given.")
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Any:
        if not isinstance(other, Sequential):
            raise ValueError("add operator supports only objects of Sequential class, but "
                             f"{type(other)} is given.")
        return self.extend(list(other))

    def __mul__(self, other: Any) -> Any:
        return Sequential(*(list(self) * self._times(other)))

    __rmul__ = __mul__

    def __imul__(self, other: Any) -> Any:
        return self.extend(list(self) * (self._times(other) - 1))

    def _times(self, other: Any) -> int:
        if not isinstance(other, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(other)}")
        if other <= 0:
            raise ValueError(f"Non-positive multiplication factor {other} for {type(self)}")
        return other

    def pop(self, key: Any) -> Any:
        """Takes out the module at an index."""
        module = self[key]
        del self[key]
        return module

    def append(self, module: Any) -> Any:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Any) -> Any:
        """Adds a module at an index."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        n = len(self)
        if not -n <= index <= n:
            raise IndexError(f"Index out of range: {index}")
        kept = list(self)
        kept.insert(index + n if index < 0 else index, module)
        self._modules.clear()
        for i, m in enumerate(kept):
            self.add_module(str(i), m)
        return self

    def extend(self, sequential: Iterable[Any]) -> Any:
        """Adds modules at the end."""
        for module in sequential:
            self.append(module)
        return self


class ModuleList(Module):
    """A list of modules, all of them children."""

    def __init__(self, modules: Iterable[Any] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self += modules

    def _key(self, index: Any) -> str:
        return str(_position(index, len(self)))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.__class__(list(self._modules.values())[index])
        return self._modules[self._key(index)]

    def __setitem__(self, index: Any, module: Any) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: Any) -> None:
        keys = ([str(i) for i in range(len(self))[index]] if isinstance(index, slice)
                else [self._key(index)])
        for key in keys:
            delattr(self, key)
        kept = list(self._modules.values())
        self._modules.clear()
        for i, module in enumerate(kept):
            self.add_module(str(i), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __iadd__(self, modules: Iterable[Any]) -> Any:
        return self.extend(modules)

    def __add__(self, other: Iterable[Any]) -> Any:
        return ModuleList([*self, *other])

    def __dir__(self) -> list[str]:
        return [k for k in super().__dir__() if not k.isdigit()]

    def __repr__(self) -> str:
        """Equal neighbours are shown once, with their range and number."""
        runs: list[list[Any]] = []
        for i, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        if not runs:
            return self._get_name() + "()"
        lines = []
        for first, last, text in runs:
            shown = text.replace("\n", "\n  ")
            lines.append(f"({first}): {shown}" if first == last
                         else f"({first}-{last}): {last - first + 1} x {shown}")
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"

    def insert(self, index: int, module: Any) -> None:
        """Adds a module at an index."""
        kept = list(self)
        kept.insert(index, module)
        for i, m in enumerate(kept):
            setattr(self, str(i), m)

    def append(self, module: Any) -> Any:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key: Any) -> Any:
        """Takes out the module at an index."""
        module = self[key]
        del self[key]
        return module

    def extend(self, modules: Iterable[Any]) -> Any:
        """Adds modules at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError("ModuleList.extend should be called with an iterable, but got "
                            + type(modules).__name__)
        start = len(self)
        for i, module in enumerate(modules):
            self.add_module(str(start + i), module)
        return self


class ModuleDict(Module):
    """A dictionary of modules, all of them children."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Any) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        if key not in self._modules:
            raise KeyError(key)
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Takes out all modules."""
        for key in list(self._modules):
            delattr(self, key)

    def pop(self, key: str) -> Any:
        """Takes out the module of a key."""
        module = self[key]
        del self[key]
        return module

    def keys(self) -> Any:
        """The keys."""
        return self._modules.keys()

    def items(self) -> Any:
        """(key, module) pairs."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def get(self, key: str, default: Any = None) -> Any:
        """The module of a key, or `default`."""
        return self._modules.get(key, default)

    def update(self, modules: Any) -> None:
        """Adds the modules of a mapping or of (key, module) pairs."""
        if not isinstance(modules, Iterable):
            raise TypeError("ModuleDict.update should be called with an iterable of key/value "
                            "pairs, but got " + type(modules).__name__)
        if isinstance(modules, (OrderedDict, ModuleDict, Mapping)):
            for key, module in modules.items():
                self[key] = module
            return
        for i, pair in enumerate(modules):
            if not isinstance(pair, Iterable):
                raise TypeError(f"ModuleDict update sequence element #{i} should be Iterable; is"
                                + type(pair).__name__)
            pair = tuple(pair)
            if len(pair) != 2:
                raise ValueError(f"ModuleDict update sequence element #{i} has length {len(pair)}; "
                                 "2 is required")
            self[pair[0]] = pair[1]


def _shown(key: Any, value: Any, kind_of: Any = None) -> str:
    """A line of a parameter container's `repr`; `kind_of` words the tensor's type."""
    if not isinstance(value, Tensor):
        return f"({key}): Object of type: {type(value).__name__}"
    size = "x".join(map(str, value.shape))
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    where = f" ({value.device})" if value.device.type == "cuda" else ""
    dtype = value.dtype if kind_of is None else kind_of(value)
    return f"({key}): {kind} containing: [{dtype} of size {size}{where}]"


class ParameterList(Module):
    """A list of parameters; tensors put into it become parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def _key(self, index: Any) -> str:
        return str(_position(index, len(self)))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            made = self.__class__()
            for i in range(len(self))[index]:
                made.append(self[i])
            return made
        return getattr(self, self._key(index))

    def __setitem__(self, index: Any, param: Any) -> None:
        if isinstance(param, Tensor) and not isinstance(param, Parameter):
            param = Parameter(param)
        setattr(self, self._key(index), param)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter(self[i] for i in range(len(self)))

    def __iadd__(self, parameters: Iterable[Any]) -> Any:
        return self.extend(parameters)

    def __dir__(self) -> list[str]:
        return [k for k in super().__dir__() if not k.isdigit()]

    def append(self, value: Any) -> Any:
        """Adds a value at the end."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Any:
        """Adds values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError("ParameterList.extend should be called with an iterable, but got "
                            + type(values).__name__)
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join("  " + _shown(i, p) for i, p in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dictionary of parameters; tensors put into it become parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    @staticmethod
    def _key(key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError(f"Index given to ParameterDict cannot be used as a key as it is not a "
                            f"string (type is '{type(key).__name__}'). Open an issue on github if "
                            "you need non-string keys.")
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._key(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = None
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, self._key(key), value)

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._key(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def copy(self) -> Any:
        """Another dictionary of the same parameters."""
        return ParameterDict(OrderedDict((k, self[k]) for k in self._keys))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of a key, which is set to `default` first if it is missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Takes out everything."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Takes out the value of a key."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Takes out the last (key, value)."""
        key, _ = self._keys.popitem()
        self._keys[key] = None
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        return self[key] if key in self else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> Any:
        """Another dictionary with these keys, each of value `default`."""
        return ParameterDict((k, default) for k in keys)

    def keys(self) -> Any:
        """The keys."""
        return self._keys.keys()

    def items(self) -> Any:
        """(key, value) pairs."""
        return ((k, self[k]) for k in self._keys)

    def values(self) -> Any:
        """The values."""
        return (self[k] for k in self._keys)

    def update(self, parameters: Any) -> None:
        """Adds the values of a mapping (sorted by key unless ordered) or of (key, value) pairs."""
        if not isinstance(parameters, Iterable):
            raise TypeError("ParametersDict.update should be called with an iterable of key/value "
                            "pairs, but got " + type(parameters).__name__)
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            pairs: Any = parameters.items()
        elif isinstance(parameters, Mapping):
            pairs = sorted(parameters.items())
        else:
            pairs = parameters
        for i, pair in enumerate(pairs):
            if not isinstance(pair, Iterable):
                raise TypeError(f"ParameterDict update sequence element #{i} should be Iterable; is"
                                + type(pair).__name__)
            pair = tuple(pair)
            if len(pair) != 2:
                raise ValueError(f"ParameterDict update sequence element #{i} has length "
                                 f"{len(pair)}; 2 "
                                 "is required")
            self[pair[0]] = pair[1]

    def extra_repr(self) -> str:
        return "\n".join("  " + _shown(k, p, lambda t: t.type()) for k, p in self.items())

    def __call__(self, input: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other: Any) -> Any:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> Any:
        made = other.copy()
        made.update(self)
        return made

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self


__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]

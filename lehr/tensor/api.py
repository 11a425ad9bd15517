"""The public functions and methods, made from signatures at first use.

`function("softplus")` is `lehr.softplus`, `method("softplus")` is `Tensor.softplus`, `method("softplus_")` its
in-place form. A name with one op becomes a Python function with exactly the op's parameters, so Python binds
the arguments; a name with several ops tries them in order of registration.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from lehr.base.device import Device
from lehr.base.dtype import DType
from lehr.ops import families, parts, registry  # noqa: F401  (families fills the registry)
from lehr.ops.registry import PLACES, Op, header
from lehr.tensor import dispatch
from lehr.tensor.tensor import Tensor

Maker = Callable[..., Any]


_INDEX: dict[str, list[Op]] = {}
_COUNT = [0]


def paths() -> dict[str, list[Op]]:
    """Public path (`exp`, `Tensor.exp`, `Tensor.exp_`, `nn.functional.gelu`) -> overloads, in order."""
    if len(registry.OPS) != _COUNT[0]:
        _INDEX.clear()
        for o in registry.OPS.values():
            for path in o.places:
                _INDEX.setdefault(path, []).append(o)
            if "inplace" in o.where.split():
                for name in (o.api, *(a for a in o.aliases if "." not in a)):
                    _INDEX.setdefault(f"Tensor.{name}_", []).append(o)
        _COUNT[0] = len(registry.OPS)
    return _INDEX


def names(place: str) -> list[str]:
    """Every public name at `place` ("function", "method", "nn", ...)."""
    front = PLACES[place]
    found = [p.removeprefix(front) for p in (*paths(), *_PARTS) if p.startswith(front)]
    return sorted({n for n in (*found, *(_PLACED if front == "Tensor." else ())) if "." not in n})


# Tensor's methods and properties written over ops: module -> names ("here=there" where they differ).
METHODS = {
    "convert": "to=tensor_to is_contiguous contiguous item tolist numpy",
    "gradient": "backward=tensor_backward requires_grad_",
}
_PLACED = {word.split("=")[0]: (module, word.split("=")[-1])
           for module, words in METHODS.items() for word in words.split()}


_PARTS = {path: stem for stem, paths in parts.PLACES.items() for path in paths}


def _part(name: str, stem: str, form: str) -> Maker:
    """A function of several results (`lehr.ops.parts`), bound to tensors."""
    params = list(parts.signature_of(stem).parameters.values())
    texts, values, keyword = [], [], False
    for i, p in enumerate(params):
        shown = "self" if form == "method" and i == 0 else p.name
        if p.kind is p.KEYWORD_ONLY and not keyword:
            keyword = True
            texts.append("*")
        if p.kind is p.VAR_POSITIONAL:
            keyword = True
            texts.append(f"*{shown}")
            values.append(f"*{shown}")
            continue
        texts.append(shown if p.default is p.empty else f"{shown}=_d[{i}]")
        values.append(f"{p.name}={shown}" if p.kind is p.KEYWORD_ONLY else shown)
    space = {"_d": [p.default for p in params], "_run": parts.FUNCTIONS[stem], "_F": Tensor.F,
             "__name__": __name__}
    exec(f"def {name}({', '.join(texts)}):\n    return _run(_F, {', '.join(values)})", space)
    made = space[name]
    made.__doc__ = parts.FUNCTIONS[stem].__doc__
    made.__qualname__ = f"Tensor.{name}" if form == "method" else name
    return made  # type: ignore[no-any-return]


def function(name: str, place: str = "function") -> Maker | None:
    """The function `name` of a namespace, or None."""
    stem = _PARTS.get(PLACES[place] + name)
    if stem is not None:
        return _part(name, stem, "function")
    found = paths().get(PLACES[place] + name)
    return _make(name, found, "function") if found else None


def method(name: str) -> Any:
    """The method, in-place method or property `name` of Tensor, or None."""
    if name in _PLACED:
        module, attribute = _PLACED[name]
        return getattr(importlib.import_module(f"lehr.tensor.{module}"), attribute)
    path = f"Tensor.{name}"
    stem = _PARTS.get(path)
    if stem is not None:
        return _part(name, stem, "method")
    found = paths().get(path)
    if not found:
        return None
    if "property" in found[0].where.split():
        return property(_make(name, found, "method"))
    is_write = name.endswith("_") and name not in (found[0].api, *found[0].aliases)
    return _make(name, found, "inplace" if is_write else "method")


def _make(name: str, overloads: list[Op], form: str) -> Maker:
    made = _exact(name, overloads[0], form) if len(overloads) == 1 else _several(name, overloads, form)
    made.__doc__ = "\n\n".join(
        f"{o.signature.text}\n\n{o.doc}".strip() for o in overloads)
    made.__qualname__ = f"Tensor.{name}" if form != "function" else name
    return made


def _exact(name: str, op: Op, form: str) -> Maker:
    """A function with the op's own parameter list."""
    params = op.params
    parts = [p.name for p in params]
    text = header(op.signature)
    if form != "function" and params:
        text = text.replace(params[0].name, "self", 1)
        parts[0] = "self"
    values = [f"_listed({q})" if p.variadic else q for p, q in zip(params, parts, strict=True)]
    bound = f"({', '.join(values)}{',' if values else ''})"
    space = {"_d": tuple(p.default for p in params), "_op": op, "_listed": listed,
             "_call": dispatch.call, "_inplace": dispatch.inplace, "_out": write_out,
             "__name__": __name__}
    if form == "function" and "out" not in parts and "Tensor" in op.signature.results:
        star = "" if any(p.keyword or p.variadic for p in params) else "*, "
        text += f"{', ' if text else ''}{star}out=None"
        body = (f"    if out is None: return _call(_op, {bound})\n"
                f"    return _out(_op, {bound}, out)")
    else:
        body = f"    return {'_inplace' if form == 'inplace' else '_call'}(_op, {bound})"
    if any(p.variadic for p in params):  # `*dims` may also come by name
        passed = ", ".join(f"*{q}" if p.variadic else f"{q}={q}" if p.keyword else q
                           for p, q in zip(params, parts, strict=True))
        body = f"    if _more: return _named({passed}, **_more)\n{body}"
        text += ", **_more"
        space["_named"] = _several(name, [op], form)
    safe = name if name.isidentifier() else "op"
    exec(f"def {safe}({text}):\n{body}", space)
    return space[safe]  # type: ignore[no-any-return]


def listed(values: tuple[Any, ...]) -> list[Any]:
    """`*size` given as numbers, or as one sequence."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        return list(values[0])
    return list(values)


def write_out(op: Op, bound: tuple[Any, ...], out: Any) -> Any:
    """`out=`: the result is written into the given tensor(s), which are returned."""
    made = dispatch.call(op, bound)
    several = isinstance(made, tuple)
    for target, value in zip(out if several else (out,), made if several else (made,), strict=True):
        if target.requires_grad or value.requires_grad:
            raise RuntimeError(f"{op.api}(): functions with out=... arguments don't support automatic "
                               "differentiation, but one of the arguments requires grad.")
        if tuple(target._shape) != tuple(value._shape):
            target.resize_(value._shape)
        if not dispatch.can_cast(value.dtype, target.dtype):
            raise RuntimeError(f"result type {value.dtype} can't be cast to the desired output type "
                               f"{target.dtype}")
        dispatch.assign(target, value)
    return out


def _several(name: str, overloads: list[Op], form: str) -> Maker:
    """A function that takes the first overload that fits."""
    run = dispatch.inplace if form == "inplace" else dispatch.call

    def choose(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        for op in overloads:
            bound = fit(op, args, kwargs)
            if bound is not None:
                return run(op, bound) if out is None else write_out(op, bound, out)
        given = ", ".join([*(type(a).__name__ for a in args),
                           *(f"{k}={type(v).__name__}" for k, v in kwargs.items())])
        known = "\n".join(f" * {o.signature.text}" for o in overloads)
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({given}), but "
                        f"expected one of:\n{known}")
    choose.__name__ = name
    return choose


def fit(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """The bound arguments if they suit the op's parameters in number, name and type."""
    if op.params and "input" == op.params[0].name and "self" in kwargs:
        kwargs = {("input" if k == "self" else k): v for k, v in kwargs.items()}
    try:
        bound = op.signature.bind(args, kwargs)
    except TypeError:
        return None
    fixed = list(bound)
    for i, p in enumerate(op.params):
        if p.variadic:
            fixed[i] = listed(bound[i])
        if not suits(fixed[i], p):
            return None
    return tuple(fixed)


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, complex)) or hasattr(x, "scalar_category")


CHECKS: dict[str, Callable[[Any], bool]] = {
    "Tensor": lambda x: isinstance(x, Tensor),
    "Scalar": _is_number,
    "int": lambda x: (isinstance(x, int) and not isinstance(x, bool)) or hasattr(x, "__index__"),
    "float": lambda x: _is_number(x) and not isinstance(x, (bool, complex)),
    "bool": lambda x: isinstance(x, bool),
    "str": lambda x: isinstance(x, str),
    "dtype": lambda x: isinstance(x, DType),
    "device": lambda x: isinstance(x, (str, Device, int)),
    "generator": lambda x: hasattr(x, "manual_seed"),
}


def suits(value: Any, p: Any) -> bool:
    """Whether a value can be this parameter."""
    if value is None:
        return p.optional or p.default is None
    if p.many and type(value) in (list, tuple) or isinstance(value, tuple):
        return p.many and all(v is None or any(_check(t, v) for t in p.types) for v in value)
    if p.many and "int" not in p.types:
        return False
    return any(_check(t, value) for t in p.types)


def _check(kind: str, value: Any) -> bool:
    return CHECKS[kind](value)

"""The public functions and methods, made from signatures at first use.

`function("softplus")` is `lehr.softplus`, `method("softplus")` is `Tensor.softplus`,
`method("softplus_")` its in-place form. A name with one op becomes a Python function with exactly
the op's parameters, so Python binds the arguments; a name with several ops tries them in order of
registration. What is written in Python over ops is listed in METHODS.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from lehr.base.device import Device
from lehr.base.dtype import DType
from lehr.ops import families, parts, registry  # noqa: F401  (families fills the registry)
from lehr.ops.registry import CREATE, PLACES, POINTWISE, REQUIRED, Op, header
from lehr.tensor import dispatch, override
from lehr.tensor.format import plain
from lehr.tensor.out import write_out
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

Maker = Callable[..., Any]

# Tensor's methods and properties that are written over ops: module of this folder -> names
# ("here=there" where they differ).
METHODS = {
    "convert": "to=tensor_to is_contiguous contiguous item tolist numpy type=type_ type_as "
               "float=float_ double half "
               "bfloat16 int=int_ long short char byte bool=bool_ cfloat cdouble cpu cuda",
    "gradient": "backward=tensor_backward requires_grad_ detach_",
    "hook": "register_hook register_post_accumulate_grad_hook retain_grad",
    "override": "as_subclass",
    "memory": "resize_ resize_as_ set_ as_strided as_strided_ share_memory_ is_shared pin_memory "
              "is_pinned untyped_storage storage is_set_to storage_type",
    "attribute": "is_cpu is_cuda is_meta is_mps is_xpu is_hpu is_mtia is_maia is_xla is_ipu "
                 "is_vulkan is_sparse is_sparse_csr is_quantized is_mkldnn is_nested layout "
                 "itemsize nbytes names output_nr _base name retains_grad grad_dtype volatile "
                 "_is_view element_size get_device is_floating_point is_complex is_signed "
                 "is_inference is_conj is_neg resolve_conj resolve_neg is_same_size is_nonzero "
                 "is_coalesced dim_order has_names is_non_overlapping_and_dense",
    "sparse": "to_sparse to_sparse_coo to_dense sparse_mask coalesce indices values _indices "
              "_values _nnz sparse_dim dense_dim",
    "random": "uniform_ normal_ log_normal_ exponential_ cauchy_ geometric_ random_ bernoulli_ "
              "bernoulli multinomial",
    "create": "new_tensor new",
    "elementwise": "copy_ apply_ map_ map2_ fill_diagonal_ sum_to_size polygamma polygamma_ "
                   "conj_physical_",
}
_PLACED = {word.split("=")[0]: (module, word.split("=")[-1])
           for module, words in METHODS.items() for word in words.split()}
_PARTS = {path: stem for stem, found in parts.PLACES.items() for path in found}

_INDEX: dict[str, list[Op]] = {}
_COUNT = [0]


def paths() -> dict[str, list[Op]]:
    """Public path (`exp`, `Tensor.exp_`, `nn.functional.gelu`) -> overloads, in order."""
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


def function(name: str, place: str = "function") -> Maker | None:
    """The function `name` of a namespace, or None. It is pickled by that name."""
    made = _function(name, place)
    front = PLACES[place].rstrip(".")
    if made is not None and front and getattr(made, "__module__", "") == "lehr":
        made.__module__ = f"lehr.{front}"
    return made


def _function(name: str, place: str) -> Maker | None:
    path = PLACES[place] + name
    stem = _PARTS.get(path)
    if stem is not None:
        return _part(name, stem, "function")
    found = paths().get(path)
    if found:
        return _make(name, found, "function")
    if name.endswith("_"):  # torch.relu_(x), F.elu_(x)
        found = paths().get(path[:-1]) or paths().get(f"Tensor.{name}")
        if found and (place == "nn" or f"Tensor.{name}" in paths()):
            return _make(name, found, "write")
    if name.startswith("_foreach_") and place == "function":
        return importlib.import_module("lehr.tensor.foreach").function(name)
    return None


def _placed_method(name: str) -> Any:
    module, attribute = _PLACED[name]
    return getattr(importlib.import_module(f"lehr.tensor.{module}"), attribute)


CLOSED = frozenset(("as_subclass",))  # methods that are never taken over


def open_methods() -> None:
    """Lets methods that are already on the class be taken over (`__torch_function__`)."""
    for name in _PLACED:
        if name not in CLOSED and callable(Tensor.__dict__.get(name)):
            setattr(Tensor, name, override.public(_placed_method(name)))


def method(name: str) -> Any:
    """The method, in-place method or property `name` of Tensor, or None."""
    if name in _PLACED:
        made = _placed_method(name)
        is_open = override.WATCH.on and callable(made) and name not in CLOSED
        return override.public(made) if is_open else made
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


# -- making functions ------------------------------------------------------------------------------

NUMPY = {"dim": "axis", "keepdim": "keepdims"}   # numpy's names, which PyTorch takes as well
FACTORY = ("layout", "requires_grad", "pin_memory")  # further arguments of functions that create


METHOD = ("method", "inplace")           # forms whose first parameter is `self`
WRITES = ("inplace", "write")            # forms that write their first argument


class Text:
    """A function's parameters as source.

    head  the parameter list; default number i is `_d[i]`, one that was not given `_no`
    lines what turns numpy's names into PyTorch's
    call  (positional, by keyword) arguments as the caller would write them
    """

    def __init__(self, params: list[Any], form: str, more: tuple[str, ...] = ()) -> None:
        head: list[str] = []
        self.lines: list[str] = []
        self.positional: list[str] = []
        self.keywords: list[str] = []
        self.shown: list[str] = []
        starred = False
        names = {p.name for p in params}
        required = [p.name for p in params if p.default is REQUIRED and not p.variadic]
        for i, p in enumerate(params):
            name = "self" if form in METHOD and i == 0 else p.name
            self.shown.append(name)
            if p.keyword and not starred:
                head.append("*")
                starred = True
            if p.variadic:  # also by keyword, as one sequence
                starred = True
                head += [f"*_{name}", f"{name}=_no"]
                self.positional.append(f"*_{name}")
                self.keywords.append(name)
                self.lines.append(f"if {name} is _no: {name} = _listed(_{name})")
                continue
            if getattr(p, "types", ()) == ("Tensor",) and p.many:
                self.lines.append(f"if isinstance({name}, _T): _not_list('{name}')")
            if name == "memory_format":
                self.lines.append("memory_format = _plain(memory_format)")
            late = p.default is REQUIRED and p.name == "dim" and required[-1] == "dim"
            default = "" if p.default is REQUIRED and not late else "=_no" if late else f"=_d[{i}]"
            head.append(name + default)
            if starred:
                self.keywords.append(name)
            else:
                self.positional.append(name)
            if late:
                self.lines.append(f"if {name} is _no: {name} = _lacking(axis)")
            elif p.name in NUMPY and p.default is not REQUIRED:
                self.lines.append(f"if {NUMPY[name]} is not _no: {name} = {NUMPY[name]}")
        extra = [f"{NUMPY[n]}=_no" for n in NUMPY if n in names and any(
            line.startswith(("if " + n, f"if {NUMPY[n]}")) for line in self.lines)]
        extra += [f"{n}=None" for n in more]
        if extra and not starred:
            head.append("*")
        self.head = ", ".join(head + extra)

    @property
    def given(self) -> str:
        """The arguments as `(tuple), {dict}` for whoever takes the call over."""
        words = ", ".join(f"{k!r}: {k}" for k in self.keywords)
        return f"*_kept(({''.join(f'{p}, ' for p in self.positional)}), {{{words}}})"


def _lacking(axis: Any) -> Any:
    if axis is MISSING:
        raise TypeError("missing required argument: dim")
    return axis


def not_list(name: str) -> None:
    """Refuses a tensor, which would be taken for the list of its rows."""
    raise TypeError(f"argument '{name}' must be tuple of Tensors, not Tensor")


MISSING = override.MISSING


def _compile(name: str, text: Text, body: list[str], space: dict[str, Any],
             params: list[Any]) -> Maker:
    """Defines a public function: whoever takes it over (`__torch_function__`) comes first."""
    safe = name if name.isidentifier() else "op"
    space |= {"__name__": __name__, "_listed": listed, "_no": MISSING, "_plain": plain,
              "_T": Tensor, "_not_list": not_list,
              "_d": tuple(p.default for p in params),
              "_watch": override.WATCH, "_intercept": override.intercept, "_lacking": _lacking,
              "_late": functools.partial(late, params), "_state": STATE,
              "_kept": lambda given, words: _kept(params, given, words)}
    lines = ["if _watch.on:",
             f"    _made = _intercept(_f, {text.given})",
             "    if _made is not _no: return _made",
             *text.lines,
             "try:",
             *(f"    {line}" for line in body),
             "except (TypeError, AttributeError):",
             f"    _made = _late(_f, {text.given})",
             "    if _made is _no: raise",
             "    return _made"]
    exec(f"def {safe}({text.head}):\n" + "\n".join(f"    {line}" for line in lines), space)
    made = space["_f"] = space[safe]
    return made


def late(params: list[Any], f: Maker, given: tuple[Any, ...], words: dict[str, Any]) -> Any:
    """After an error: an argument may take the call over, be a number of numpy's, or be no tensor
    where one is needed."""
    made = override.late(f, given, words)
    if made is MISSING and boxed((given, words)):
        return f(*unboxed(given), **unboxed(words))
    if made is MISSING:
        plain = [p for p in params if not p.variadic]
        for i, (p, value) in enumerate(zip(plain, given, strict=False)):
            if getattr(p, "types", ()) == ("Tensor",) and not p.many and not p.optional \
                    and not isinstance(value, Tensor):
                raise TypeError(f"{f.__name__}(): argument '{p.name}' (position {i + 1}) must be "
                                f"Tensor, not {type(value).__name__}") from None
    return made


def boxed(x: Any) -> bool:
    """Whether it is a number of numpy's or contains one."""
    if isinstance(x, (tuple, list)):
        return any(map(boxed, x))
    if isinstance(x, dict):
        return any(map(boxed, x.values()))
    return isinstance(x, np.generic)


def unboxed(x: Any) -> Any:
    """The same with numbers of numpy's as Python's."""
    if type(x) in (tuple, list):
        return type(x)(map(unboxed, x))
    if isinstance(x, dict):
        return {k: unboxed(v) for k, v in x.items()}
    return x.item() if isinstance(x, np.generic) else x


def _kept(params: list[Any], given: tuple[Any, ...], words: dict[str, Any]) -> Any:
    """Arguments without those that have their defaults."""
    defaults = {p.name: p.default for p in params}
    plain = [p.default for p in params if not p.keyword and not p.variadic]
    count = len(given)
    while count and count <= len(plain) and given[count - 1] is plain[count - 1]:
        count -= 1
    return given[:count], {k: v for k, v in words.items()
                           if v is not MISSING and v is not defaults.get(k)}


def _make(name: str, overloads: list[Op], form: str) -> Maker:
    made = (_exact(name, overloads[0], form) if len(overloads) == 1
            else _several(name, overloads, form))
    made.__doc__ = "\n\n".join(f"{o.signature.text}\n\n{o.doc}".strip() for o in overloads)
    made.__qualname__ = f"Tensor.{name}" if form in METHOD else name
    made.__module__ = "lehr"
    return made


def _exact(name: str, op: Op, form: str) -> Maker:
    """A function with the op's own parameter list."""
    params = list(op.params)
    creates = op.kind == CREATE and "device" in op.signature.index
    has_out = form == "function" and "Tensor" in op.signature.results
    more = (("out",) if has_out else ()) + (FACTORY if creates else ())
    text = Text(params, form, tuple(m for m in more if m not in op.signature.index))
    values = list(text.shown)
    if creates and not params[0].is_tensor:
        at = op.signature.index["device"]
        values[at] = "_state.device if device is None else device"
    bound = f"({''.join(f'{v}, ' for v in values)})"
    space = {"_op": op, "_call": dispatch.call, "_inplace": dispatch.inplace,
             "_out": write_out, "_created": created}
    if form in WRITES:
        body = [f"return _inplace(_op, {bound})"]
    elif creates:
        out = "out" if has_out else "None"
        body = [f"return _created(_op, {bound}, {out}, layout, requires_grad)"]
    elif has_out:
        body = [f"if out is None: return _call(_op, {bound})", f"return _out(_op, {bound}, out)"]
    else:
        body = [f"return _call(_op, {bound})"]
    if op.kind is POINTWISE or op.name == "rsub":
        body[:0] = _tensors(name, params, text.shown, form)
    return _compile(name, text, body, space, params)


def _tensors(name: str, params: list[Any], shown: list[str], form: str) -> list[str]:
    """Source that refuses numbers where PyTorch takes tensors alone; the rules of elementwise ops
    would take them."""
    slots = [(p, s) for i, (p, s) in enumerate(zip(params, shown, strict=True))
             if p.is_tensor and not p.many and not (form in METHOD and i == 0)]
    only = [s for p, s in slots if p.types == ("Tensor",) and not p.optional]
    if only:
        test = " and ".join(f"isinstance({s}, _T)" for s in only)
        return [f"if not ({test}): raise TypeError({name!r})"]  # `late` says which argument
    if slots and form == "function" and not any(p.optional for p, _ in slots):
        test = " or ".join(f"isinstance({s}, _T)" for _, s in slots)
        first = shown[0]
        return [f"if not ({test}): raise TypeError(f\"{name}(): argument '{first}' (position 1) "
                f"must be Tensor, not {{type({first}).__name__}}\")"]
    return []


def listed(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Loose arguments given as numbers, or as one sequence."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        return tuple(values[0])
    return values


def created(op: Op, bound: tuple[Any, ...], out: Any, layout: Any, requires_grad: Any) -> Any:
    """A new tensor as the factory arguments ask."""
    if layout is not None and str(layout) != "torch.strided":
        raise NotImplementedError(f"{op.api}(layout={layout}): lehr has strided tensors only")
    if out is not None:
        return write_out(op, bound, out)
    sizes = bound[0]
    if type(sizes) in (tuple, list) and boxed(sizes):
        bound = (unboxed(sizes), *bound[1:])
    made = dispatch.call(op, bound)
    return made.requires_grad_() if requires_grad else made


def _several(name: str, overloads: list[Op], form: str) -> Maker:
    """A function that takes the first overload that fits."""
    run = dispatch.inplace if form in WRITES else dispatch.call
    creates = all(o.kind == CREATE for o in overloads)
    known_calls: dict[Any, Op] = {}  # types of the arguments -> the overload that they choose

    def choose(*args: Any, **kwargs: Any) -> Any:
        if override.WATCH.on:
            made = override.intercept(chosen, args, kwargs)
            if made is not MISSING:
                return made
        kinds = tuple(map(type, args)) if not kwargs else (*map(type, args), *(
            (k, type(v)) for k, v in kwargs.items()))
        seen = known_calls.get(kinds)
        if seen is not None:
            return run(seen, seen.signature.bind(args, kwargs))
        if boxed((args, kwargs)):
            return chosen(*unboxed(args), **unboxed(kwargs))
        settled = not kwargs or kwargs.keys().isdisjoint(TRANSLATED)
        out = kwargs.pop("out", None) if kwargs else None
        factory = {k: kwargs.pop(k) for k in FACTORY if k in kwargs} if creates and kwargs else {}
        for theirs, ours in (("axis", "dim"), ("keepdims", "keepdim")):
            if theirs in kwargs:
                kwargs[ours] = kwargs.pop(theirs)
        for op in overloads:
            bound = fit(op, args, kwargs)
            if bound is None:
                continue
            if settled and not creates and all(map(_is_plain, (*args, *kwargs.values()))):
                known_calls[kinds] = op
            if creates:
                if "device" in op.signature.index:
                    bound = _placed(op, bound)
                return created(op, bound, out, factory.get("layout"), factory.get("requires_grad"))
            return run(op, bound) if out is None else write_out(op, bound, out)
        made = override.late(chosen, args, kwargs)
        if made is not MISSING:
            return made
        given = ", ".join([*(type(a).__name__ for a in args),
                           *(f"{k}={type(v).__name__}" for k, v in kwargs.items())])
        known = "\n".join(f" * {o.signature.text}" for o in overloads)
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({given}), "
                        f"but expected one of:\n{known}")
    chosen = choose
    choose.__name__ = name
    return choose


TRANSLATED = frozenset(("out", "axis", "keepdims", *FACTORY))
PLAIN = frozenset((int, float, bool, complex, type(None), str, DType, Device))


def _is_plain(x: Any) -> bool:
    """Whether the type of an argument says all that choosing an overload needs."""
    return type(x) in PLAIN or isinstance(x, Tensor)


def _placed(op: Op, bound: tuple[Any, ...]) -> tuple[Any, ...]:
    """New tensors go to the default device."""
    at = op.signature.index["device"]
    if bound[at] is not None or STATE.device is None:
        return bound
    return (*bound[:at], STATE.device, *bound[at + 1:])


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
    "int": lambda x: (isinstance(x, int) and not isinstance(x, bool)) or (
        hasattr(x, "__index__") and not isinstance(x, (bool, Tensor))),
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
        return p.many and all(v is None or any(CHECKS[t](v) for t in p.types) for v in value)
    if p.many and "int" not in p.types:
        return False
    return any(CHECKS[t](value) for t in p.types)


class _Param:
    """A parameter of a Python function, as `Text` reads it."""

    def __init__(self, p: Any) -> None:
        self.name, self.default = p.name, REQUIRED if p.default is p.empty else p.default
        self.keyword, self.variadic = p.kind is p.KEYWORD_ONLY, p.kind is p.VAR_POSITIONAL
        self.is_tensor = False


def _part(name: str, stem: str, form: str) -> Maker:
    """A function of several results (`lehr.ops.parts`), bound to tensors."""
    params = [_Param(p) for p in parts.signature_of(stem).parameters.values()]
    text = Text(params, form)
    values = [f"*{q}" if p.variadic else f"{p.name}={q}" if p.keyword else q
              for p, q in zip(params, text.shown, strict=True)]
    space = {"_run": parts.FUNCTIONS[stem], "_F": Tensor.F}
    made = _compile(name, text, [f"return _run(_F, {', '.join(values)})"], space, params)
    made.__doc__ = parts.FUNCTIONS[stem].__doc__
    made.__qualname__ = f"Tensor.{name}" if form == "method" else name
    made.__module__ = "lehr"
    return made


__all__ = ["function", "header", "method", "names", "paths"]

"""The operator registry: one declaration an op, everything else derived from it.

    @op("softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor")
    class softplus:
        kind = POINTWISE
        rule = rule.float_unary
        ...

A signature is a Python `def` header. Annotations: `Tensor`, `Scalar` (a Python or symbolic number),
`int`, `float`, `bool`, `str`, `dtype`, `device`, `generator`, `list[int]`, `list[Tensor]`, joined
by `|` with each other and with `None`. `*size: int` collects positional integers or takes one
sequence. Results: `Tensor`, `list[Tensor]`, `None`, a number, or `named(values=Tensor,
indices=Tensor)`.

An op's *bound arguments* are a flat tuple in signature order, defaults filled in. The same tuple
reaches `rule`, `eager`, `decomp` and `vjp` (the latter two after the interpreter `F`; `vjp` also
after the gradient(s) and the result(s)), and it is what a graph node stores.
"""

from __future__ import annotations

import ast
import collections
import functools
from collections.abc import Callable, Iterator
from typing import Any

# Kinds pick the default lowering, layout, fusion and sharding rules.
POINTWISE = "pointwise"    # one output element from the same element of each (broadcast) input
REDUCE = "reduce"          # monoids over axes
SCAN = "scan"              # running monoid along one axis
VIEW = "view"              # an index map; eager shares storage
INDEX = "index"            # gather, scatter, sort: indices are data
CREATE = "create"          # no tensor input: full, arange, eye
RANDOM = "random"          # Philox bits indexed by logical element
EXTERN = "extern"          # a library call or template: matmul, convolution, attention
COMM = "comm"              # a collective: op -> Future, wait
COMPOSITE = "composite"    # only a decomposition
HOST = "host"              # no back end lowers it: the compiled program calls its eager kernel
KINDS = (POINTWISE, REDUCE, SCAN, VIEW, INDEX, CREATE, RANDOM, EXTERN, COMM, COMPOSITE, HOST)

REQUIRED = object()
EVERYWHERE = "function method inplace"

# Word of `where` -> what stands before the public name. An api name loses the word it begins with:
# api "linalg_norm" in linalg is `linalg.norm` (and shares no overload table with `norm`).
PLACES = {"function": "", "method": "Tensor.", "property": "Tensor.", "nn": "nn.functional.",
          "special": "special.", "linalg": "linalg.", "fft": "fft."}


class Param:
    """One parameter: `types` holds the base names of its annotation, `many` says list[...]."""

    __slots__ = ("default", "keyword", "many", "name", "optional", "types", "variadic")

    def __init__(self, name: str, types: tuple[str, ...], many: bool, optional: bool, default: Any,
                 keyword: bool, variadic: bool) -> None:
        self.name, self.types, self.many, self.optional = name, types, many, optional
        self.default, self.keyword, self.variadic = default, keyword, variadic

    @property
    def is_tensor(self) -> bool:
        return "Tensor" in self.types

    @property
    def text(self) -> str:
        kind = " | ".join(self.types)
        kind = f"list[{kind}]" if self.many and not self.variadic else kind
        kind += " | None" if self.optional else ""
        tail = "" if self.default is REQUIRED else f" = {self.default!r}"
        return f"{'*' if self.variadic else ''}{self.name}: {kind}{tail}"


class Signature:
    """A signature string, parsed at the first use: importing the registry costs only the names."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.name = self.api = text[: text.index("(")]

    @functools.cached_property
    def _head(self) -> ast.FunctionDef:
        head = ast.parse(f"def {self.text}: ...").body[0]
        assert isinstance(head, ast.FunctionDef)
        return head

    @functools.cached_property
    def params(self) -> tuple[Param, ...]:
        return tuple(_params(self._head))

    @functools.cached_property
    def results(self) -> tuple[str, ...]:
        """The annotation of each result."""
        return _results(self._head.returns)[0]

    @functools.cached_property
    def result_names(self) -> tuple[str, ...]:
        return _results(self._head.returns)[1]

    @functools.cached_property
    def tensor_slots(self) -> tuple[int, ...]:
        return tuple(i for i, p in enumerate(self.params) if p.is_tensor)

    @functools.cached_property
    def index(self) -> dict[str, int]:
        return {p.name: i for i, p in enumerate(self.params)}

    @functools.cached_property
    def named(self) -> Any:
        """The named tuple of the results, or None where they have no names."""
        if not self.result_names:
            return None
        name = self.api.replace(".", "_")
        made = collections.namedtuple(  # type: ignore[misc]
            name, self.result_names, module="torch.return_types")
        made.__repr__ = _shown  # type: ignore[method-assign]
        return made

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The bound-argument tuple; TypeError as Python's own binding would raise.

        Loose integers (`*size`) may also come as one sequence, positional or by name.
        """
        if kwargs and not kwargs.keys().isdisjoint(self._loose):
            return self._named_binder(*args, **kwargs)
        return self._binder(*args, **kwargs)

    @functools.cached_property
    def _loose(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.params if p.variadic)

    @functools.cached_property
    def _binder(self) -> Callable[..., tuple[Any, ...]]:
        return self._compile(header(self))

    @functools.cached_property
    def _named_binder(self) -> Callable[..., tuple[Any, ...]]:
        return self._compile(header(self).replace("*", ""))

    def _compile(self, params: str) -> Callable[..., tuple[Any, ...]]:
        space: dict[str, Any] = {"_d": tuple(p.default for p in self.params),
                                 "_sequence": _sequence}
        names = "".join(f"_sequence({p.name}), " if p.variadic else f"{p.name}, "
                        for p in self.params)
        exec(f"def {self.name}({params}): return ({names})", space)
        return space[self.name]  # type: ignore[no-any-return]


def _sequence(given: Any) -> tuple[Any, ...]:
    """Loose arguments, which may be one sequence or (given by name) one item."""
    if not isinstance(given, (tuple, list)):
        return (given,)
    alone = len(given) == 1 and isinstance(given[0], (tuple, list))
    return tuple(given[0] if alone else given)


def header(signature: Signature) -> str:
    """The parameter list as source; default number i is the name `_d[i]`."""
    parts, starred = [], False
    for i, p in enumerate(signature.params):
        if p.keyword and not starred:
            parts.append("*")
            starred = True
        starred = starred or p.variadic
        text = f"*{p.name}" if p.variadic else p.name
        parts.append(text if p.default is REQUIRED else f"{text}=_d[{i}]")
    return ", ".join(parts)


def _annotation(node: ast.expr | None) -> tuple[tuple[str, ...], bool, bool]:
    if node is None:
        raise SyntaxError("every parameter of an op needs an annotation")
    if isinstance(node, ast.BinOp):
        left, right = _annotation(node.left), _annotation(node.right)
        types = tuple(dict.fromkeys(left[0] + right[0]))
        return types, left[1] or right[1], left[2] or right[2]
    if isinstance(node, ast.Constant) and node.value is None:
        return (), False, True
    if isinstance(node, ast.Subscript):
        types, _, optional = _annotation(node.slice)
        return types, True, optional
    assert isinstance(node, ast.Name), ast.dump(node)
    return (node.id,), False, False


def _params(head: ast.FunctionDef) -> Iterator[Param]:
    a = head.args
    plain = a.posonlyargs + a.args
    gaps: list[Any] = [REQUIRED] * (len(plain) - len(a.defaults))
    defaults = gaps + [ast.literal_eval(d) for d in a.defaults]
    for arg, default in zip(plain, defaults, strict=True):
        yield Param(arg.arg, *_annotation(arg.annotation), default, False, False)
    if a.vararg:
        types, _, optional = _annotation(a.vararg.annotation)
        yield Param(a.vararg.arg, types, True, optional, REQUIRED, False, True)
    for arg, value in zip(a.kwonlyargs, a.kw_defaults, strict=True):
        default = REQUIRED if value is None else ast.literal_eval(value)
        yield Param(arg.arg, *_annotation(arg.annotation), default, True, False)


def _results(node: ast.expr | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if isinstance(node, ast.Call):
        return (tuple(ast.unparse(k.value) for k in node.keywords),
                tuple(str(k.arg) for k in node.keywords))
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "tuple":
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return tuple(ast.unparse(p) for p in parts), ()
    return (ast.unparse(node) if node else "Tensor",), ()


def _shown(self: Any) -> str:
    """How named results print."""
    inner = ",\n".join(f"{k}={v!r}" for k, v in zip(self._fields, self, strict=True))
    return f"torch.return_types.{type(self).__name__}(\n{inner})"


class Op:
    """A registered operator. Attributes not given in the declaration hold the defaults below.

    kind      one of KINDS
    rule      (*bound) -> Spec or tuple of Spec: result types, and the dtype inputs are computed in
    layout    VIEW: (*bound) -> (shape, strides, offset) on the input's storage; other kinds:
              (spec, *bound) -> strides, where neither pointwise nor contiguous is what PyTorch
              gives
    eager     (np, *bound with arrays) -> array(s): reference semantics and CPU eager kernel
    decomp    (F, *bound) -> result(s) over ops; NotImplemented where this very call is primitive
    vjp       (F, g, out, *bound) -> gradient(s) of the tensor parameters, in order; an element may
              be
              None or a zero-argument callable (computed only where needed). Broadcasting and dtype
              promotion of the inputs are undone by the caller.
    exact     True: the gradient only moves or selects values, so half precision is not widened for
              it
    described parameters of which `vjp` reads only shapes and dtypes though its body does not show
    it
              (lists of tensors)
    inverse   VIEW: (F, base, value, *bound[1:]) -> base with the viewed elements replaced by value
    c, triton scalar spellings with `{x}`-like slots, named as the parameters, `{f}` the C float
    suffix
    monoid    REDUCE and SCAN: name of the loop IR's monoid
    lower     (L, idx, *bound) -> the scalar expression of the output element at `idx` (index ops,
              views)
    scatter   (L, *bound) -> L.scatter(base, extents, index, value, mode)
    dtypes    words for the generated samples: "float int bool half"; "" = all that the rule takes
    where     space-separated places where the API exists: function method inplace property nn
              special
              linalg fft (inplace means the derived `name_`)
    api       the public name; overloads are ops that share it (tried in order of registration)
    aliases   more public names
    nondiff   True: the result carries no gradient (or a tuple of result indexes that carry none)
    host      True: no back end lowers it; the compiled program calls `eager` (a reported HostCall)
    checks    (F, *bound) -> None: calls `check_index` or `check_divisor` for what data may stop;
              such errors come even where nothing uses the result
    stops     True: data may stop the op, which therefore runs even where nothing uses its result
    breaks    the break code capture raises (data-dependent sizes), else None
    samples   (s) -> iterator of samples for the generated tests
    tolerance dtype name -> (rtol, atol), with a reason in a comment beside it
    """

    DEFAULTS: dict[str, Any] = {
        "kind": COMPOSITE, "rule": None, "layout": None, "eager": None, "decomp": None,
        "vjp": None, "inverse": None, "c": None, "triton": None, "monoid": None,
        "where": "function method", "api": None, "aliases": (), "nondiff": False, "host": False,
        "exact": False, "described": (), "breaks": None, "samples": None, "tolerance": {},
        "lower": None, "scatter": None, "dtypes": "", "doc": "", "checks": None,
        "stops": False,
    }

    def __init__(self, signature: Signature, fields: dict[str, Any], module: str) -> None:
        unknown = [k for k in fields if k not in self.DEFAULTS and not k.startswith("_")]
        if unknown:
            raise TypeError(f"op {signature.name}: unknown field {', '.join(unknown)}")
        self.signature = signature
        self.name = signature.name
        self.module = module
        vars(self).update(fields)       # the rest are the class's
        self.doc = fields.get("__doc__") or ""
        self.api = self.signature.api = self.api or self.name
        if self.kind not in KINDS:
            raise TypeError(f"op {self.name}: unknown kind {self.kind!r}")
        if self.rule is None:
            raise TypeError(f"op {self.name} needs a rule")
        # Slots that compile.py fills with compiled one-op kernels, by device type.
        self.slots: dict[str, Callable[..., Any]] = {}

    kind: str
    rule: Callable[..., Any]
    layout: Callable[..., Any] | None
    eager: Callable[..., Any] | None
    decomp: Callable[..., Any] | None
    vjp: Callable[..., Any] | None
    inverse: Callable[..., Any] | None
    c: Any
    triton: Any
    monoid: str | None
    where: str
    api: str
    aliases: tuple[str, ...]
    nondiff: bool | tuple[int, ...]
    host: bool
    exact: bool
    described: tuple[str, ...]
    checks: Callable[..., Any] | None
    stops: bool
    breaks: str | None
    samples: Callable[..., Any] | None
    tolerance: dict[str, tuple[float, float]]
    lower: Callable[..., Any] | None
    scatter: Callable[..., Any] | None
    dtypes: str
    doc: str

    @property
    def params(self) -> tuple[Param, ...]:
        return self.signature.params

    @functools.cached_property
    def places(self) -> tuple[str, ...]:
        """Dotted public paths below the package, `Tensor.` before methods: see PLACES.

        An alias with a dot is such a path; one without stands wherever the op itself does.
        """
        words = [w for w in self.where.split() if w in PLACES]
        names = [self.api, *(a for a in self.aliases if "." not in a)]
        found = [f"{PLACES[w]}{name.removeprefix(w + '_')}" for name in names for w in words]
        return (*found, *(a for a in self.aliases if "." in a))

    @functools.cached_property
    def saves(self) -> dict[str, str]:
        """What `vjp` reads of each tensor parameter and of `out`: "value", "meta" or "nothing"."""
        from lehr.ops.saving import reads_of
        return reads_of(self)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return get, (self.name,)


for _name, _value in Op.DEFAULTS.items():
    setattr(Op, _name, _value)
OPS: dict[str, Op] = {}
OVERLOADS: dict[str, list[Op]] = {}


HIDDEN = frozenset(("__module__", "__dict__", "__weakref__", "__qualname__", "__firstlineno__",
                    "__static_attributes__"))


def op(signature: str) -> Callable[[type], Op]:
    """Class decorator: registers the op that the class body declares and returns it."""
    lazy = Signature(signature)

    def register(body: type) -> Op:
        fields = {k: v.__func__ if type(v) is staticmethod else v for k, v in vars(body).items()
                  if k not in HIDDEN}
        made = Op(lazy, fields, body.__module__)
        if made.name in OPS:
            raise TypeError(f"op {made.name} is declared twice: {OPS[made.name].module}, "
                            f"{made.module}")
        OPS[made.name] = made
        OVERLOADS.setdefault(made.api, []).append(made)
        return made
    return register


def get(name: str) -> Op:
    try:
        return OPS[name]
    except KeyError:
        raise LookupError(f"no op named {name!r} is registered") from None


class Functions:
    """`F`: the registry bound to an interpreter. `F.exp(x)` binds the arguments and runs
    `interpret(op, bound)`.

    One instance serves eager tensors (and captured ones, which are tensors), another a graph
    builder; the bodies of `decomp`, `vjp` and `inverse` run over either.
    """

    def __init__(self, interpret: Callable[[Op, tuple[Any, ...]], Any]) -> None:
        self._interpret = interpret

    def __getattr__(self, name: str) -> Callable[..., Any]:
        target, interpret = get(name), self._interpret
        bind = target.signature.bind

        def run(*args: Any, **kwargs: Any) -> Any:
            return interpret(target, bind(args, kwargs))
        setattr(self, name, run)
        return run

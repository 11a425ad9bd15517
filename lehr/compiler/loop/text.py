"""The text form of programs, and its parser (`lehr.compiler.loop.parse`).

    program step<s0: 8..1024>(x: param f32[s0,64], lr: scalar f64[]) {
      y: output f32[s0,64]
      m: local f32[]
      kernel softmax(i0: s0; i1: 64, k0: 64) {
        # model.py:12 | y = F.softmax(x)
        m[] = max.f32[k0](x[i0,k0])
        y[i0,i1] for (i1) = exp.f32(sub.f32(x[i0,i1], m[]))
      }
      return y
    }

A kernel's header names its outer axes, then (after `;`) the axes used inside. Shared parts of
expressions are named by `let` lines, which have no other meaning. Values: `f32(1.5)` a constant,
`index({i0*4 + 1})`, `x[i0,i1]` or `load(x[i0,i1], mask, other)`, `exp.f32(a)` an op, `cast.f32(a)`,
`select.f32(c, a, b)`, `sum.f32[k0](a)` a reduction (`argmax.i64.1[k0](a, i)`: part 1),
`scan.sum.f32[i1](a)`, `random(key, counter, {index})`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lehr.base import spell, sym
from lehr.compiler.graph.ir import Location
from lehr.compiler.graph.text import argument_text, location_text, name_text, symbol_text
from lehr.compiler.loop.ir import (
    Axis,
    Bind,
    Buffer,
    Expr,
    Extern,
    Group,
    HostCall,
    Input,
    Kernel,
    Operand,
    Program,
    Step,
    Store,
)


def print_program(program: Program) -> str:
    """The text form of a program; TypeError names a constant that has none."""
    symbols = ", ".join(map(symbol_text, program.symbols))
    params = ", ".join(map(_declaration, program.params))
    head = f"program {name_text(program.name)}{f'<{symbols}>' if symbols else ''}({params}) {{"
    lines = [head, *(f"  {_declaration(b)}" for b in program.buffers)]
    for step in program.steps:
        lines += [f"  {line}" for line in step_lines(step)]
    lines.append(f"  return {', '.join(b.name for b in program.results)}".rstrip())
    return "\n".join((*lines, "}"))


def print_step(step: Step) -> str:
    return "\n".join(step_lines(step))


def print_expr(e: Expr) -> str:
    """One value, shared parts as `let` lines before it."""
    writer = _Writer((), (e,))
    writer.value(e)
    return "\n".join(writer.lines)


def step_lines(step: Step) -> list[str]:
    return _STEPS[type(step)](step)


def sizes(values: Iterable[Any]) -> str:
    return f"[{','.join(map(sym.to_text, values))}]"


def _declaration(b: Buffer) -> str:
    text = f"{b.name}: {b.role} {b.dtype.short}{sizes(b.shape)}"
    if b.strides != row_major(b.shape):
        text += f" strides {sizes(b.strides)}"
    if b.data is not None:
        text += f" = {argument_text(tuple(b.data.ravel().tolist()))}"
    return text


def row_major(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """Strides, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step = step * n
    return tuple(reversed(strides))


def _located(locations: Iterable[Location]) -> list[str]:
    return [location_text(at).strip() for at in locations]


def _kernel(k: Kernel) -> list[str]:
    writer = _Writer(k.axes, values_of(k.stores, k.binds), [s.axes for s in k.stores])
    outer = ", ".join(writer.declared(a) for a in k.axes)
    lines = _located(k.locations) + writer.body(k.binds, k.stores)
    inner = ", ".join(writer.declared(a) for a in writer.inner)
    head = f"kernel {name_text(k.name)}({outer}{f'; {inner}' if inner else ''}) {{"
    return [head, *(f"  {line}" for line in lines), "}"]


def _group(g: Group) -> list[str]:
    inner = [f"  {line}" for k in g.kernels for line in _kernel(k)]
    return [f"group {name_text(g.name)} {{", *inner, "}"]


def _operand(o: Operand) -> str:
    rounded = f", as {o.rounded.short}" if o.rounded else ""
    return (f"view({o.buffer.name}, {{{sym.to_text(o.offset)}}}, "
            f"{sizes(o.shape)}, {sizes(o.strides)}{rounded})")


def _step_argument(a: Any) -> str:
    if isinstance(a, Operand):
        return _operand(a)
    if isinstance(a, Input):
        return f"in({a.slot})"
    if isinstance(a, Buffer):
        return f"number({a.name})"
    if isinstance(a, tuple):
        return f"({', '.join(map(_step_argument, a))}{',' if len(a) == 1 else ''})"
    return argument_text(a)


def _extern(e: Extern) -> list[str]:
    args = ", ".join(map(_step_argument, e.attrs))
    inputs = ", ".join(map(_operand, e.inputs))
    outputs = " and ".join(map(_operand, (e.output, *e.others)))
    head = f"extern {name_text(e.name)}: {e.op.name}({args}) of ({inputs}) -> {outputs}"
    lines = _located(e.locations)
    if not e.epilogue:
        return [head, *lines]
    writer = _Writer(e.axes, values_of(e.epilogue, e.binds))
    axes = ", ".join(writer.declared(a) for a in e.axes)
    body = writer.body(e.binds, e.epilogue)
    return [f"{head} with ({axes}) {{", *(f"  {line}" for line in (*lines, *body)), "}"]


def _host(h: HostCall) -> list[str]:
    args = ", ".join(map(_step_argument, h.args))
    outputs = ", ".join(b.name for b in h.outputs)
    return [f"host {name_text(h.name)}: {h.op.name}({args}) -> ({outputs})", *_located(h.locations)]


_STEPS: dict[type, Callable[[Any], list[str]]] = {
    Kernel: _kernel, Group: _group, Extern: _extern, HostCall: _host}


def values_of(stores: Iterable[Store], binds: Iterable[Bind] = ()) -> Iterator[Expr]:
    """The expressions of binds and stores, masks included."""
    for bind in binds:
        yield bind.value
        if bind.mask is not None:
            yield bind.mask
    for s in stores:
        yield s.value
        if s.mask is not None:
            yield s.mask


def walk(roots: Iterable[Expr]) -> Iterator[Expr]:
    """Every distinct expression once, children before parents."""
    seen: set[Expr] = set()
    stack: list[Expr | None] = list(roots)
    stack.reverse()
    waiting: list[Expr] = []
    while stack:
        e = stack.pop()
        if e is None:                   # the children of the last that waits are done
            yield waiting.pop()
        elif e not in seen:
            seen.add(e)
            if e.children:
                waiting.append(e)
                stack.append(None)
                stack += e.children[::-1]
            else:
                yield e


class _Writer:
    """The lines of one kernel: names for axes (made unique) and for shared expressions."""

    def __init__(self, axes: Iterable[Axis], roots: Iterable[Expr],
                 inner: Iterable[Iterable[Axis]] = ()) -> None:
        self.lines: list[str] = []
        self.names: dict[Any, str] = {}
        self.taken: set[str] = set()
        self.lets: dict[Expr, str] = {}
        self.inner: list[Axis] = []
        roots = list(roots)
        for a in axes:
            self._name(a)
        for several in inner:
            self.inner += [a for a in several if self._name(a)]
        self.uses = Counter(roots)
        for e in walk(roots):
            self.uses.update(e.children)
            if e.kind in ("Reduce", "Scan"):
                own = e.fields[1] if e.kind == "Reduce" else (e.fields[1],)
                self.inner += [a for a in own if self._name(a)]
        self.renamed = {v: n for v, n in self.names.items() if v.name != n}

    def _name(self, a: Axis) -> bool:
        """Names the variable; False where it has a name."""
        if a.var in self.names:
            return False
        name, n = a.var.name, 1
        while name in self.taken:
            name, n = f"{a.var.name}_{n}", n + 1
        self.taken.add(name)
        self.names[a.var] = name
        return True

    def declared(self, a: Axis) -> str:
        return f"{self.names[a.var]}: {self.index(a.extent)}"

    def index(self, e: Any) -> str:
        if not self.renamed:
            return sym.to_text(e)
        return spell.render(e, spell.TEXT, self.renamed)

    def indices(self, idx: Iterable[Any]) -> str:
        return f"[{','.join(map(self.index, idx))}]"

    def body(self, binds: Iterable[Bind], stores: Iterable[Store]) -> list[str]:
        lines: list[str] = []
        for b in binds:
            text = f"bind {b.var.name} below {{{self.index(b.bound)}}}"
            text += f"{' wrap' if b.wrap else ''} = {self.value(b.value, lines)}"
            lines.append(text + self._condition(b.mask, lines))
        for s in stores:
            loops = ", ".join(self._used(a) for a in s.axes)
            mode = "" if s.mode == "set" else f"{s.mode} "
            value = self.value(s.value, lines)
            loops = f" for ({loops})" if loops else ""
            lines.append(f"{s.buffer.name}{self.indices(s.idx)}{loops} {mode}= {value}"
                         f"{self._condition(s.mask, lines)}")
        return lines

    def _used(self, a: Axis) -> str:
        return self.names[a.var] + ("" if a.role == "parallel" else f" {a.role}")

    def _condition(self, mask: Expr | None, lines: list[str]) -> str:
        return "" if mask is None else f" if {self.value(mask, lines)}"

    def value(self, e: Expr, lines: list[str] | None = None) -> str:
        """The text of a value; shared parts become `let` lines first."""
        lines = self.lines if lines is None else lines
        for part in walk((e,)):
            plain = part.kind in ("Const", "Index") or (part.kind == "Load" and not part.fields[2])
            if part not in self.lets and not plain and self.uses[part] > 1:
                text = self._spell(part)
                self.lets[part] = f"%{len(self.lets)}"
                lines.append(f"let {self.lets[part]} = {text}")
        text = self._spell(e)
        if lines is self.lines:
            lines.append(text)
        return text

    def _spell(self, e: Expr) -> str:
        if e in self.lets:
            return self.lets[e]
        return _EXPRS[e.kind](self, e, e.fields)

    def spell_all(self, values: Iterable[Any]) -> str:
        return ", ".join(self._spell(v) if isinstance(v, Expr) else argument_text(v)
                         for v in values)


def _load(w: _Writer, e: Expr, f: Any) -> str:
    buffer, idx, mask, other = f
    text = f"{buffer.name}{w.indices(idx)}"
    return text if mask is None else f"load({text}, {w.spell_all((mask, other))})"


def _reduce(w: _Writer, e: Expr, f: Any) -> str:
    monoid, axes, args, part = f
    names = ",".join(w.names[a.var] for a in axes)
    tail = f".{part}" if part else ""
    return f"{monoid}.{e.dtype.short}{tail}[{names}]({w.spell_all(args)})"


def _scan(w: _Writer, e: Expr, f: Any) -> str:
    monoid, axis, args, part = f
    tail = f".{part}" if part else ""
    return f"scan.{monoid}.{e.dtype.short}{tail}[{w.names[axis.var]}]({w.spell_all(args)})"


_EXPRS: dict[str, Callable[[_Writer, Expr, Any], str]] = {
    "Const": lambda w, e, f: f"{e.dtype.short}({argument_text(f[0])})",
    "Index": lambda w, e, f: f"index({{{w.index(f[0])}}})",
    "Load": _load,
    "Alu": lambda w, e, f: f"{f[0].name}.{e.dtype.short}({w.spell_all(f[1:])})",
    "Cast": lambda w, e, f: f"cast.{e.dtype.short}({w.spell_all(f)})",
    "Select": lambda w, e, f: f"select.{e.dtype.short}({w.spell_all(f)})",
    "Reduce": _reduce,
    "Scan": _scan,
    "Random": lambda w, e, f: f"random({w.spell_all(f[:2])}, {{{w.index(f[2])}}})",
}

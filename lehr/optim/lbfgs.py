"""Limited-memory BFGS (Liu & Nocedal, 1989) with a strong-Wolfe line search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr.optim.optimizer import Optimizer, ParamsT
from lehr.optim.rate import check
from lehr.tensor.mode import enable_grad, no_grad
from lehr.tensor.tensor import Tensor


def _cubic(x1: Any, f1: Any, g1: Any, x2: Any, f2: Any, g2: Any,
           bounds: tuple[Any, Any] | None = None) -> Any:
    """Where the cubic through two values and slopes has its minimum, within the bounds (Nocedal &
    Wright, eq. 3.59)."""
    low, high = bounds if bounds is not None else ((x1, x2) if x1 <= x2 else (x2, x1))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 ** 2 - g1 * g2
    if not square >= 0:
        return (low + high) / 2.0
    d2 = square ** 0.5
    if x1 <= x2:
        at = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    else:
        at = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return min(max(at, low), high)


class Point:
    """A step `t` along the direction: the loss `f`, the gradient `g` and the slope `s` there."""

    __slots__ = ("f", "g", "s", "t")

    def __init__(self, t: Any, f: Any, g: Any, s: Any) -> None:
        self.t, self.f, self.g, self.s = t, f, g, s


def strong_wolfe(probe: Callable[[Any], Point], start: Point, t: Any, norm: Any, c1: float = 1e-4,
                 c2: float = 0.9, tolerance: float = 1e-9, most: int = 25) -> tuple[Point, int]:
    """A point with sufficient decrease and a small slope (Nocedal & Wright, algorithms 3.5 and
    3.6), and how often `probe` was called. `norm` is the direction's greatest element."""
    f0, s0 = start.f, start.s

    def too_high(p: Point, than: Any) -> bool:
        return bool(p.f > f0 + c1 * p.t * s0 or p.f >= than)

    previous, point, calls, bracket, done = start, probe(t), 1, None, False
    for i in range(most):
        if too_high(point, previous.f if i else float("inf")):
            bracket = [previous, point]
        elif abs(point.s) <= -c2 * s0:
            bracket, done = [point], True
        elif point.s >= 0:
            bracket = [previous, point]
        if bracket is not None:
            break
        bounds = (point.t + 0.01 * (point.t - previous.t), point.t * 10)
        t = _cubic(previous.t, previous.f, previous.s, point.t, point.f, point.s, bounds)
        previous, point, calls = point, probe(t), calls + 1
    if bracket is None:
        bracket = [start, point]
    return _zoom(probe, bracket, calls, done, too_high, (s0, norm, c2, tolerance, most))


def _zoom(probe: Callable[[Any], Point], bracket: list[Point], calls: int, done: bool,
          too_high: Any, limits: tuple[Any, ...]) -> tuple[Point, int]:
    """Narrows the bracket until a point fits."""
    s0, norm, c2, tolerance, most = limits
    stuck = False
    low, high = (0, 1) if bracket[0].f <= bracket[-1].f else (1, 0)
    while not done and calls < most:
        a, b = bracket[0], bracket[1]
        if abs(b.t - a.t) * norm < tolerance:
            break
        t = _cubic(a.t, a.f, a.s, b.t, b.f, b.s)
        # A point near an end makes little progress: go inside by a tenth, the second time around.
        left, right = min(a.t, b.t), max(a.t, b.t)
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:
            if stuck or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        point, calls = probe(t), calls + 1
        if too_high(point, bracket[low].f):
            bracket[high] = point
            low, high = (0, 1) if bracket[0].f <= bracket[1].f else (1, 0)
            continue
        if abs(point.s) <= -c2 * s0:
            done = True
        elif point.s * (bracket[high].t - bracket[low].t) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = point
    return (bracket[low] if len(bracket) > 1 else bracket[0]), calls


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last `history_size` gradients; `step` needs a closure.

    All parameters form one group. line_search_fn is None (a fixed step) or "strong_wolfe".
    """

    def __init__(self, params: ParamsT, lr: Any = 1, max_iter: int = 20,
                 max_eval: int | None = None, tolerance_grad: float = 1e-7,
                 tolerance_change: float = 1e-9, history_size: int = 100,
                 line_search_fn: str | None = None) -> None:
        check(lr=lr)
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn})
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def _flat(self, values: list[Any]) -> Tensor:
        parts = []
        for p, v in zip(self._params, values, strict=True):
            v = Tensor.F.zeros_like(p) if v is None else v
            parts.append(Tensor.F.reshape(Tensor.F.view_as_real(v) if v.dtype.is_complex else v,
                                          (-1,)))
        return Tensor.F.cat(parts, 0)  # type: ignore[no-any-return]

    def _gradient(self) -> Tensor:
        return self._flat([p.grad for p in self._params])

    def _move(self, t: Any, direction: Tensor, origin: list[Tensor] | None = None) -> None:
        """p += t * direction, from `origin` where given."""
        at = 0
        for i, p in enumerate(self._params):
            real = Tensor.F.view_as_real(p) if p.dtype.is_complex else p
            n = real.numel()
            if origin is not None:
                p.copy_(origin[i])
            real.add_(direction[at:at + n].view(real.shape) * t)  # type: ignore[index]
            at += n

    def step(self, closure: Any) -> Any:  # type: ignore[override]
        """Up to max_iter iterations; `closure` computes the loss and gradients, and returns the
        loss."""
        closure = enable_grad()(closure)
        with no_grad():
            return self._run(closure)

    def _run(self, closure: Any) -> Any:
        group = self.param_groups[0]
        lr = group["lr"]
        lr = lr.item() if isinstance(lr, Tensor) else lr
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = closure()
        loss, calls = float(first), 1
        state["func_evals"] += 1
        grad = self._gradient()
        if bool(grad.abs().max() <= group["tolerance_grad"]):
            return first
        done = 0
        while done < group["max_iter"]:
            done += 1
            state["n_iter"] += 1
            direction = self._direction(state, grad, group["history_size"])
            if state["n_iter"] == 1:
                t: Any = min(1.0, 1.0 / grad.abs().sum()) * lr
            else:
                t = lr
            state.update(d=direction, t=t)
            previous, before = grad.clone(), loss
            state["prev_flat_grad"], state["prev_loss"] = previous, before
            slope = grad.dot(direction)
            if bool(slope > -group["tolerance_change"]):
                break
            loss, grad, t, used = self._advance(closure, group, direction, t, loss, grad, slope,
                                                done == group["max_iter"])
            state["t"] = t
            calls += used
            state["func_evals"] += used
            if (done == group["max_iter"] or calls >= group["max_eval"]
                    or bool(grad.abs().max() <= group["tolerance_grad"])
                    or bool((direction * t).abs().max() <= group["tolerance_change"])
                    or abs(loss - before) < group["tolerance_change"]):
                break
        return first

    def _advance(self, closure: Any, group: dict[str, Any], direction: Tensor, t: Any, loss: Any,
                 grad: Tensor, slope: Any, last: bool) -> tuple[Any, Tensor, Any, int]:
        """(loss, gradient, step, calls of the closure) after one step along the direction."""
        search = group["line_search_fn"]
        if search is None:
            self._move(t, direction)
            if last:
                return loss, grad, t, 0
            with enable_grad():
                loss = float(closure())
            return loss, self._gradient(), t, 1
        if search != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        origin = [p.clone() for p in self._params]

        def probe(at: Any) -> Point:
            self._move(at, direction, origin)
            value = float(closure())
            here = self._gradient().clone()
            return Point(at, value, here, here.dot(direction))
        start = Point(0, loss, grad, slope)
        best, calls = strong_wolfe(probe, start, t, direction.abs().max())
        self._move(best.t, direction, origin)
        return best.f, best.g, best.t, calls

    def _direction(self, state: dict[str, Any], grad: Tensor, size: int) -> Tensor:
        """The quasi-Newton direction by the two-loop recursion; updates the history."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return grad.neg()  # type: ignore[no-any-return]
        dirs, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
        y = grad.sub(state["prev_flat_grad"])
        s = state["d"].mul(state["t"])
        ys = y.dot(s)
        if bool(ys > 1e-10):
            if len(dirs) == size:
                for history in (dirs, steps, ro):
                    history.pop(0)
            dirs.append(y)
            steps.append(s)
            ro.append(1.0 / ys)
            state["H_diag"] = ys / y.dot(y)
        q = grad.neg()
        al = state["al"] = state.get("al") or [None] * size
        for i in reversed(range(len(dirs))):
            al[i] = steps[i].dot(q) * ro[i]
            q = q - dirs[i] * al[i]
        r = q * state["H_diag"]
        for i in range(len(dirs)):
            r = r + steps[i] * (al[i] - dirs[i].dot(r) * ro[i])
        return r  # type: ignore[no-any-return]

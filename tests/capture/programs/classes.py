"""Classes, descriptors, operators, inheritance."""


def p_basic(log):
    class A:
        shared = 5
        def __init__(self, x):
            self.x = x
        def get(self):
            return self.x + self.shared
    a, b = A(1), A(2)
    a.shared = 10
    A.shared = 7
    a.y = "new"
    return a.get(), b.get(), a.__dict__, A.shared, a.y, hasattr(b, "y"), A.get(b), vars(b), isinstance(a, A), type(a).__name__


def p_inheritance(log):
    class A:
        def f(self):
            return "A.f"
        def g(self):
            return "A.g" + self.f()
    class B(A):
        def f(self):
            return "B.f+" + super().f()
    class C(B):
        def f(self):
            return "C.f+" + super(C, self).f()
    return C().g(), B().f(), [k.__name__ for k in C.__mro__], issubclass(C, A), C.__bases__ == (B,)


def p_diamond(log):
    class A:
        def __init__(self, **kw):
            log.append("A")
        def who(self):
            return ["A"]
    class B(A):
        def __init__(self, **kw):
            log.append("B")
            super().__init__(**kw)
        def who(self):
            return ["B", *super().who()]
    class C(A):
        def __init__(self, **kw):
            log.append("C")
            super().__init__(**kw)
        def who(self):
            return ["C", *super().who()]
    class D(B, C):
        def who(self):
            return ["D", *super().who()]
    return D(x=1).who(), [k.__name__ for k in D.__mro__]


def p_super_forms(log):
    class A:
        @classmethod
        def make(cls):
            return cls.__name__
        @property
        def p(self):
            return 1
        x = "class attr"
    class B(A):
        @classmethod
        def make(cls):
            return "B" + super().make()
        @property
        def p(self):
            return super().p + 1
        def read(self):
            return super().x
        def missing(self):
            return super().nothing
        def in_comprehension(self):
            return [super(B, self).p for _ in range(2)]
        def nested(self):
            def inner():
                return super(B, self).p
            return inner()
    b = B()
    out = [B.make(), b.make(), b.p, b.read(), b.in_comprehension(), b.nested()]
    try:
        b.missing()
    except AttributeError as e:
        out.append(str(e))
    return out


def p_property(log):
    class A:
        def __init__(self):
            self._x = 1
        @property
        def x(self):
            "the x"
            log.append("get")
            return self._x
        @x.setter
        def x(self, v):
            log.append(("set", v))
            self._x = v
        @x.deleter
        def x(self):
            log.append("del")
            del self._x
        ro = property(lambda self: 9)
    a = A()
    a.x = 5
    a.x += 1
    out = [a.x, a.ro, A.x.__doc__]
    del a.x
    for f in (lambda: a.x, lambda: setattr(a, "ro", 1), lambda: delattr(a, "ro")):
        try:
            f()
        except AttributeError as e:
            out.append(str(e))
    return out


def p_static_and_class_methods(log):
    class A:
        n = 1
        @staticmethod
        def s(x):
            return x * 2
        @classmethod
        def c(cls, x):
            return cls.n + x
    class B(A):
        n = 10
    return A.s(2), A().s(3), B.c(1), B().c(2), A.c(0), A.__dict__["s"].__func__(4)


def p_data_descriptor(log):
    class Typed:
        def __init__(self, kind):
            self.kind = kind
        def __set_name__(self, owner, name):
            log.append((owner.__name__, name))
            self.name = "_" + name
        def __get__(self, obj, owner=None):
            if obj is None:
                return self
            return getattr(obj, self.name, None)
        def __set__(self, obj, value):
            if not isinstance(value, self.kind):
                raise TypeError(f"want {self.kind.__name__}")
            setattr(obj, self.name, value)
        def __delete__(self, obj):
            delattr(obj, self.name)
    class P:
        x = Typed(int)
        y = Typed(str)
    p = P()
    p.x = 3
    p.y = "s"
    out = [p.x, p.y, p.__dict__, type(P.x).__name__]
    try:
        p.x = "no"
    except TypeError as e:
        out.append(str(e))
    del p.x
    return out, p.x


def p_non_data_descriptor(log):
    class Lazy:
        def __init__(self, f):
            self.f = f
        def __get__(self, obj, owner):
            log.append("compute")
            value = self.f(obj)
            obj.__dict__[self.f.__name__] = value
            return value
    class A:
        @Lazy
        def big(self):
            return 42
    a = A()
    return a.big, a.big


def p_slots(log):
    class A:
        __slots__ = ("x", "y")
        def __init__(self):
            self.x = 1
    class B(A):
        __slots__ = ("z",)
    a, b = A(), B()
    b.z = 5
    b.y = 6
    out = [a.x, b.x, b.y, b.z, hasattr(a, "y"), hasattr(a, "__dict__")]
    for f in (lambda: a.y, lambda: setattr(a, "q", 1)):
        try:
            f()
        except AttributeError as e:
            out.append(type(e).__name__)
    del b.z
    out.append(hasattr(b, "z"))
    return out


def p_getattr_hooks(log):
    class A:
        x = 1
        def __getattr__(self, name):
            log.append(name)
            if name.startswith("dyn"):
                return name.upper()
            raise AttributeError(f"no {name}")
    a = A()
    out = [a.x, a.dyn_a, getattr(a, "other", "default"), hasattr(a, "dyn"), hasattr(a, "zzz")]
    try:
        a.bad
    except AttributeError as e:
        out.append(str(e))
    return out


def p_getattribute(log):
    class A:
        def __init__(self):
            self.x = 1
        def __getattribute__(self, name):
            log.append(name)
            return object.__getattribute__(self, name)
        def m(self):
            return self.x
    return A().m()


def p_setattr_hooks(log):
    class A:
        def __setattr__(self, name, value):
            log.append((name, value))
            super().__setattr__(name, value * 2)
        def __delattr__(self, name):
            log.append(name)
            object.__delattr__(self, name)
    a = A()
    a.x = 5
    y = a.x
    del a.x
    return y, hasattr(a, "x")


def p_module_like(log):
    class Module:
        def __init__(self):
            object.__setattr__(self, "_params", {})
            object.__setattr__(self, "_children", {})
        def __setattr__(self, name, value):
            if isinstance(value, Module):
                self._children[name] = value
            elif isinstance(value, float):
                self._params[name] = value
            else:
                object.__setattr__(self, name, value)
        def __getattr__(self, name):
            for d in ("_params", "_children"):
                if name in self.__dict__[d]:
                    return self.__dict__[d][name]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        def __call__(self, *args, **kw):
            return self.forward(*args, **kw)
        def parameters(self):
            yield from self._params.values()
            for c in self._children.values():
                yield from c.parameters()
    class Linear(Module):
        def __init__(self, w, b):
            super().__init__()
            self.w, self.b, self.n = w, b, 3
        def forward(self, x):
            return x * self.w + self.b
    class Net(Module):
        def __init__(self):
            super().__init__()
            self.a, self.c = Linear(2.0, 1.0), Linear(3.0, 0.5)
        def forward(self, x, twice=False):
            x = self.c(self.a(x))
            return self.a(x) if twice else x
    net = Net()
    out = [net(1.0), net(1.0, twice=True), list(net.parameters()), net.a.n]
    net.a.w = 5.0
    out.append(net(1.0))
    try:
        net.missing
    except AttributeError as e:
        out.append(str(e))
    return out


def p_operators(log):
    class V:
        def __init__(self, x):
            self.x = x
        def __add__(self, o):
            return V(self.x + (o.x if isinstance(o, V) else o))
        __radd__ = __add__
        def __sub__(self, o):
            return V(self.x - o.x)
        def __mul__(self, o):
            if not isinstance(o, int):
                return NotImplemented
            return V(self.x * o)
        def __rmul__(self, o):
            return V(self.x * o * 100)
        def __neg__(self):
            return V(-self.x)
        def __invert__(self):
            return "inv"
        def __pos__(self):
            return "pos"
        def __abs__(self):
            return abs(self.x)
        def __iadd__(self, o):
            self.x += 1000
            return self
        def __matmul__(self, o):
            return "matmul"
        def __pow__(self, o):
            return "pow"
        def __rtruediv__(self, o):
            return "rdiv"
        def __divmod__(self, o):
            return "dm"
        def __lshift__(self, o):
            return "shl"
        def __and__(self, o):
            return "and"
        def __bool__(self):
            return self.x != 0
        def __int__(self):
            return int(self.x)
        def __float__(self):
            return float(self.x)
        def __index__(self):
            return self.x
        def __round__(self, n=None):
            return ("round", n)
        def __repr__(self):
            return f"V({self.x})"
    a, b = V(3), V(4)
    out = [a + b, a + 1, 1 + a, a - b, a * 2, 2 * a, -a, ~a, +a, abs(V(-2)), a @ b, a ** 2, 1 / a, divmod(a, 1),
           a << 1, a & 1, bool(V(0)), not a, int(a), float(a), [0, 1, 2, 3][a], round(a), round(a, 2), sum([a, b]),
           range(a), "ab" * a, hex(a)]
    a += 1
    out.append(a)
    for f in (lambda: a * "x", lambda: a - 1, lambda: a // 2, lambda: a % b, lambda: a | b):
        try:
            out.append(f())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return [repr(x) for x in out]


def p_reflected_priority(log):
    class A:
        def __add__(self, o):
            return "A.add"
        def __radd__(self, o):
            return "A.radd"
        def __eq__(self, o):
            log.append("A.eq")
            return NotImplemented
        def __lt__(self, o):
            return "A.lt"
        __hash__ = None
    class B(A):
        def __radd__(self, o):
            return "B.radd"
        def __gt__(self, o):
            return "B.gt"
    class C(A):
        pass
    return A() + B(), B() + A(), A() + C(), 5 + A(), [] + A(), "s" + B(), A() < B(), A() < C(), A() == B(), A() != A()


def p_comparisons(log):
    class N:
        def __init__(self, v):
            self.v = v
        def __eq__(self, o):
            return isinstance(o, N) and self.v == o.v
        def __lt__(self, o):
            return self.v < o.v
        def __le__(self, o):
            return self.v <= o.v
        def __hash__(self):
            return hash(self.v)
        def __repr__(self):
            return f"N{self.v}"
    a, b, c = N(1), N(2), N(1)
    d = {a: "one"}
    d[c] = "again"
    out = [a == c, a != c, a < b, a > b, a >= b, a <= c, a == 5, a != 5, sorted([b, a]), max(a, b), d, N(1) in d, c in [b, a],
           [b, a].index(c), {a, c, b} == {a, b}, a in {c}, [a, b] == [c, b], (a, 1) < (b, 0), [b, a, c].count(a)]
    try:
        a < 5
    except AttributeError as e:
        out.append(str(e))
    try:
        object() < a
    except (TypeError, AttributeError) as e:
        out.append(type(e).__name__)
    return out


def p_container_protocol(log):
    class Box:
        def __init__(self):
            self.d = {}
        def __getitem__(self, k):
            log.append(("get", k))
            return self.d[k]
        def __setitem__(self, k, v):
            log.append(("set", k, v))
            self.d[k] = v
        def __delitem__(self, k):
            del self.d[k]
        def __len__(self):
            return len(self.d)
        def __contains__(self, k):
            return k in self.d
        def __iter__(self):
            return iter(sorted(self.d))
    b = Box()
    b["x"] = 1
    b[1:2] = "s"
    b["x"] += 5
    out = [b["x"], len(b), "x" in b, "q" in b, bool(Box())]
    del b["x"]
    b[1, 2] = "tuple"
    out.append((1, 2) in b)
    try:
        b["gone"]
    except KeyError as e:
        out.append(e.args)
    return out, len(b)


def p_callable_object(log):
    class Adder:
        def __init__(self, n):
            self.n = n
        def __call__(self, x, *, times=1):
            return (x + self.n) * times
    a = Adder(5)
    return a(1), a(1, times=3), list(map(a, [1, 2])), callable(a), callable(5)


def p_str_and_repr(log):
    class A:
        def __repr__(self):
            return "A()"
    class B(A):
        def __str__(self):
            return "b"
        def __format__(self, spec):
            return f"<{spec}>"
    class C:
        def __bytes__(self):
            return b"c"
        def __str__(self):
            return 5
    out = [str(A()), repr(B()), str(B()), f"{B()!r} {B():>3} {A()} {A()!s:>6}", str([A(), B()]), "%s %r" % (B(), B()),
           bytes(C()), repr({1: A()}), repr((A(),)), format(A()), "{}".format(B())]
    for f in (lambda: str(C()), lambda: f"{A():x}"):
        try:
            f()
        except TypeError as e:
            out.append(str(e))
    return out


def p_new_and_init(log):
    class Single:
        inst = None
        def __new__(cls, *a):
            log.append("new")
            if cls.inst is None:
                cls.inst = super().__new__(cls)
            return cls.inst
        def __init__(self, x):
            log.append("init")
            self.x = x
    class Other:
        def __new__(cls):
            return 5
        def __init__(self):
            log.append("never")
    a, b = Single(1), Single(2)
    out = [a is b, a.x, Other()]
    class Bad:
        def __init__(self):
            return 1
    class NoArgs:
        pass
    for f in (lambda: Bad(), lambda: NoArgs(1), lambda: object(1), lambda: Single()):
        try:
            f()
        except TypeError as e:
            out.append(str(e))
    return out


def p_class_body(log):
    n = 3
    class A:
        log.append("body")
        x = 1
        y = x + n
        zs = [i for i in range(n)]
        if y > 2:
            def f(self):
                return "big"
        else:
            def f(self):
                return "small"
        for i in range(2):
            pass
        del x
        class Inner:
            v = 9
    return A.y, A.zs, A().f(), A.i, hasattr(A, "x"), A.Inner.v, A.__name__, A.__qualname__, A.Inner.__qualname__, A.__module__


def p_class_closure(log):
    def make(n):
        class A:
            def get(self):
                return n
            @staticmethod
            def cls():
                return __class__
        return A
    A, B = make(1), make(2)
    return A().get(), B().get(), A is B, A.cls() is A


def p_subclass_list(log):
    class L(list):
        def append(self, x):
            log.append(x)
            super().append(x * 2)
        @property
        def last(self):
            return self[-1]
        def __getitem__(self, i):
            return ("item", super().__getitem__(i))
    a = L([1, 2])
    a.append(5)
    a.tag = "t"
    a.extend([7])
    return list(a), a.last, len(a), a[0], a.tag, isinstance(a, list), a == [1, 2, 10, 7], a + [1], type(a + [1]).__name__, sorted(a), repr(a)


def p_subclass_dict(log):
    class D(dict):
        def __getitem__(self, k):
            return ("d", super().__getitem__(k))
        def __setitem__(self, k, v):
            log.append(k)
            super().__setitem__(k, v)
        def __missing__(self, k):
            return "missing " + k
    d = D(a=1)
    d["b"] = 2
    d.update(c=3)
    d.extra = 1
    return d["a"], d["zz"], d.get("a"), list(d.items()), d == {"a": 1, "b": 2, "c": 3}, {**d}, d.extra, dict(d), len(d), "a" in d


def p_subclass_int_str(log):
    class I(int):
        def __add__(self, o):
            return I(int(self) + int(o) + 1)
        def double(self):
            return self * 2
    class S(str):
        def shout(self):
            return self.upper() + "!"
        def __eq__(self, o):
            return True
        __hash__ = str.__hash__
    i, s = I(5), S("abc")
    i.tag = 1
    return i + 1, i.double(), i == 5, i < 6, [0] * I(2), s.shout(), s == "zzz", s[0], len(s), s + "d", f"{i:03d} {s:>5}", isinstance(i, int), i.tag, str(i), hash(i) == hash(5), {5: "x"}[i]


def p_subclass_tuple(log):
    class P(tuple):
        def __new__(cls, a, b):
            return super().__new__(cls, (a, b))
        @property
        def first(self):
            return self[0]
    p = P(1, 2)
    a, b = p
    return p.first, a, b, p == (1, 2), p + (3,), {p: 1}[(1, 2)], len(p), isinstance(p, tuple)


def p_subclass_exception_and_set(log):
    class S(set):
        def add(self, x):
            super().add(x * 10)
    s = S([1])
    s.add(2)
    return sorted(s), 20 in s, sorted(s | {5}), type(s | {5}).__name__ in ("S", "set")


def p_init_subclass(log):
    class Base:
        registry = []
        def __init_subclass__(cls, /, tag="none", **kw):
            super().__init_subclass__(**kw)
            log.append((cls.__name__, tag))
            cls.registry.append(cls)
    class A(Base, tag="a"):
        pass
    class B(A):
        pass
    return [k.__name__ for k in Base.registry]


def p_metaclass(log):
    class Meta(type):
        def __new__(mcs, name, bases, ns, **kw):
            log.append(("new", name))
            ns["added"] = 1
            return super().__new__(mcs, name, bases, ns)
        def __init__(cls, name, bases, ns, **kw):
            log.append(("init", name))
            super().__init__(name, bases, ns)
        def __call__(cls, *a):
            log.append("call")
            return super().__call__(*a)
        def meta_method(cls):
            return cls.__name__
        def __len__(cls):
            return 42
    class A(metaclass=Meta):
        def __init__(self, x):
            self.x = x
    return A(3).x, A.added, A.meta_method(), len(A), type(A).__name__


def p_abstract(log):
    from abc import ABC, abstractmethod
    class Shape(ABC):
        @abstractmethod
        def area(self):
            ...
        def twice(self):
            return 2 * self.area()
    class Square(Shape):
        def __init__(self, s):
            self.s = s
        def area(self):
            return self.s ** 2
    out = [Square(3).twice(), isinstance(Square(1), Shape)]
    try:
        Shape()
    except TypeError as e:
        out.append(str(e))
    return out


def p_type_call(log):
    A = type("A", (), {"x": 5, "f": lambda self: self.x})
    B = type("B", (A,), {"y": 6})
    return A().f(), B().y, B().f(), A.__name__, type(B()) is B


def p_class_attribute_mutation(log):
    class Counter:
        n = 0
        items = []
        def inc(self):
            Counter.n += 1
            self.items.append(self.n)
    a, b = Counter(), Counter()
    a.inc()
    b.inc()
    a.n = 50
    b.inc()
    del a.n
    return a.n, b.n, Counter.items, a.items is b.items


def p_instance_dict(log):
    class A:
        def __init__(self):
            self.a = 1
    x = A()
    x.__dict__["b"] = 2
    x.__dict__.update(c=3)
    y = dict(x.__dict__)
    del x.__dict__["a"]
    return x.b, y, sorted(vars(x)), hasattr(x, "a"), "b" in x.__dict__


def p_dynamic_attributes(log):
    class A:
        pass
    a = A()
    for i, n in enumerate("xyz"):
        setattr(a, n, i)
    return [getattr(a, n) for n in "xyz"], getattr(a, "w", None), [k for k in sorted(a.__dict__)], A.__dict__.get("x")


def p_bound_methods(log):
    class A:
        def __init__(self, n):
            self.n = n
        def f(self, x=0):
            return self.n + x
    a = A(5)
    f = a.f
    g = A.f
    return f(), f(1), g(a, 2), f.__self__ is a, f.__func__ is A.f, a.f == a.f, a.f is a.f, f.__name__, [m() for m in (A(1).f, A(2).f)]


def p_method_on_instance(log):
    class A:
        def f(self):
            return "class"
    a = A()
    a.f = lambda: "instance"
    import types
    b = A()
    b.f = types.MethodType(lambda self: ("bound", type(self).__name__), b)
    return a.f(), b.f(), A().f()


def p_special_method_on_instance_is_ignored(log):
    class A:
        def __len__(self):
            return 3
    a = A()
    a.__len__ = lambda: 99
    a.__call__ = lambda: 1
    try:
        a()
    except TypeError as e:
        return len(a), str(e)


def p_isinstance_forms(log):
    class A:
        pass
    class B(A):
        pass
    b = B()
    out = [isinstance(b, (int, A)), isinstance(b, A | int), isinstance(3, int | str), isinstance(True, int), issubclass(B, (str, A)),
           isinstance(None, type(None)), isinstance(A, type), isinstance(b, object), type(b) == B, b.__class__ is B]
    import collections.abc as c
    out += [isinstance([], c.Sequence), isinstance({}, c.Mapping), isinstance(b, c.Callable), isinstance((x for x in ()), c.Iterator)]
    return out


def p_name_mangling(log):
    class A:
        def __init__(self):
            self.__x = 1
        def get(self):
            return self.__x
    class B(A):
        def __init__(self):
            super().__init__()
            self.__x = 2
    b = B()
    return b.get(), sorted(vars(b))


def p_dataclass_made_outside(log):
    p = Point(1, 2)
    q = Point(1, 2)
    r = Point(3, y=4)
    out = [p == q, p == r, repr(p), p.norm(), r.x, Point(0).y, sorted([Pair(2, 1), Pair(1, 5)])]
    p.x = 9
    try:
        Frozen(1).a = 2
    except Exception as e:
        out.append((type(e).__name__, str(e)))
    import dataclasses
    out += [dataclasses.replace(r, x=0), dataclasses.asdict(p), [f.name for f in dataclasses.fields(Point)], {Frozen(1): 2}[Frozen(1)],
            p.tags, Point(1) .tags is Point(1).tags, dataclasses.is_dataclass(p), dataclasses.astuple(q)]
    return out


def p_enum_made_outside(log):
    import enum
    c = Color.RED
    out = [c.name, c.value, Color(2), Color["BLUE"], c is Color.RED, c == Color.BLUE, [m.name for m in Color], len(Color), repr(c), str(c),
           isinstance(c, Color), {Color.RED: 1}[c], c in (Color.RED,), Level.HIGH > Level.LOW, Level.HIGH + 1, Level(2).name, c.describe(),
           Perm.R | Perm.W, Perm.R in (Perm.R | Perm.W), isinstance(Color.RED, enum.Enum), Color.__members__["RED"], hash(c) == hash(Color.RED)]
    try:
        Color(99)
    except ValueError as e:
        out.append(str(e))
    match c:
        case Color.BLUE:
            out.append("blue")
        case Color.RED:
            out.append("red")
    return [repr(o) for o in out]


def p_namedtuple_made_outside(log):
    p = Pos(1, y=2)
    x, y = p
    return (p.x, p.y, p[0], x + y, p._replace(x=5), p._asdict(), p == (1, 2), repr(p), p._fields, Pos._make([3, 4]), len(p), p + (3,),
            {p: 1}[(1, 2)], Typed(1, "a"), Typed(2).b, Typed(1).total(), isinstance(p, tuple), [*p], max(Pos(1, 5), Pos(2, 0)))


def p_namedtuple_errors(log):
    out = []
    for f in (lambda: Pos(1), lambda: Pos(1, 2, 3), lambda: Pos(1, 2)._replace(q=1), lambda: setattr(Pos(1, 2), "x", 5), lambda: Pos(1, 2).z):
        try:
            f()
        except (TypeError, ValueError, AttributeError) as e:
            out.append((type(e).__name__, str(e)))
    return out


def p_made_inside(log):
    import collections
    import dataclasses
    import enum
    import typing
    P = collections.namedtuple("P", "a b", defaults=[5])
    class E(enum.Enum):
        X = 1
        Y = enum.auto()
        def f(self):
            return self.value * 10
    @dataclasses.dataclass
    class D:
        a: int
        b: list = dataclasses.field(default_factory=list)
        def total(self):
            return self.a + len(self.b)
    d = D(3)
    d.b.append(1)
    return P(1), P(1, 2)._replace(a=0), E.Y.value, E.X.f(), E(1).name, d.total(), d == D(3, [1]), repr(d)


def p_total_ordering(log):
    import functools
    @functools.total_ordering
    class A:
        def __init__(self, v):
            self.v = v
        def __eq__(self, o):
            return self.v == o.v
        def __lt__(self, o):
            return self.v < o.v
    return A(1) <= A(2), A(3) > A(2), A(1) >= A(1)


def p_cached_property(log):
    import functools
    class A:
        @functools.cached_property
        def big(self):
            log.append("compute")
            return [1]
    a = A()
    return a.big, a.big is a.big, a.__dict__


def p_generic_class(log):
    out = [Stack[int]().push(1).items, Stack().push(2).push(3).items, Stack.__name__]
    return out


def p_class_getitem(log):
    class A:
        def __class_getitem__(cls, k):
            return (cls.__name__, k)
    return A[5], A[1, 2], list[int] == list[int], dict[str, int].__origin__ is dict


def p_copy(log):
    import copy
    class A:
        def __init__(self):
            self.x, self.y = [1], {"k": (1, [2])}
    a = A()
    b, c = copy.copy(a), copy.deepcopy(a)
    a.x.append(2)
    a.y["k"][1].append(3)
    return b.x, c.x, c.y, b.x is a.x, copy.copy([1, 2]), copy.deepcopy({"a": [1]}), copy.deepcopy((1, 2))


import collections as _c
import dataclasses as _d
import enum as _e
import typing as _t


@_d.dataclass
class Point:
    x: int
    y: int = 0
    tags: list = _d.field(default_factory=list)

    def norm(self):
        return abs(self.x) + abs(self.y)


@_d.dataclass(order=True)
class Pair:
    a: int
    b: int


@_d.dataclass(frozen=True)
class Frozen:
    a: int


class Color(_e.Enum):
    RED = 1
    BLUE = 2

    def describe(self):
        return f"{self.name}={self.value}"


class Level(_e.IntEnum):
    LOW = 1
    HIGH = 2


class Perm(_e.Flag):
    R = 1
    W = 2


Pos = _c.namedtuple("Pos", "x y")


class Typed(_t.NamedTuple):
    a: int
    b: str = "z"

    def total(self):
        return self.a + len(self.b)


T = _t.TypeVar("T")


class Stack(_t.Generic[T]):
    def __init__(self):
        self.items = []

    def push(self, x: T) -> "Stack[T]":
        self.items.append(x)
        return self

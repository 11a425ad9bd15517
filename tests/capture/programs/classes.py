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
    return (
        a.get(),
        b.get(),
        a.__dict__,
        A.shared,
        a.y,
        hasattr(b, "y"),
        A.get(b),
        vars(b),
        isinstance(a, A),
        type(a).__name__,
    )


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

    return (
        A.y,
        A.zs,
        A().f(),
        A.i,
        hasattr(A, "x"),
        A.Inner.v,
        A.__name__,
        A.__qualname__,
        A.Inner.__qualname__,
        A.__module__,
    )


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
        def area(self): ...
        def twice(self):
            return 2 * self.area()

    class Square(Shape):
        def __init__(self, s):
            self.s = s

        def area(self):
            return self.s**2

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
    return (
        [getattr(a, n) for n in "xyz"],
        getattr(a, "w", None),
        [k for k in sorted(a.__dict__)],
        A.__dict__.get("x"),
    )


def p_bound_methods(log):
    class A:
        def __init__(self, n):
            self.n = n

        def f(self, x=0):
            return self.n + x

    a = A(5)
    f = a.f
    g = A.f
    return (
        f(),
        f(1),
        g(a, 2),
        f.__self__ is a,
        f.__func__ is A.f,
        a.f == a.f,
        a.f is a.f,
        f.__name__,
        [m() for m in (A(1).f, A(2).f)],
    )


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
    out = [
        isinstance(b, (int, A)),
        isinstance(b, A | int),
        isinstance(3, int | str),
        isinstance(True, int),
        issubclass(B, (str, A)),
        isinstance(None, type(None)),
        isinstance(A, type),
        isinstance(b, object),
        type(b) == B,
        b.__class__ is B,
    ]
    import collections.abc as c

    out += [
        isinstance([], c.Sequence),
        isinstance({}, c.Mapping),
        isinstance(b, c.Callable),
        isinstance((x for x in ()), c.Iterator),
    ]
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

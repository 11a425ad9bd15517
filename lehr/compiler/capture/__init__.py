"""Capture: Python calls become what they compute, what they change, and what that relied on.

    code object -> py31x (a dialect) -> canonical instructions -> Machine -> Outcome
                                                                          -> facts   (guards)
                                                                          -> effects (writes)

Files, in the order in which to read them:

* `bytecode`, `dialect`, `py311` `py312` `py313`: one canonical instruction set over all versions.
* `source`: where a value came from; `fact`: what a guard says; `breaks`: why capture stops.
* `value`: the base class `Value`, `Lazy` (not used yet), `Const`, `Known` (taken whole).
* `objects` (instances, functions, classes, cells, properties), `sequence`, `mapping`, `sets`,
  `iterators`, `upcoming` (iterators from outside), `generator`, `fault` (exceptions): values with
  parts.
* `frame` (slots, argument binding), `steps` and `control` (one function per instruction).
* `attribute`, `operation`, `calling`, `wrapping`, `klass`: the object protocol, as parts of
  `machine.Machine`.
* `builtins` (models of C functions) and `polyfill` (C functions rewritten in Python).
* `rebuild`: values back to objects, effects replayed.

The machine of these files knows no tensors: with nothing added it is a Python interpreter.

Seams for what is built on it, all on `Machine` unless another class is named:

`guard(source, kind, detail)`   asked once per use of an object that existed before the call; kinds
    and their meaning are `fact.FACTS` (open).  `guards()` gives the list at the end, with those
    that keep written objects distinct and without those that others imply.
`effect(kind, target, *args)`   one write to such an object; kinds are the rows of `rebuild.REPLAY`
    (open).  Effects are in program order; `args` are values.
`number(real, source)`          an int or float from outside; return a symbolic number instead.
`native(function, args, kwargs)`, `native_method(function, obj, args, kwargs)`,
`read_opaque(descriptor, obj)`  C functions, C methods and C fields without a model.
`wrap_object(real, source)`     objects of classes that are neither Python's nor modelled.
`factories`                     type -> factory `(machine, real, source) -> Value`, searched by MRO.
`models`                        callable -> `(machine, args, kwargs) -> Value`; goes before
    everything else, for Python functions too.  `callables` is the same by type of the callable.
`steps`                         canonical operation -> step function.
`Value.table`                   name -> handler of a method, slot or field that C implements;
    filled by `@slot("name")` on methods, `"name="` is a setter.  It is asked when the search in the
    MRO ends at C code, so user subclasses override it as in CPython.
`Value.rebuild(r)`, `Rebuilder.read`, `Rebuilder.class_`   how values become objects again.

Rules that keep it right:

* Look at a value only after `value.force(m)`; hand on what is not looked at as it is.  `type_of`,
  `is_none`, `truth` and `identical` ask for less than `force` does.
* Nothing real changes before the replay; so a capture can be dropped at any time.
* `Signal` is what the machine throws for itself (`Raised`, `Finished`, `CaptureBreak`); any other
  exception is a bug and is never shown to the program's handlers.
* What cannot be replayed for certain stops the capture: `m.stop(code, detail)`.

Breaking and resuming: `CaptureBreak.count` tells when the outermost frame began the instruction
that broke; `Machine(halt=count)` runs again and stops exactly before it.  The frames of that break
hold what a resume function needs: `frame.offset` (original bytecode), `frame.slots` (None is
unbound,
cells are `CellValue`), `frame.stack` as deep as the native one, with `NULL`, `Handled` and `Lasti`.
"""

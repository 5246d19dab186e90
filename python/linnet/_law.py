"""Your own recurrence: the law of one token as a Python function, traced into the text the compiler reads.

The function is called once with symbols. What it does to them becomes a `chunk.law` (docs/dialect.md) whose lines
remember where they come from, so that a message of the compiler about a line names the user's.
"""

import hashlib
import inspect
import linecache
import re
import sys
from dataclasses import dataclass

import torch

_SHAPES = {"": "tensor<f32>", "K": "!K", "V": "!V", "KV": "!KxV"}
_NAMES = {"": "one number", "K": "key channels", "V": "value channels"}
_UNARY = {"exp": "math.exp", "log": "math.log", "sqrt": "math.sqrt", "tanh": "math.tanh", "neg": "arith.negf",
          "sigmoid": "chunk.sigmoid", "softplus": "chunk.softplus"}
_FUNCTIONS = "exp, log, sqrt, tanh, sigmoid, softplus, sum and dot"
_TENSORS = ("A_log", "dt_bias", "initial_state", "final_state", "o")  # of every kernel, and of its gradients with a d in front
_TAKEN = {"S", "cu_seqlens", "state", "states", "states_every", "slots", *_TENSORS, *("d" + name for name in _TENSORS)}
# A kernel has 64 arguments at most: in a backward the inputs, their gradients, and 9 of A_log, dt_bias, states and o.
_MOST_INPUTS = 27


@dataclass(frozen=True)
class Kind:
    """What an input is: of what there is one (token, head or constant), its axes, and its role."""

    scope: str
    axes: str = ""
    key_heads: bool = False
    role: str = ""


class LawError(ValueError):
    """What a law may not do, with the place in it."""


@dataclass(frozen=True)
class Place:
    file: str
    line: int

    def message(self, text):
        source = linecache.getline(self.file, self.line).strip()
        return f"{self.file}:{self.line}: {text}" + (f"\n    {source}" if source else "")


@dataclass
class _Line:
    """One op: `text` with {0}, {1} for its operands, giving a value of these axes, or None."""

    text: str
    operands: list
    result: object
    place: Place


class _Trace:
    def __init__(self, place):
        self.lines, self.place = [], place

    def user_frame(self):
        frame = sys._getframe(1)
        while frame.f_code.co_filename == __file__ or "/torch/" in frame.f_code.co_filename:
            frame = frame.f_back
        return frame

    def here(self):
        frame = self.user_frame()
        for name, x in list(frame.f_locals.items()):  # a value is called as the variable it was put in
            if isinstance(x, Value) and not x._name:
                x._name = name
        return Place(frame.f_code.co_filename, frame.f_lineno)

    def refuse(self, text):
        raise LawError(self.here().message(text))

    def add(self, text, operands, axes, name="", place=None):
        value = None if axes is None else Value(self, axes, name)
        self.lines.append(_Line(text, operands, value, place or self.here()))
        return value

    def value(self, x, what):
        if isinstance(x, Value):
            if x._trace is not self:
                self.refuse(f"{what} belongs to another law")
            return x
        if isinstance(x, bool) or not isinstance(x, (int, float)):
            self.refuse(f"{what}: expected a value of the law or a number, got {type(x).__name__}")
        if not abs(x) < 3e38:
            self.refuse(f"{what}: expected a finite number, got {x}")
        return self.add(f"arith.constant dense<{float(x):.9e}> : tensor<f32>", [], "")

    def spread(self, x, axes):
        if x._axes or not axes:
            return x
        return self.add(f"chunk.broadcast {{0}} [0] : tensor<f32> -> {_SHAPES[axes]}", [x], axes)

    def binary(self, op, symbol, a, b):
        a, b = self.value(a, "the left side of " + symbol), self.value(b, "the right side of " + symbol)
        a, b = self.spread(a, b._axes), self.spread(b, a._axes)
        if a._axes != b._axes:
            self.refuse(f"{symbol}: expected equal axes or one number, got {_NAMES[a._axes]} and {_NAMES[b._axes]}")
        return self.add(f"{op} {{0}}, {{1}} : {_SHAPES[a._axes]}", [a, b], a._axes)


class Value:
    """A value of one token: a vector over key or value channels, or one number."""

    __array_ufunc__ = None  # NumPy's numbers leave arithmetic to us

    def __init__(self, trace, axes, name=""):
        self._trace, self._axes, self._name = trace, axes, name

    def __add__(self, other):
        return self._trace.binary("arith.addf", "+", self, other)

    def __radd__(self, other):
        return self._trace.binary("arith.addf", "+", other, self)

    def __sub__(self, other):
        return self._trace.binary("arith.subf", "-", self, other)

    def __rsub__(self, other):
        return self._trace.binary("arith.subf", "-", other, self)

    def __mul__(self, other):
        return self._trace.binary("arith.mulf", "*", self, other)

    def __rmul__(self, other):
        return self._trace.binary("arith.mulf", "*", other, self)

    def __truediv__(self, other):
        return self._trace.binary("arith.divf", "/", self, other)

    def __rtruediv__(self, other):
        return self._trace.binary("arith.divf", "/", other, self)

    def __neg__(self):
        return self._unary("neg")

    def _unary(self, name):
        return self._trace.add(f"{_UNARY[name]} {{0}} : {_SHAPES[self._axes]}", [self], self._axes)

    def sum(self):
        """Over the channels."""
        if not self._axes:
            self._trace.refuse("sum: expected channels, got one number")
        return self._trace.add(f"chunk.reduce {{0}} [0] : {_SHAPES[self._axes]} -> tensor<f32>", [self], "")

    def dot(self, other):
        return (self * other).sum()

    def __getattr__(self, name):
        if name in _UNARY:
            return lambda: self._unary(name)
        if name.startswith("__"):
            raise AttributeError(name)
        self._trace.refuse(f"{name}: expected one of {_FUNCTIONS}; a law has no other function")

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        x = next(x for x in args if isinstance(x, Value))
        name = getattr(function, "__name__", str(function))
        if name in ("sum", "dot") or name in _UNARY:
            if kwargs:
                x._trace.refuse(f"{name}: expected no options in a law, got {', '.join(kwargs)}")
            return getattr(args[0], name)(*args[1:])
        x._trace.refuse(f"{name}: expected one of {_FUNCTIONS}; a law has no other function")

    def __eq__(self, _):
        self._trace.refuse("a law has no conditions: expected arithmetic, got a comparison of values")

    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = object.__hash__

    def __pow__(self, *_):
        self._trace.refuse("a law has no other operators than + - * /: expected v * v for v ** 2")

    __rpow__ = __matmul__ = __rmatmul__ = __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __abs__ = __pow__

    def __bool__(self):
        self._trace.refuse("a law has no branches: expected arithmetic, got a condition on a value")

    def __float__(self):
        self._trace.refuse("a value of the law is not a number yet: expected torch.exp and the like, got math.exp or float")

    __index__ = __int__ = __float__

    def __iter__(self):
        self._trace.refuse("a law has no loops over channels: expected arithmetic on whole values")

    def __getitem__(self, _):
        self._trace.refuse("a law has no indices: expected arithmetic on whole values")


class State:
    """The state S [K, V] of one head, as a law sees it."""

    def __init__(self, trace, value):
        self._trace, self._value = trace, value

    def decay(self, g):
        """S <- diag(exp g) S, or exp(g) S for one number."""
        g = self._trace.value(g, "the gate of decay")
        if g._axes == "V":
            self._trace.refuse("the gate of decay: expected key channels or one number, got value channels")
        self._value = self._trace.add(f"chunk.decay {{0}}, {{1}} : !KxV, {_SHAPES[g._axes]}", [self._value, g], "KV", "S")

    def read(self, w):
        """S^T w."""
        return self._trace.add("chunk.read {0}, {1} : !KxV, !K -> !V",
                               [self._value, self._vector(w, "K", "the vector of read")], "V")

    def write(self, u, x):
        """S <- S + u x^T."""
        operands = [self._value, self._vector(u, "K", "the direction of write"),
                    self._vector(x, "V", "the value of write")]
        self._value = self._trace.add("chunk.write {0}, {1}, {2} : !KxV, !K, !V", operands, "KV", "S")

    def _vector(self, x, axes, what):
        x = self._trace.value(x, what)
        if x._axes != axes:
            self._trace.refuse(f"{what}: expected {_NAMES[axes]}, got {_NAMES[x._axes]}")
        return x


@dataclass(frozen=True)
class Traced:
    """A law as text, with the user's place of each of its lines."""

    name: str
    kinds: dict  # of the inputs, in order
    text: str
    places: tuple

    def digest(self):
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    def at_users_line(self, message):
        """A message of the compiler that names a line of the text names the user's instead."""
        found = re.match(r"<law>:(\d+)(?::\d+)?: (.*)", message, re.S)
        if not found:
            return None
        line = min(max(int(found[1]) - 1, 0), len(self.places) - 1)
        return self.places[line].message(found[2])


def trace(function, kinds):
    """Calls the function with symbols for the state and its inputs."""
    code = function.__code__
    place = Place(code.co_filename, code.co_firstlineno)
    t = _Trace(place)
    state = State(t, t.add("chunk.state : !KxV", [], "KV", "S", place))
    inputs = []
    for name, kind in kinds.items():
        words = f'chunk.input "{name}" {kind.scope}' + " key_heads" * kind.key_heads + (kind.role and f" as {kind.role}")
        inputs.append(t.add(f"{words} : {_SHAPES[kind.axes]}", [], kind.axes, name, place))
    result = function(state, *inputs)
    if not isinstance(result, Value) or result._axes != "V":
        got = _NAMES[result._axes] if isinstance(result, Value) else type(result).__name__
        raise LawError(place.message(f"{function.__name__}: expected the token's result, value channels such as "
                                     f"S.read(q), to be returned; got {got}"))
    t.add('chunk.output "o", {0} token : !V', [result], None, place=place)
    t.add("chunk.next {0} : !KxV", [state._value], None, place=place)
    return Traced(function.__name__, kinds, *_write(function, t.lines))


def _write(function, lines):
    """The text, and the place of each of its lines."""
    names, used = {}, set()
    for count, line in enumerate(lines):
        if line.result is None:
            continue
        stem = re.sub(r"[^A-Za-z0-9_]", "_", line.result._name) or str(count)  # what has no name is numbered
        name, number = stem, 0
        while name in used:
            number += 1
            name = f"{stem}_{number}"
        used.add(name)
        names[id(line.result)] = "%" + name
    text = [f"chunk.law @{function.__name__} {{"] + [
        "  " + (f"{names[id(line.result)]} = " if line.result is not None else "")
        + line.text.format(*(names[id(x)] for x in line.operands)) for line in lines] + ["}"]
    first = lines[0].place
    return "\n".join(text) + "\n", (first, *(line.place for line in lines), first)


def kinds_of(function):
    """The inputs of a law, from its annotations."""
    place = Place(function.__code__.co_filename, function.__code__.co_firstlineno)

    def refuse(text):
        raise LawError(place.message(text))

    try:
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    except NameError as error:
        refuse(f"an annotation is not known: {error}")
    if not parameters or parameters[0].annotation is not inspect.Parameter.empty:
        refuse(f"{function.__name__}: expected the state as first parameter, without annotation, e.g. (S, q: law.key)")
    if not function.__name__.isascii():
        refuse(f"{function.__name__}: expected a name of ASCII letters, digits and _")
    kinds = {}
    for x in parameters[1:]:
        kind = x.annotation
        if inspect.ismethod(kind):
            kind = kind()
        if not isinstance(kind, Kind) or x.kind is not x.POSITIONAL_OR_KEYWORD or x.default is not x.empty:
            refuse(f"{x.name}: expected a parameter with an annotation such as law.key, law.value or law.gate('token'), "
                   "and nothing else")
        if (x.name == "scale") != (kind.scope == "constant"):
            refuse(f"{x.name}: expected law.scale for the parameter scale and for no other")
        if not x.name.isascii():
            refuse(f"{x.name}: expected a name of ASCII letters, digits and _")
        if x.name in _TAKEN:
            refuse(f"{x.name}: expected another name, this one is taken")
        kinds[x.name] = kind
    for name in kinds:
        if "d" + name in kinds:
            refuse(f"d{name}: expected another name, this is how the gradient of {name} is called")
    if len(kinds) > _MOST_INPUTS:
        refuse(f"{function.__name__}: expected at most {_MOST_INPUTS} inputs, got {len(kinds)}")
    if not any(kind.axes == "K" and kind.scope == "token" for kind in kinds.values()):
        refuse(f"{function.__name__}: expected an input over key channels, e.g. q: law.key")
    if not any(kind.axes == "V" for kind in kinds.values()):
        refuse(f"{function.__name__}: expected an input over value channels, e.g. v: law.value")
    return kinds

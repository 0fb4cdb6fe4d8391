"""Growth: how large the values of an expression can become, and how many steps an evaluation can take, computed from
the tree of the expression alone.

The library bounds how often loops turn, not the size of the values built by loops: `x + x` in a chain of maps doubles a
text with each map. So an upper bound of every value is computed before any evaluation, for facts of a usual size;
`times_usual` measures the facts at hand, since the time of nested loops grows with a power of this factor. Only loops
of the standard macros occur, since rules arrive as text: no text can name the accumulator of a loop, so a loop adds to
the accumulator at most once a turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from controlplane.engine.rules.schema import FIELDS, Kind, Value

MOST_SIZE: Final = 300_000
# A step takes some 0.1 us. Bounds, in order: for an evaluation; for an evaluation of a priority, which runs for every
# order on the event loop; for an evaluation with loops on the facts at hand; for a condition on all targets; for all
# rules on a single target.
MOST_STEPS: Final = 300_000
MOST_PRIORITY_STEPS: Final = 3_000
MOST_LOOP_STEPS: Final = 3_000_000
MOST_COLUMN_STEPS: Final = 10_000_000
MOST_BOOK_STEPS: Final = 3_000_000

# Facts of a usual size: a text, and how many entries a list or map has.
_TEXT: Final = 64
_MANY: Final = 64
# Of a list of texts, as `_weight` counts.
_USUAL_WEIGHT: Final = _MANY * 2 * _TEXT
# So many bytes are compared or copied in the time of a step.
_BYTES_A_STEP: Final = 16
_LAZY: Final = frozenset({"_&&_", "_||_", "_?_:_", "!_", "_[_]", "@not_strictly_false", "dyn", "type"})
# A pattern is compiled at each evaluation. Measured costs, in steps: for each character, for a class of Unicode, for
# repetitions by number, which the library bounds by memory only, and for a pattern which is not a constant.
_PATTERN_LETTER: Final = 40
_PATTERN_CLASS: Final = 15_000
_PATTERN_REPEATS: Final = 25_000
_PATTERN_UNKNOWN: Final = 100_000


class Bound(NamedTuple):
    """The upper bound of a value. Of a text, the length; of a list or a map, the number of entries, each of at most
    `inner`. Numbers have no length."""

    length: int = 0
    inner: Bound | None = None

    def size(self) -> int:
        return 1 + (self.length if self.inner is None else self.length * self.inner.size())


class TooLarge(Exception):
    """Raised with the node at which an expression becomes too large, and the reason."""

    def __init__(self, node: Any, why: str) -> None:
        super().__init__(why)
        self.node = node


_NUMBER: Final = Bound()
_WORD: Final = Bound(_TEXT)
_OF_KIND: Final[Mapping[Kind, Bound]] = {
    Kind.TEXT: _WORD,
    Kind.TEXTS: Bound(_MANY, _WORD),
    Kind.LABELS: Bound(_MANY, _WORD),
    Kind.AMOUNTS: Bound(_MANY, _WORD),
}


class Growth:
    """A single walk over a tree: how many steps an evaluation takes, and the depth of nested loops."""

    def __init__(self) -> None:
        self.steps = 0
        self.nesting = 0

    def look(self, node: Any) -> None:
        """Raises TooLarge when the evaluation of the node may take more memory or time than allowed for a rule."""
        self.steps = self._steps_of(node, {}, 0)[1]
        if self.steps > MOST_STEPS:
            raise TooLarge(node, f"may take {self.steps} steps, and a rule must not take more than {MOST_STEPS}")

    def _steps_of(self, node: Any, names: Mapping[str, Bound], depth: int) -> tuple[Bound, int]:
        bound, steps = self._judge(node, names, depth)
        if bound.size() > MOST_SIZE:
            raise TooLarge(node, f"may become larger than {MOST_SIZE} bytes")
        return bound, min(steps, MOST_STEPS * 1000)

    def _judge(self, node: Any, names: Mapping[str, Bound], depth: int) -> tuple[Bound, int]:
        if node.HasField("const_expr"):
            return Bound(node.const_expr.ByteSize()), 1
        if node.HasField("ident_expr"):
            return self._name(node.ident_expr.name, names), 1
        if node.HasField("select_expr"):
            return self._field(node, names, depth)
        if node.HasField("call_expr"):
            return self._call(node.call_expr, names, depth)
        if node.HasField("comprehension_expr"):
            return self._loop(node, names, depth)
        if node.HasField("list_expr"):
            bounds, steps = self._all(node.list_expr.elements, names, depth)
            return Bound(len(bounds), _widest(bounds)), steps + 1
        # The values given to a message are copied into the message, value by value.
        bounds, steps = self._all(_entries(node), names, depth)
        return Bound(len(bounds), _widest(bounds)), steps + 1 + sum(bound.size() for bound in bounds)

    def _name(self, name: str, names: Mapping[str, Bound]) -> Bound:
        if name in names:
            return names[name]
        fields = FIELDS.get(name.removeprefix("."), {})
        return Bound(len(fields), _widest(_OF_KIND.get(kind, _NUMBER) for kind in fields.values()))

    def _field(self, node: Any, names: Mapping[str, Bound], depth: int) -> tuple[Bound, int]:
        operand, field = node.select_expr.operand, node.select_expr.field
        name = operand.ident_expr.name
        if operand.HasField("ident_expr") and name not in names and name.removeprefix(".") in FIELDS:
            kind = FIELDS[name.removeprefix(".")].get(field)
            return _OF_KIND.get(kind, _NUMBER) if kind is not None else _NUMBER, 1
        bound, steps = self._steps_of(operand, names, depth)
        return bound.inner or bound, steps + 1

    def _call(self, call: Any, names: Mapping[str, Bound], depth: int) -> tuple[Bound, int]:
        parts = [call.target, *call.args] if call.HasField("target") else list(call.args)
        bounds, steps = self._all(parts, names, depth)
        steps += 1
        if call.function not in _LAZY:
            steps += sum(bound.size() for bound in bounds) // _BYTES_A_STEP
        if call.function == "matches":
            steps += _pattern_steps(parts[-1])
        return _result(call.function, bounds), steps

    def _loop(self, node: Any, names: Mapping[str, Bound], depth: int) -> tuple[Bound, int]:
        loop = node.comprehension_expr
        self.nesting = max(self.nesting, depth + 1)
        over, steps = self._steps_of(loop.iter_range, names, depth)
        _, begin = self._steps_of(loop.accu_init, names, depth)
        item = over.inner or over
        inside = {**names, loop.iter_var: item, loop.iter_var2: item, loop.accu_var: _NUMBER}
        _, asked = self._steps_of(loop.loop_condition, inside, depth + 1)
        added, turned = self._steps_of(loop.loop_step, inside, depth + 1)
        whole = Bound(over.length * added.length, added.inner)
        result, end = self._steps_of(loop.result, {**inside, loop.accu_var: whole}, depth + 1)
        return result, steps + begin + over.length * (asked + turned) + end

    def _all(self, parts: Iterable[Any], names: Mapping[str, Bound], depth: int) -> tuple[list[Bound], int]:
        judged = [self._steps_of(part, names, depth) for part in parts]
        return [bound for bound, _ in judged], sum(steps for _, steps in judged)


def _pattern_steps(pattern: Any) -> int:
    if not pattern.const_expr.HasField("string_value"):
        return _PATTERN_UNKNOWN
    text: str = pattern.const_expr.string_value
    classes = text.lower().count("\\p") * _PATTERN_CLASS
    repeats = _PATTERN_REPEATS if "{" in text else 0
    return len(text) * _PATTERN_LETTER + (classes * MOST_STEPS if repeats else classes) + repeats


def _entries(node: Any) -> list[Any]:
    """Keys and values of a map or message literal."""
    return [part for entry in node.struct_expr.entries for part in (entry.map_key, entry.value) if part.ByteSize()]


def _result(function: str, bounds: list[Bound]) -> Bound:
    if function == "_+_":
        return Bound(sum(bound.length for bound in bounds), _widest(bound.inner for bound in bounds))
    if function == "_?_:_":
        return _widest(bounds[1:]) or _NUMBER
    if function == "_[_]":
        return bounds[0].inner or bounds[0]
    if function == "dyn":
        return bounds[0]
    if function in ("string", "bytes"):
        return Bound(max(_TEXT, bounds[0].size()))
    return _NUMBER


def _widest(bounds: Iterable[Bound | None]) -> Bound | None:
    widest: Bound | None = None
    for bound in bounds:
        if widest is None or bound is None:
            widest = widest or bound
        else:
            widest = Bound(max(widest.length, bound.length), _widest((widest.inner, bound.inner)))
    return widest


def times_usual(values: Iterable[Value]) -> int:
    """How many times larger than usual the largest of the facts is, at least 1."""
    return max((_weight(value) // _USUAL_WEIGHT for value in values), default=0) + 1


def _weight(value: Value) -> int:
    """The weight of a value. A list or map weighs more than the texts inside: each entry is looked at."""
    if isinstance(value, tuple):
        return sum(_TEXT + _weight(part) for part in value)
    return len(value) if isinstance(value, str) else 1

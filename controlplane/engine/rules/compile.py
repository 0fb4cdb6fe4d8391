"""Compilation: from the text of a rule to conditions which can be evaluated.

A rule which does not compile is refused with the place of the error: the syntax, an unknown name or field, types which
do not go together, an effect which the expression cannot have, or values which may become too large. The library bounds
how deep an expression may nest and how often loops may turn, `growth` bounds the size of the values and the time of
the evaluation: a rule can be wrong but cannot hang or crash the evaluating process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from cel_expr_python import cel
from google.protobuf.message import DecodeError

from controlplane.engine.rules import growth, schema
from controlplane.engine.rules.schema import Path, Value
from controlplane.engine.rules.syntax import SyntaxPart, SyntaxTree
from controlplane.model.errors import Invalid
from controlplane.model.rule import Effect, Rule

TARGET: Final = "target"
NOW: Final = "now"

_PLACED: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
# Parts of error messages without value for users: the parser's list of expected tokens, and terms of the library.
_NOISE: Final = re.compile(r" expecting \{.*\}| \(in container ''\)| \[[A-Z_]+\]$|^[A-Z_]+: ")
_NO_FIELD: Final = re.compile(rf"undefined field '(\w+)' not found in struct '{schema.PACKAGE}\.(\w+)'")
_LONGEST_MESSAGE: Final = 300
_TOO_DEEP: Final = "the expression is nested too deeply"
LONGEST: Final = 4096


@dataclass(frozen=True, slots=True)
class Failure:
    """An expression which could not be evaluated on the given values."""

    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Conjunct:
    """A condition, joined with others by `&&` in `when`; `paths` are all paths read by the condition, sorted.

    `steps` is the approximate maximum of steps of an evaluation, on facts of a usual size; `nesting` is the depth of
    nested loops."""

    paths: tuple[Path, ...]
    expression: Any
    steps: int = 1
    nesting: int = 0

    def holds(self, values: Mapping[Path, Value]) -> bool | Failure:
        if self.nesting:
            steps = self.steps * growth.times_usual(values.values()) ** (self.nesting + 1)
            if steps > growth.MOST_LOOP_STEPS:
                return Failure("its loops take too long on what they read of this task and target")
        try:
            result = self.expression.eval(data=schema.messages(values)).value()
        except (RuntimeError, ValueError, TypeError) as error:
            return Failure(_short(str(error)))
        return result if isinstance(result, bool) else Failure(_short(str(result)))

    def speaks_of(self, root: str) -> bool:
        return any(path[0] == root for path in self.paths)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    """`reads` lists the fields on which the rule depends, such as job.labels.team, order.owner, target.region,
    now.hour."""

    name: str
    effect: Effect
    conjuncts: tuple[Conjunct, ...]

    @property
    def paths(self) -> frozenset[Path]:
        return frozenset(path for part in self.conjuncts for path in part.paths)

    @property
    def steps(self) -> int:
        return sum(part.steps for part in self.conjuncts)

    @property
    def nesting(self) -> int:
        """The depth of nested loops."""
        return max((part.nesting for part in self.conjuncts), default=0)

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(".".join(path) for path in self.paths)

    def about_target(self) -> tuple[Conjunct, ...]:
        return tuple(part for part in self.conjuncts if part.speaks_of(TARGET))

    def about_task(self) -> tuple[Conjunct, ...]:
        return tuple(part for part in self.conjuncts if not part.speaks_of(TARGET))

    def demands(self) -> tuple[Conjunct, ...]:
        """The conditions evaluated on each target. A requiring rule first checks which tasks are concerned, see
        `about_task`."""
        return self.about_target() if self.effect.require else self.conjuncts


def compile_rule(rule: Rule) -> CompiledRule:
    """Raises Invalid, with the line and column of the error in the message."""
    effect = rule.then or Effect()
    try:
        tree = SyntaxTree(_checked(rule.when).serialize())
        parts = tuple(_conjunct(part) for part in tree.conjuncts())
    except (DecodeError, RecursionError):
        # The library compiles expressions which are nested deeper than a protobuf message may be.
        raise _invalid(1, 1, _TOO_DEEP) from None
    except growth.TooLarge as refusal:
        raise _invalid(*tree.place(refusal.node), str(refusal)) from None
    compiled = CompiledRule(rule.name, effect, parts)
    most = growth.MOST_STEPS if effect.priority is None else growth.MOST_PRIORITY_STEPS
    if compiled.steps > most:
        raise _invalid(1, 1, f"may take {compiled.steps} steps, and a rule with this effect must not take above {most}")
    if effect.priority is not None and compiled.about_target():
        line, column = tree.place_of(TARGET)
        raise _invalid(line, column, "a rule that changes the priority cannot speak of target")
    if effect.require and not compiled.about_target():
        raise Invalid("when", "must say what is required of target, in a condition joined by &&")
    return compiled


def _conjunct(part: SyntaxPart) -> Conjunct:
    seen = growth.Growth()
    seen.look(part.node)
    expression = _environment().deserialize(part.serialized)
    return Conjunct(tuple(sorted(part.paths)), expression, seen.steps, seen.nesting)


def _checked(text: str) -> Any:
    if len(text) > LONGEST:
        raise _invalid(1, 1, f"must not be longer than {LONGEST} characters")
    try:
        checked = _environment().compile(text)
    except (RuntimeError, TypeError) as error:
        raise _refusal(str(error)) from None
    result_type = checked.return_type()
    if result_type != cel.Type.BOOL:
        raise _invalid(1, 1, f"must be true or false, but is of type {result_type.name().lower()}")
    return checked


def _refusal(message: str) -> Invalid:
    for line, column, said in _PLACED.findall(message):
        if int(line) > 0:
            return _invalid(int(line), int(column), _short(said))
    return _invalid(1, 1, _TOO_DEEP if "recursion" in message else _short(message))


def _invalid(line: int, column: int, said: str) -> Invalid:
    return Invalid("when", f"at line {line}, column {column}: {said}")


def _short(message: str) -> str:
    plain = _NOISE.sub("", message.partition("\n")[0])
    return _NO_FIELD.sub(lambda match: f"{match[2].lower()} has no field '{match[1]}'", plain)[:_LONGEST_MESSAGE]


@cache
def _environment() -> Any:
    types = {root: cel.Type(schema.type_name(root)) for root in schema.FIELDS}
    return cel.NewEnv(descriptor_pool=schema.pool(), variables=types)

"""Expressions of rules: what compiles, what it reads, and where the error is when it does not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.engine.rules.compile import CompiledRule, Failure, compile_rule
from controlplane.engine.rules.schema import Path, Value
from controlplane.model.errors import Invalid
from controlplane.model.rule import Effect, Rule


def compiled(when: str, **effect: Any) -> CompiledRule:
    return compile_rule(Rule(name="r", when=when, then=Effect(**effect) if effect else Effect(forbid=True)))


def outcome(when: str, **said: Value) -> bool | Failure:
    """Of an expression that is one condition, on `job__labels__team="film"` and the like; the rest is absent."""
    (part,) = compiled(when).conjuncts
    values: dict[Path, Value] = {tuple(path.split("__")): value for path, value in said.items()}
    return part.holds({path: values.get(path) for path in part.paths})


def refused(when: str) -> Invalid | None:
    try:
        compiled(when)
    except Invalid as refusal:
        return refusal
    return None


REFUSED = {
    "job.labels.team ==\n  && now.hour > 3": "at line 2, column 3: Syntax error: extraneous input '&&'",
    "true &&\n\n  nobody.name == 'x'": "at line 3, column 9: undeclared reference to 'nobody.name'",
    "job.colour == 'red'": "at line 1, column 4: job has no field 'colour'",
    "target.labels.zone > 3": "at line 1, column 20: found no matching overload",
    "now.hour == 1 && shout('x')": "at line 1, column 23: undeclared reference to 'shout'",
    "job.name": "at line 1, column 1: must be true or false, but is of type string",
    "(now.hour > 3": "at line 1, column 14: Syntax error: missing ')'",
    "": "at line 1, column 1: Syntax error",
    "'ä' == 'ä' && job.nam == 'ä'": "at line 1, column 18: job has no field 'nam'",
    "(" * 2000 + "true" + ")" * 2000: "nested too deeply",
    "job" + ".labels" * 500 + " == 'x'": "nested too deeply",
    "'\ud800' == 'x'": "at line 1, column 1:",
}


@pytest.mark.parametrize(("when", "sentence"), REFUSED.items(), ids=range(len(REFUSED)))
def test_what_does_not_compile_is_refused_with_its_place(when: str, sentence: str) -> None:
    with pytest.raises(Invalid) as caught:
        compiled(when)
    assert caught.value.field == "when"
    assert sentence in caught.value.rule
    assert len(caught.value.rule) < 400
    assert "\n" not in caught.value.rule


@settings(deadline=None)
@given(st.text(alphabet="job.labels()[]'\"&|!=<>?:+-{}, 1\\\n\x00é\ud800", max_size=60))
def test_any_text_either_compiles_or_is_refused_with_a_place(when: str) -> None:
    refusal = refused(when)
    assert refusal is None or refusal.rule.startswith("at line ")


def test_a_rule_for_priority_cannot_speak_of_target() -> None:
    with pytest.raises(Invalid, match=r"at line 2, column 4: .* cannot speak of target"):
        compiled("job.name == 'x' &&\n  (target.name == 'y' || target.region == 'eu')", priority=5)
    assert compiled("job.name == 'target.name'", priority=5).reads == {"job.name"}


def test_a_rule_that_requires_must_say_what() -> None:
    with pytest.raises(Invalid, match="must say what is required of target"):
        compiled("job.name == 'x'", require=True)
    both = compiled("job.name == 'x' && (target.region == 'eu' && order.owner == 'ann')", require=True)
    assert [part.paths for part in both.about_target()] == [(("target", "region"),)]
    assert [part.paths for part in both.about_task()] == [(("job", "name"),), (("order", "owner"),)]
    other = compiled("job.name != 'x' || target.region == 'eu'", require=True)
    assert (len(other.about_target()), len(other.about_task())) == (1, 0)


READS = {
    "job.labels.team == 'film' && order.owner == 'ann'": {"job.labels.team", "order.owner"},
    "has(job.labels.team) || 'zone' in target.labels": {"job.labels.team", "target.labels.zone"},
    "target.labels['a/b.c'] == 'now.hour'": {"target.labels.a/b.c"},
    "job.labels[order.owner] == 'x'": {"job.labels", "order.owner"},
    "job.labels.team == 'x' || job.labels.exists(key, key == 'y')": {"job.labels"},
    "job.drivers.exists(target, target == 'process')": {"job.drivers"},
    "job.drivers.exists(d, target.driver == d)": {"job.drivers", "target.driver"},
    "'process' in job.drivers && job.name.startsWith('a')": {"job.drivers", "job.name"},
    "[order.priority, now.hour].exists(n, n > 3)": {"order.priority", "now.hour"},
    "{'a': job.exclusive}['a'] ? job.preemptible : has(order.deadline)": {
        "job.exclusive", "job.preemptible", "order.deadline",
    },
    "size(job.command) > 3 // job.image": {"job.command"},
    "now == now": {f"now.{part}" for part in ("year", "month", "day", "hour", "minute", "weekday")},
    "true": set(),
}  # fmt: skip


@pytest.mark.parametrize(("when", "reads"), READS.items())
def test_a_rule_knows_what_it_reads(when: str, reads: set[str]) -> None:
    assert compiled(when).reads == reads


HOLDS = [
    ("job.class == 'render'", {"job__class": "render"}, True),
    ("job.requests.cpu >= 2", {"job__requests__cpu": 2.0}, True),
    ("job.requests.cpu > 1.5", {"job__requests__cpu": 2.0}, True),
    ("job.requests.cpu * 2.0 > 3.0", {"job__requests__cpu": 2.0}, True),
    ("target.capacity['gpu'] == 2", {"target__capacity__gpu": 2.0}, True),
    ("has(job.time_limit)", {"job__time_limit": 30.0}, True),
    ("has(job.time_limit)", {}, False),
    ("job.time_limit == null", {}, True),
    ("job.time_limit <= 60", {"job__time_limit": 30.0}, True),
    ("has(job.labels.team)", {}, False),
    ("has(job.labels.team)", {"job__labels__team": ""}, True),
    ("'team' in job.labels", {"job__labels__team": "film"}, True),
    ("!('team' in job.labels)", {}, True),
    ("has(job.region)", {"job__region": ""}, False),
    ("job.labels.all(key, job.labels[key] == 'a')", {"job__labels": (("x", "a"), ("y", "b"))}, False),
    ("job.drivers.exists(d, d == 'process')", {"job__drivers": ("kubernetes", "process")}, True),
    ("size(job.drivers) == 0", {"job__drivers": ()}, True),
    ("target.name.matches('^eu-[0-9]+$')", {"target__name": "eu-12"}, True),
    ("now.weekday in [5, 6]", {"now__weekday": 6}, True),
    ("order.priority + 10 > 55", {"order__priority": 50}, True),
    ("!order.preempts", {"order__preempts": False}, True),
]


@pytest.mark.parametrize(("when", "said", "expected"), HOLDS)
def test_an_expression_sees_what_is_there(when: str, said: dict[str, Value], expected: bool) -> None:
    assert outcome(when, **said) is expected


FAILS = {
    "job.labels.team == 'film'": "team",
    "job.time_limit > 5": "overload",
    "order.priority / (order.priority - order.priority) == 1": "zero",
    "job.requests.cpu || false": "cpu",
    "[1,2,3,4,5,6,7,8,9,0].all(a, [1,2,3,4,5,6,7,8,9,0].all(b, [1,2,3,4,5,6,7,8,9,0].all(c, "
    "[1,2,3,4,5,6,7,8,9,0].all(d, [1,2,3].all(e, true)))))": "udget",
}


@pytest.mark.parametrize(("when", "word"), FAILS.items(), ids=range(len(FAILS)))
def test_what_cannot_be_evaluated_is_a_failure_with_a_short_word(when: str, word: str) -> None:
    found = outcome(when)
    assert isinstance(found, Failure)
    assert word in found.message
    assert len(found.message) < 350


def _nested(depth: int, body: str = "true") -> str:
    for level in range(depth):
        body = f"[1].all(x{level}, {body})"
    return body


GROWS = {
    "texts double": "size(['aaaaaaaa']" + ".map(x, x + x)" * 22 + "[0]) > 0",
    "lists double": "[[1, 1]]" + ".map(x, x + x)" * 20 + " == []",
    "lists hold themselves twice": "[[1]]" + ".map(x, [x, x])" * 20 + " == []",
    "maps hold themselves twice": "[{'a': 1}]" + ".map(x, {'a': x, 'b': x})" * 18 + " == []",
    "the growth hides in a choice": "[[1]]" + ".map(x, true ? x + x : x)" * 18 + " == []",
    "the growth hides in a filtered map": "[[1]]" + ".map(x, true, x + x)" * 18 + " == []",
    "bytes double": "[b'aaaaaaaa']" + ".map(x, x + x)" * 18 + " == []",
    "by way of bytes": "['aaaaaaaa']" + ".map(x, string(bytes(x) + bytes(x)))" * 16 + " == []",
    "by way of an entry": "[{'a': 'bbbb'}]" + ".map(x, {'a': x.a + x.a})" * 18 + " == []",
    "by way of places": "['" + "a" * 400 + "']" + ".map(x, [x, x]).map(x, x[0] + x[1])" * 11 + " == []",
    "dyn hides the type": "['aaaaaaaa']" + ".map(x, dyn(x) + dyn(x))" * 18 + " == []",
    "messages hold themselves twice": "[google.protobuf.Value{string_value: 'a'}]"
    + ".map(x, google.protobuf.ListValue{values: [x, x]})" * 18 + " == []",
    "tenfold": "['aaaaaaaa']" + ".map(x, x+x+x+x+x+x+x+x+x+x)" * 6 + " == []",
    "in each other": "job.labels.map(a, job.labels.map(b, job.labels.map(c, c))) == []",
    "much is compared in a loop": "job.command.all(x, " + " && ".join(["job.env == job.env"] * 100) + ")",
    "a pattern is compiled in two loops": "job.labels.all(k, target.labels.all(l, l.matches('(a{1,30}){1,30}')))",
    "a pattern of many classes": "job.name.matches('" + r"\\pL" * 60 + "')",
    "classes that are repeated": r"job.name.matches('(\\pL){40}')",
    "a pattern that is not known, in a loop": "job.command.all(x, job.name.matches(x))",
    "many patterns": " && ".join(["job.name.matches('(a{1,30}){1,30}')"] * 50),
    "nested too deeply for a message": _nested(25),
}  # fmt: skip


@pytest.mark.parametrize("when", GROWS.values(), ids=GROWS)
def test_what_may_become_too_large_or_take_too_long_is_refused(when: str) -> None:
    refusal = refused(when)
    assert refusal is not None
    assert refusal.field == "when"
    assert len(refusal.rule) < 400


SENSIBLE = [
    "job.labels.exists(k, k + ':' + job.labels[k] == 'team:film')",
    "job.labels.exists(k, target.labels.exists(l, k == l && job.labels[k] == target.labels[l]))",
    "job.command.filter(x, x.startsWith('--')).map(x, x + '=').exists(x, x == '--gpu=')",
    "target.name.matches('gpu-[0-9]+') && !job.name.matches('^test-.*')",
    "job.labels.all(k, k.matches('[a-z.]+/?[a-z]*'))",
    "job.env == job.env",
]


@pytest.mark.parametrize("when", SENSIBLE)
def test_loops_and_sums_of_a_usual_size_are_accepted(when: str) -> None:
    assert refused(when) is None


def test_a_loop_does_not_begin_on_facts_with_which_it_would_take_long() -> None:
    many = tuple(f"argument-{number:060}" for number in range(900))
    assert outcome("job.command.all(x, x != 'y')", job__command=many) is True
    found = outcome("job.command.all(x, job.command == job.command)", job__command=many)
    assert isinstance(found, Failure)
    assert "too long" in found.message


def test_a_rule_about_priority_must_be_simple() -> None:
    when = "job.labels.exists(k, order.labels.exists(l, k == l))"
    compiled(when, forbid=True)
    with pytest.raises(Invalid, match="steps"):
        compiled(when, priority=10)

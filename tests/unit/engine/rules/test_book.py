"""The book of rules: each effect, what fails, and what is kept without going stale."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.engine.rules.book import Book
from controlplane.engine.rules.compile import compile_rule
from controlplane.engine.rules.facts import NO_FACTS, Facts, TargetFacts
from controlplane.engine.rules.landscape import MOST_RULINGS, Landscape
from controlplane.engine.rules.ruling import Limit, RuleError, Ruling
from controlplane.engine.rules.schema import Path, read, read_now
from controlplane.model.job import Job
from controlplane.model.order import Order
from controlplane.model.rule import Effect, Rule
from tests.builders import an_order

NIGHT = datetime(2026, 1, 3, 23, 30, 15, tzinfo=UTC)  # a Saturday
DAY = datetime(2026, 1, 5, 12, 0, 0, tzinfo=UTC)


def a_rule(when: str, *, name: str = "r", **effect: Any) -> Rule:
    return Rule(name=name, when=when, then=Effect(**effect))


def a_job(**labels: str) -> Job:
    return Job(name="render", labels=labels, requests={"cpu": 2})


def order_of(owner: str = "ann", **fields: Any) -> Order:
    return msgspec.structs.replace(an_order().build(), owner=owner, **fields)


EU = TargetFacts(name="eu-1", region="eu", driver="process", labels={"gpu": "yes"}, capacity={"cpu": 64})
US = TargetFacts(name="us-1", region="us", driver="process", labels={"gpu": "no"}, capacity={"cpu": 8})
BARE = TargetFacts(name="bare", region="us", driver="kubernetes")
TARGETS = (EU, US, BARE)
FILM = a_job(team="film")
SOUND = a_job(team="sound")


def ruled(book: Book, job: Job = FILM, now: datetime = DAY, targets: tuple[TargetFacts, ...] = TARGETS) -> Ruling:
    return book.rule(book.facts(order_of(), job), targets, now)


def marks(mask: np.ndarray[Any, Any]) -> list[bool]:
    return [bool(mark) for mark in mask]


def test_forbid_refuses_the_targets_where_all_of_it_holds() -> None:
    book = Book.of([a_rule("job.labels.team == 'film' && target.region == 'us'", forbid=True)])
    assert {name: marks(mask) for name, mask in ruled(book).forbidden.items()} == {"r": [False, True, True]}
    assert not ruled(book, SOUND).forbidden


def test_a_rule_that_does_not_speak_of_target_forbids_everywhere_or_nowhere() -> None:
    book = Book.of([a_rule("job.labels.team == 'film' && now.hour >= 22", forbid=True)])
    assert marks(ruled(book, now=NIGHT).forbidden["r"]) == [True, True, True]
    assert not ruled(book, now=DAY).forbidden


def test_require_binds_those_it_speaks_of_and_leaves_the_others_alone() -> None:
    book = Book.of([a_rule("job.labels.team == 'film' && target.labels.gpu == 'yes'", require=True)])
    assert {name: marks(mask) for name, mask in ruled(book).required.items()} == {"r": [True, False, False]}
    assert not ruled(book, SOUND).required
    everyone = Book.of([a_rule("target.driver == 'process'", require=True)])
    assert marks(ruled(everyone, SOUND).required["r"]) == [True, True, False]


def test_a_requirement_may_compare_the_target_with_the_job() -> None:
    book = Book.of([a_rule("target.name.startsWith(job.labels.home)", require=True)])
    assert marks(ruled(book, a_job(home="eu")).required["r"]) == [True, False, False]
    assert marks(ruled(book, a_job(home="b")).required["r"]) == [False, False, True]


def test_preferences_add_up() -> None:
    rules = [
        a_rule("target.region == 'us'", name="a", prefer=30),
        a_rule("target.capacity.cpu >= 8", name="b", prefer=-50),
        a_rule("job.labels.team == 'sound'", name="c", prefer=100),
    ]
    assert ruled(Book.of(rules)).prefer.tolist() == pytest.approx([-0.5, -0.2, 0.3])
    assert ruled(Book.of(rules), SOUND).prefer.tolist() == pytest.approx([0.5, 0.8, 1.3])


def test_priorities_add_up_and_stay_between_1_and_100() -> None:
    book = Book.of(
        [
            a_rule("job.labels.team == 'film'", name="a", priority=30),
            a_rule("order.owner == 'ann'", name="b", priority=-10),
            a_rule("now.weekday >= 5", name="c", priority=-99),
        ]
    )
    facts = book.facts(order_of(), FILM)
    assert ruled(book).priority == 20
    assert [book.priority_of(facts, base, DAY) for base in (1, 50, 90)] == [21, 70, 100]
    assert book.priority_of(facts, 50, NIGHT) == 1
    assert book.priority_of(book.facts(order_of("bob"), SOUND), 50, DAY) == 50


def test_a_limit_says_where_it_holds() -> None:
    book = Book.of(
        [
            a_rule("job.labels.team == 'film'", name="films", limit=5),
            a_rule("target.region == 'us'", name="overseas", limit=0),
            a_rule("job.labels.team == 'sound'", name="sounds", limit=1),
        ]
    )
    found = [(limit.name, limit.most, marks(limit.mask)) for limit in ruled(book).limits]
    assert found == [("films", 5, [True, True, True]), ("overseas", 0, [False, True, True])]
    assert isinstance(ruled(book).limits[0], Limit)


def test_an_absent_label_does_not_match_and_is_reported_once() -> None:
    book = Book.of(
        [
            a_rule("job.labels.crew == 'a'", name="a", forbid=True),
            a_rule("target.labels.gpu == 'yes'", name="b", require=True),
            a_rule("job.labels.crew == 'a'", name="c", priority=5),
            a_rule("job.labels.crew == 'a' && target.region == 'us'", name="d", require=True),
        ]
    )
    ruling = ruled(book)
    assert not ruling.forbidden
    assert {name: marks(mask) for name, mask in ruling.required.items()} == {"b": [True, False, False]}
    assert ruling.priority == 0
    assert [(error.rule, error.target) for error in ruling.errors] == [
        ("a", None), ("b", "bare"), ("c", None), ("d", None),
    ]  # fmt: skip
    assert "crew" in ruling.errors[0].message
    assert str(RuleError("a", "here", "why")) == "rule a failed on here and counts as not matching: why"


def test_a_false_condition_hides_the_failure_of_another_whatever_their_order() -> None:
    for when in (
        "job.labels.crew == 'a' && target.region == 'mars'",
        "target.region == 'mars' && job.labels.crew == 'a'",
    ):
        assert not ruled(Book.of([a_rule(when, forbid=True)])).errors
    asked = "has(target.labels.gpu) && target.labels.gpu == 'yes'"
    ruling = ruled(Book.of([a_rule(asked, forbid=True), a_rule("'gpu' in target.labels", name="s", forbid=True)]))
    assert not ruling.errors
    assert marks(ruling.forbidden["r"]) == [True, False, False]
    assert marks(ruling.forbidden["s"]) == [True, True, False]


def test_a_rule_that_does_not_compile_is_left_out_and_named() -> None:
    book = Book.of([a_rule("job.labels.team == 'film'", name="b", priority=5), a_rule("job.", name="a", forbid=True)])
    assert list(book.broken) == ["a"]
    assert "line 1, column 5" in book.broken["a"]
    assert ruled(book).priority == 5


def test_stored_rules_that_would_take_everything_are_left_out_and_the_others_hold() -> None:
    nested = "true"
    for level in range(25):
        nested = f"[1].all(x{level}, {nested})"
    doubling = "size(['aaaaaaaa']" + ".map(x, x + x)" * 27 + "[0]) > 0"
    book = Book.of(
        [
            a_rule(nested, name="deep", forbid=True),
            a_rule(doubling, name="doubling", forbid=True),
            a_rule("job.labels.team == 'film'", name="fine", priority=5),
        ]
    )
    assert sorted(book.broken) == ["deep", "doubling"]
    assert ruled(book).priority == 5


def test_many_slow_rules_together_are_left_out_from_where_they_take_too_long() -> None:
    slow = "job.labels.exists(k, target.labels.exists(l, k == l && job.labels[k] == target.labels[l]))"
    rules = [a_rule(slow, name=f"rule-{number:03}", prefer=1) for number in range(100)]
    book = Book.of([*rules, a_rule("job.labels.team == 'film'", name="z", priority=5)])
    assert 0 < len(book.rules) - 1 < 100
    assert "rule-099" in book.broken
    assert "rule-000" not in book.broken
    assert "z" not in book.broken
    assert book.weight > Book.of([rules[0]]).weight > 1


def test_facts_hold_only_what_rules_read() -> None:
    book = Book.of([a_rule("job.labels.team == 'film' && target.name == 'x' && order.owner != 'eve'", forbid=True)])
    assert book.fields == {"job.labels.team", "order.owner"}
    assert book.facts(order_of(), a_job(team="film", run="1")) == book.facts(order_of(), a_job(team="film", run="2"))
    assert book.facts(order_of("bob"), FILM) != book.facts(order_of("ann"), FILM)
    assert len({book.facts(order_of(), job) for job in (FILM, SOUND, a_job(team="film"), a_job())}) == 3


def test_without_rules_there_is_one_fact_and_silence() -> None:
    book = Book.of([])
    assert book.facts(order_of(), FILM) is NO_FACTS
    ruling = ruled(book)
    assert (len(ruling.forbidden), len(ruling.required), ruling.priority, ruling.limits) == (0, 0, 0, ())
    assert ruling.prefer.tolist() == [0, 0, 0]
    assert book.priority_of(NO_FACTS, 50, DAY) == 50


def test_an_unchanged_world_is_answered_from_memory() -> None:
    book = Book.of([a_rule("now.hour >= 22 && target.region == job.labels.team", forbid=True)])
    first = ruled(book, now=NIGHT)
    assert ruled(book, now=NIGHT) is first
    assert ruled(book, now=NIGHT + timedelta(minutes=20)) is first
    same = tuple(TargetFacts(t.name, t.region, t.driver, dict(t.labels), dict(t.capacity)) for t in TARGETS)
    assert ruled(book, a_job(team="film", run="7"), NIGHT, same) is first


def test_a_changed_label_of_a_target_changes_the_ruling() -> None:
    book = Book.of([a_rule("target.labels.gpu == 'yes' || target.capacity.cpu == 8", forbid=True)])
    assert marks(ruled(book).forbidden["r"]) == [True, True, False]
    changed = TargetFacts(EU.name, EU.region, EU.driver, {"gpu": "no"}, EU.capacity)
    shrunk = TargetFacts(US.name, US.region, US.driver, US.labels, {"cpu": 4})
    assert marks(ruled(book, targets=(changed, US, BARE)).forbidden["r"]) == [False, True, False]
    assert not ruled(book, targets=(changed, shrunk, BARE)).forbidden
    assert marks(ruled(book, targets=(BARE, EU)).forbidden["r"]) == [False, True]
    assert marks(ruled(book).forbidden["r"]) == [True, True, False]


def test_the_ruling_follows_the_minute() -> None:
    book = Book.of([a_rule("now.hour == 23 && now.minute >= 31", forbid=True), a_rule("now.day == 4", priority=7)])
    assert not ruled(book, now=NIGHT).forbidden
    assert ruled(book, now=NIGHT + timedelta(minutes=1)).forbidden
    assert not ruled(book, now=NIGHT).forbidden
    facts = book.facts(order_of(), FILM)
    assert book.priority_of(facts, 50, NIGHT) == 50
    assert book.priority_of(facts, 50, NIGHT + timedelta(hours=1)) == 57


def test_the_time_is_that_of_utc() -> None:
    book = Book.of([a_rule("now.hour == 23 && now.weekday == 5 && now.year == 2026 && now.month == 1", forbid=True)])
    assert ruled(book, now=NIGHT).forbidden
    assert ruled(book, now=NIGHT.astimezone(timezone(timedelta(hours=9)))).forbidden
    assert not ruled(book, now=NIGHT.replace(tzinfo=timezone(timedelta(hours=9)))).forbidden


def test_a_ruling_cannot_be_written() -> None:
    ruling = ruled(Book.of([a_rule("target.region == 'us'", forbid=True)]))
    with pytest.raises(ValueError, match="read-only"):
        ruling.forbidden["r"][0] = True
    with pytest.raises(ValueError, match="read-only"):
        ruling.prefer[0] = 1


def test_what_is_kept_of_one_row_of_targets_is_bounded() -> None:
    land = Landscape(TARGETS)
    silent = Ruling(forbidden={}, required={}, prefer=np.zeros(3))
    for number in range(MOST_RULINGS + 10):
        assert land.keep((Facts((number,)), ()), silent) is silent
    assert 0 < len(land.rulings) <= MOST_RULINGS
    assert land.rulings[Facts((MOST_RULINGS + 9,)), ()] is silent


PARTS = st.sampled_from(
    [
        "job.labels.team == 'film'", "has(job.labels.crew)", "job.labels.crew == 'a'", "order.owner in ['ann', 'bob']",
        "target.region == 'eu'", "target.labels.gpu == 'yes'", "'gpu' in target.labels", "target.capacity.cpu >= 8",
        "now.hour >= 22", "now.weekday == 5 || target.name == 'us-1'", "job.requests.cpu < target.capacity.cpu",
        "target.labels.exists(key, key == job.labels.team)", "!(job.labels.team == 'film' && target.region == 'us')",
        "order.priority / (now.hour - 12) > 0", "true", "false",
    ]
)  # fmt: skip


def whole(when: str, order: Order, job: Job, target: TargetFacts, now: datetime) -> bool:
    """The same expression in one piece: `||` with itself keeps it from being split."""
    (part,) = compile_rule(a_rule(f"({when}) || ({when})", forbid=True)).conjuncts
    sources: dict[str, object] = {"job": job, "order": order, "target": target}

    def value(path: Path) -> Any:
        return read_now(path, now) if path[0] == "now" else read(path, sources[path[0]])

    return part.holds({path: value(path) for path in part.paths}) is True


@settings(deadline=None, max_examples=60)
@given(
    parts=st.lists(PARTS, min_size=1, max_size=5),
    jobs=st.lists(st.sampled_from([FILM, SOUND, a_job(), a_job(team="gpu", crew="a")]), min_size=1, max_size=4),
    now=st.sampled_from([NIGHT, DAY]),
)
def test_asking_part_by_part_gives_what_the_whole_expression_gives(
    parts: list[str], jobs: list[Job], now: datetime
) -> None:
    when = " && ".join(f"({part})" for part in parts)
    book = Book.of([a_rule(when, forbid=True)])
    order = order_of()
    for job in jobs:
        mask = book.rule(book.facts(order, job), TARGETS, now).forbidden.get("r", np.zeros(3, dtype=bool))
        assert marks(mask) == [whole(when, order, job, target, now) for target in TARGETS]


@settings(deadline=None, max_examples=20)
@given(st.permutations([a_rule(f"target.capacity.cpu > {n}", name=f"r{n}", prefer=n + 0.1) for n in range(6)]))
def test_the_same_rules_in_any_order_give_the_same_ruling(rules: list[Rule]) -> None:
    ruling = ruled(Book.of(rules))
    again = ruled(Book.of(sorted(rules, key=lambda rule: rule.name)))
    assert ruling.prefer.tobytes() == again.prefer.tobytes()
    assert ruling.errors == again.errors


class Raising:
    """A condition of a rule that raises what no evaluation is known to raise."""

    def __getattr__(self, name: str) -> object:
        raise OverflowError("what nobody foresaw")


def test_a_rule_that_raises_counts_as_not_matching_and_the_other_rules_count() -> None:
    rules = [a_rule('target.region == "eu"', name="away", forbid=True), a_rule("true", name="odd", forbid=True)]
    found = Book.of(rules)
    odd = next(rule for rule in found.rules if rule.name == "odd")
    object.__setattr__(odd, "conjuncts", (Raising(),))
    ruling = ruled(found)
    assert [error.rule for error in ruling.errors] == ["odd"]
    assert list(ruling.forbidden) == ["away"]


def test_a_rule_about_priority_that_raises_changes_no_priority() -> None:
    found = Book.of([a_rule("true", name="more", priority=10), a_rule("true", name="odd", priority=20)])
    odd = next(rule for rule in found.rules if rule.name == "odd")
    object.__setattr__(odd, "conjuncts", (Raising(),))
    assert found.priority_of(found.facts(order_of(), FILM), 50, DAY) == 60

"""How many orders are let in while the leader is behind, decided on what cycles and revisions tell."""

from __future__ import annotations

from controlplane.apiserver.commands.pressure import (
    BACKLOG_ORDERS,
    LEAST_RATE,
    LOWER,
    RAISE,
    RELIEF_SECONDS,
    STEP_SECONDS,
    LeaderLag,
    Pressure,
)

MANY = BACKLOG_ORDERS
LATE, PROMPT = 3.0, 0.1


def test_a_decision_is_as_old_as_the_first_change_that_it_does_not_contain() -> None:
    lag = LeaderLag()
    for second in range(10):
        lag.hear(100 + second, float(second))
    assert lag.of(103, 10.0) == 6.0
    assert lag.of(108, 10.0) == 1.0
    assert lag.of(109, 10.0) == 0.0
    assert lag.of(500, 10.0) == 0.0


def test_revisions_are_not_remembered_for_ever() -> None:
    lag = LeaderLag()
    for second in range(1000):
        lag.hear(second, float(second))
    assert lag.of(0, 1000.0) <= 61.0


def pressed(rate: int = 1000) -> Pressure:
    pressure = Pressure()
    pressure.count(rate, 10.5)
    pressure.decided(LATE, MANY, 11.0)
    return pressure


def test_nothing_is_limited_while_decisions_are_prompt_or_few_orders_wait() -> None:
    pressure = Pressure()
    pressure.count(1000, 10.5)
    pressure.decided(PROMPT, MANY, 11.0)
    assert pressure.look(MANY, 11.0) is None
    pressure.decided(LATE, MANY - 1, 12.0)
    assert pressure.look(MANY - 1, 12.0) is None


def test_a_late_decision_lowers_the_rate_below_what_was_let_in() -> None:
    assert pressed().look(MANY, 11.0) == LOWER * 1000


def test_each_further_late_decision_lowers_it_once_a_step_down_to_the_least_rate() -> None:
    pressure = pressed()
    pressure.decided(LATE, MANY, 11.0 + STEP_SECONDS / 2)
    assert pressure.look(MANY, 11.2) == LOWER * 1000
    for step in range(1, 100):
        pressure.decided(LATE, MANY, 11.0 + step * STEP_SECONDS)
    assert pressure.look(MANY, 36.0) == LEAST_RATE


def test_prompt_decisions_raise_it_again() -> None:
    pressure = pressed()
    pressure.decided(PROMPT, MANY, 12.0)
    assert pressure.look(MANY, 12.0) == LOWER * 1000 * RAISE


def test_the_limit_ends_with_the_backlog_and_with_the_last_sign_of_the_leader() -> None:
    assert pressed().look(MANY - 1, 11.1) is None
    assert pressed().look(MANY, 11.1 + RELIEF_SECONDS) is None

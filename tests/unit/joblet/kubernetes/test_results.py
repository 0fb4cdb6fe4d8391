"""What a task says of itself in its termination message and its annotations."""

from __future__ import annotations

import pytest

from controlplane.joblet.drivers.kubernetes.results import (
    MAX_ARTEFACTS,
    MAX_URL,
    TerminationReport,
    parse_termination,
    progress,
)


def test_lines_are_artefacts_percent_or_message() -> None:
    told = parse_termination("one\nhttps://a.example/x\n 50 \ns3://bucket/y\nhttps://a.example/x\n75%\ntwo\n")
    assert told == TerminationReport("one\ntwo", ("https://a.example/x", "s3://bucket/y"), 75)


@pytest.mark.parametrize("line", ["not a url", "https:// a", "://x", "/etc/passwd", "http:/x"])
def test_what_is_no_url_is_no_artefact(line: str) -> None:
    assert parse_termination(line).artefacts == ()


def test_artefacts_are_bounded_in_length_and_number() -> None:
    assert parse_termination(f"https://a.example/{'x' * MAX_URL}") == TerminationReport()
    many = parse_termination("\n".join(f"https://a.example/{number}" for number in range(2 * MAX_ARTEFACTS)))
    assert len(many.artefacts) == MAX_ARTEFACTS


def test_of_a_long_message_the_end_is_kept() -> None:
    assert parse_termination("x" * 5000 + "\nthe last words").message.endswith("the last words")
    assert len(parse_termination("x" * 5000).message) == 200


@pytest.mark.parametrize(
    ("text", "percent"),
    [
        ("0", 0),
        ("40", 40),
        ("99.9", 99),
        ("100%", 100),
        ("250", 100),
        ("-3", 0),
        ("nan", None),
        ("much", None),
        ("", None),
    ],
)
def test_percent_is_between_0_and_100_or_unknown(text: str, percent: int | None) -> None:
    assert progress({"controlplane/progress": text}, "task-0", alone=True) == percent


def test_of_several_containers_each_has_its_own() -> None:
    annotations = {"controlplane/progress": "10", "controlplane/progress.task-1": "60"}
    assert progress(annotations, "task-0", alone=False) is None
    assert progress(annotations, "task-1", alone=False) == 60
    assert progress(annotations, "task-1", alone=True) == 60

"""The times of an election are refused when they cannot work together, by the name of the field."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.election import message
from controlplane.election.election_settings import ElectionSettings
from controlplane.model.errors import Invalid


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("ttl_seconds", {"ttl_seconds": 1}),
        ("ttl_seconds", {"ttl_seconds": 2.5}),
        ("ttl_seconds", {"ttl_seconds": float("nan")}),
        ("ttl_seconds", {"ttl_seconds": True}),
        ("loop_silence_seconds", {"loop_silence_seconds": 6}),
        ("loop_silence_seconds", {"loop_silence_seconds": 0}),
        ("pulse_silence_seconds", {"pulse_silence_seconds": 4.9}),
        ("pulse_silence_seconds", {"pulse_silence_seconds": float("inf")}),
        ("pulse_beat_seconds", {"pulse_beat_seconds": 1.0}),
        ("pulse_beat_seconds", {"pulse_beat_seconds": -1.0}),
        ("tick_seconds", {"tick_seconds": 0.6}),
        ("tick_seconds", {"tick_seconds": 0.2, "pulse_answer_seconds": 0.1}),
        ("pulse_port", {"pulse_port": 70000}),
        ("pulse_port", {"pulse_port": -1}),
    ],
)
def test_times_that_cannot_work_are_refused_by_name(field: str, values: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        ElectionSettings(**values)
    assert refused.value.field == field


def test_the_defaults_are_what_the_design_says() -> None:
    settings = ElectionSettings()
    assert settings.ttl_seconds == 5
    assert settings.renew_seconds == pytest.approx(5 / 3)
    assert settings.pulse_off_seconds == 15
    assert settings.ticks(settings.loop_silence_seconds) == 20


@pytest.mark.parametrize("line", [b"", b"{}", b"\xff\xfe", b"[]", b'{"hello":1}', b'{"hello":"a","more":1}', b"GET /"])
def test_what_is_no_hello_is_not_read_as_one(line: bytes) -> None:
    assert message.read_hello(line) is None


@pytest.mark.parametrize("line", [b"", b"{}", b"\xff\xfe", b'{"incarnation":"a","epoch":"1","ended":0}'])
def test_what_is_no_pulse_is_not_read_as_one(line: bytes) -> None:
    assert message.read_pulse(line) is None


def test_messages_are_read_as_they_were_written() -> None:
    pulse = message.Pulse(incarnation="a", epoch=3, ended=1)
    assert message.read_pulse(message.write(pulse).rstrip(b"\n")) == pulse
    hello = message.Hello(hello="b")
    assert message.read_hello(message.write(hello).rstrip(b"\n")) == hello
    assert len(message.write(pulse)) < message.LONGEST

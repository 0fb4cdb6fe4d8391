"""The text of a token: any typing error is noticed before anything is looked up."""

from __future__ import annotations

import string

from controlplane.model.access import (
    PREFIX,
    SECRET_BYTES,
    Binding,
    Grant,
    Role,
    Token,
    looks_like_token,
    token_digest,
    token_text,
)

SECRETS = (bytes(SECRET_BYTES), b"\xff" * SECRET_BYTES, bytes(range(SECRET_BYTES)))
CHARACTERS = string.ascii_letters + string.digits + "-_=.+/ \n\x00é"


def test_every_secret_gives_a_text_that_looks_like_a_token() -> None:
    for secret in SECRETS:
        text = token_text(secret)
        assert text.startswith(PREFIX)
        assert looks_like_token(text)
    assert len({token_digest(token_text(secret)) for secret in SECRETS}) == len(SECRETS)


def test_every_change_of_a_single_character_is_refused() -> None:
    for secret in SECRETS:
        text = token_text(secret)
        for position, old in enumerate(text):
            for new in CHARACTERS:
                if new != old:
                    assert not looks_like_token(text[:position] + new + text[position + 1 :]), (position, new)


def test_a_text_that_is_cut_or_longer_is_refused() -> None:
    text = token_text(SECRETS[2])
    assert not any(looks_like_token(text[:length]) for length in range(len(text)))
    assert not any(looks_like_token(text[start:]) for start in range(1, len(text)))
    assert not any(looks_like_token(longer) for longer in (f"{text} ", f" {text}", text + text, f"{text}0"))


def test_two_neighbours_that_changed_places_are_refused() -> None:
    text = token_text(SECRETS[2])
    for at in range(len(text) - 1):
        swapped = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
        assert swapped == text or not looks_like_token(swapped)


def test_the_owner_of_a_token_bounds_submitters_and_viewers_only() -> None:
    roles = ("admin", "operator", "submitter", "viewer", "joblet", "of-a-later-version")
    token = Token(id="t", subject="ada", roles=roles, owner="team", digest="")
    assert token.grants() == (
        Grant(Role.ADMIN),
        Grant(Role.OPERATOR),
        Grant(Role.SUBMITTER, "team"),
        Grant(Role.VIEWER, "team"),
        Grant(Role.JOBLET),
    )


def test_a_binding_concerns_its_subject_or_the_members_of_its_group() -> None:
    of_subject, of_group = Binding(name="b", role="viewer", subject="ada"), Binding(name="b", role="viewer", group="g")
    assert of_subject.concerns("ada", ())
    assert not of_subject.concerns("bob", ("ada",))
    assert of_group.concerns("bob", ("f", "g"))
    assert not of_group.concerns("g", ())
    assert not Binding(name="b", role="viewer").concerns("", ("",))
    assert Binding(name="b", role="of-a-later-version", subject="ada").grant() is None

"""Sealing: what opens, what does not, and which files of keys are taken."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from controlplane.aio.clock import chance
from controlplane.model.errors import Invalid, Refused
from controlplane.model.secret import Content, Sealed, Secret, SecretWish
from controlplane.sealing import NO_KEYS, Key, Keyring, make_key_file, read_keys
from controlplane.store import codec

CONTENT = Content(data={"kubeconfig": "very secret text"}, seed="00")
OLD, NEW = Key(b"1" * 32), Key(b"2" * 32)


def a_keyring(*keys: Key) -> Keyring:
    return Keyring(keys or (OLD,), chance)


def test_what_was_sealed_opens_again_and_shows_nothing_when_stored() -> None:
    sealed = a_keyring().seal(Secret(name="a"), CONTENT)
    stored = codec.encode(sealed)
    assert a_keyring().open(codec.decode(stored, Secret)) == CONTENT
    assert b"very secret" not in stored
    assert base64.b64encode(b"very secret")[:12] not in stored
    assert sealed.size == len("very secret text")


def test_the_same_content_is_sealed_differently_with_the_same_digest() -> None:
    one, other = (a_keyring().seal(Secret(name="a"), CONTENT) for _ in range(2))
    assert one.digest == other.digest
    assert one.sealed != other.sealed


def test_a_digest_tells_nothing_without_the_key() -> None:
    digests = {a_keyring(key).seal(Secret(name=name), CONTENT).digest for key in (OLD, NEW) for name in ("a", "b")}
    assert len(digests) == 4


def test_it_opens_under_its_own_name_and_type_only() -> None:
    sealed = a_keyring().seal(Secret(name="a"), CONTENT)
    for other in (replace(sealed, name="b"), replace(sealed, type="opaque")):
        with pytest.raises(Refused, match="does not open"):
            a_keyring().open(other)


@pytest.mark.parametrize("part", ["nonce", "text"])
@pytest.mark.parametrize("value", ["", "!", "AAAA", base64.b64encode(bytes(40)).decode()])
def test_what_was_tampered_with_does_not_open(part: str, value: str) -> None:
    sealed = a_keyring().seal(Secret(name="a"), CONTENT)
    assert sealed.sealed is not None
    with pytest.raises(Refused, match="does not open"):
        a_keyring().open(replace(sealed, sealed=replace(sealed.sealed, **{part: value})))


def test_every_key_opens_and_the_first_one_seals() -> None:
    sealed = a_keyring(OLD).seal(Secret(name="a"), CONTENT)
    both = a_keyring(NEW, OLD)
    assert both.open(sealed) == CONTENT
    assert not both.is_current(sealed)
    assert both.is_current(both.seal(sealed, CONTENT))
    with pytest.raises(Refused, match=f"sealed with key {OLD.id}, which this replica does not have"):
        a_keyring(NEW).open(sealed)


def test_without_a_key_nothing_is_sealed_or_opened() -> None:
    sealed = a_keyring().seal(Secret(name="a"), CONTENT)
    for use in (lambda: NO_KEYS.seal(Secret(name="a"), CONTENT), lambda: NO_KEYS.open(sealed)):
        with pytest.raises(Refused, match="--secret-key-file"):
            use()


def test_a_secret_that_holds_nothing_does_not_open() -> None:
    with pytest.raises(Refused, match="holds nothing"):
        a_keyring().open(Secret(name="a"))


def test_a_wish_does_not_show_what_it_holds() -> None:
    wish = SecretWish(name="a", data={"kubeconfig": "very secret text"})
    assert "very secret" not in f"{wish} {wish!r}"
    assert not hasattr(Secret(name="a", sealed=Sealed(key="k", nonce="n", text="t")), "data")


def test_a_new_file_has_one_key_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    make_key_file(path, chance)
    assert path.stat().st_mode & 0o777 == 0o600
    made = path.read_text()
    make_key_file(path, chance)
    assert path.read_text() == made
    keyring = read_keys(str(path), chance)
    assert len(keyring.ids) == 1
    assert keyring.open(keyring.seal(Secret(name="a"), CONTENT)) == CONTENT
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret.key"]


def test_keys_are_changed_by_putting_one_in_front(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    lines = ["# new", base64.b64encode(b"2" * 32).decode(), "", base64.b64encode(b"1" * 32).decode()]
    path.write_text("\n".join(lines))
    path.chmod(0o400)
    assert read_keys(str(path), chance).ids == (NEW.id, OLD.id)


@pytest.mark.parametrize(
    ("text", "mode", "rule"),
    [
        ("", 0o600, "holds no key"),
        ("# nothing\n", 0o600, "holds no key"),
        ("c2hvcnQ=\n", 0o600, "line 1 must be 32 bytes"),
        (f"# fine\n{base64.b64encode(bytes(31)).decode()}\n", 0o600, "line 2 must be 32 bytes"),
        ("no base64, but quite private\n", 0o600, "line 1 must be 32 bytes"),
        (f"{base64.b64encode(bytes(32)).decode()}\n", 0o640, "must not be open to others"),
    ],
)
def test_a_file_that_is_no_file_of_keys_is_refused_without_showing_it(
    tmp_path: Path, text: str, mode: int, rule: str
) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    os.chmod(path, mode)
    with pytest.raises(Invalid, match=rule) as refused:
        read_keys(str(path), chance)
    assert refused.value.field == "secret_key_file"
    assert "private" not in str(refused.value)


def test_a_missing_file_is_refused_and_no_file_is_no_key(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        read_keys(str(tmp_path / "missing"), chance)
    assert read_keys("", chance).ids == ()

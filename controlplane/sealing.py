"""Sealing: the stored content of a secret can be read and written only with a key of the replicas' key file.

The file holds a key per line, 32 bytes in base64; `#` begins a comment. The first key seals and all keys open, so keys
are changed by putting a new key first and applying the secrets again. The cipher is AES-256-GCM; the name of a secret
is authenticated with the content, so that a sealed text opens under its own name only. Keys and contents never appear
in an error.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from controlplane.key_files import make_private, read_private
from controlplane.model.errors import Invalid, Refused
from controlplane.model.secret import Content, Sealed, Secret

KEY_BYTES = 32
_NONCE_BYTES = 12
_HEADER = "# Keys that seal secrets: the first one seals, all of them open. Whoever has this file can read them.\n"
_FIELD = "secret_key_file"


class Key:
    """A line of the key file. Sealing, digests and the key's name each use a separate derived key."""

    __slots__ = ("_cipher", "_digesting", "id")

    def __init__(self, raw: bytes) -> None:
        self._cipher = AESGCM(_derived(raw, b"seal"))
        self._digesting = _derived(raw, b"digest")
        self.id = _derived(raw, b"name").hex()[:16]

    def seal(self, clear: bytes, about: bytes, nonce: bytes) -> bytes:
        return self._cipher.encrypt(nonce, clear, about)

    def open(self, sealed: bytes, about: bytes, nonce: bytes) -> bytes:
        return self._cipher.decrypt(nonce, sealed, about)

    def digest(self, clear: bytes, about: bytes) -> str:
        return hmac.digest(self._digesting, about + b"\0" + clear, "sha256").hex()


class Keyring:
    """The keys of a replica, the sealing key first; without keys no secret can be sealed or opened."""

    def __init__(self, keys: tuple[Key, ...], chance: Callable[[int], bytes]) -> None:
        self._keys = keys
        self._chance = chance

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(key.id for key in self._keys)

    def check(self) -> None:
        """Refused when this replica has no key."""
        if not self._keys:
            raise Refused("this replica has no key for secrets: start it with --secret-key-file")

    def make_seed(self) -> str:
        return self._chance(KEY_BYTES).hex()

    def seal(self, secret: Secret, content: Content) -> Secret:
        """The secret with the content, sealed with the first key."""
        self.check()
        key, about, nonce = self._keys[0], about_of(secret), self._chance(_NONCE_BYTES)
        text = key.seal(msgspec.json.encode(content), about, nonce)
        return msgspec.structs.replace(
            secret,
            size=sum(len(value.encode()) for value in content.data.values()),
            digest=key.digest(msgspec.json.encode(content.data, order="deterministic"), about),
            sealed=Sealed(key=key.id, nonce=_base64(nonce), text=_base64(text)),
        )

    def open(self, secret: Secret) -> Content:
        """The content; Refused when the replica lacks the key, or when the text was sealed under another name."""
        self.check()
        sealed = secret.sealed
        if sealed is None:
            raise Refused(f"secret {secret.name!r} holds nothing")
        key = next((key for key in self._keys if key.id == sealed.key), None)
        if key is None:
            raise Refused(f"secret {secret.name!r} is sealed with key {sealed.key}, which this replica does not have")
        try:
            nonce, text = (base64.b64decode(part, validate=True) for part in (sealed.nonce, sealed.text))
            return msgspec.json.decode(key.open(text, about_of(secret), nonce), type=Content)
        except (InvalidTag, ValueError, msgspec.DecodeError):
            raise Refused(f"secret {secret.name!r} does not open: it is not what was sealed under this name") from None

    def is_current(self, secret: Secret) -> bool:
        """Whether the secret is sealed with the current sealing key."""
        return bool(self._keys) and secret.sealed is not None and secret.sealed.key == self._keys[0].id


# A keyring for callers without secrets; chance is not asked without a key.
NO_KEYS = Keyring((), bytes)


def about_of(secret: Secret) -> bytes:
    """The kind, name and type of a secret, which are authenticated with its sealed text."""
    return msgspec.json.encode(["Secret", secret.name, secret.type])


def read_keys(path: str, chance: Callable[[int], bytes]) -> Keyring:
    """The keys of the file, none without a path; Invalid unless it holds only keys and only its owner may read it."""
    if not path:
        return Keyring((), chance)
    try:
        lines = read_private(path, _FIELD).decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise Invalid(_FIELD, f"cannot be read from {path}: it is no text") from None
    keys = [_key(line, number) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    if not keys:
        raise Invalid(_FIELD, f"{path} holds no key")
    return Keyring(tuple(keys), chance)


def make_key_file(path: Path, chance: Callable[[int], bytes]) -> None:
    """Creates a file with a new key, unless the file exists; the file is complete or absent."""
    make_private(path, lambda: f"{_HEADER}{_base64(chance(KEY_BYTES))}\n".encode("ascii"))


def _key(line: str, number: int) -> Key:
    try:
        raw = base64.b64decode(line.strip(), validate=True)
    except binascii.Error:
        raw = b""
    if len(raw) != KEY_BYTES:
        raise Invalid(_FIELD, f"line {number} must be {KEY_BYTES} bytes in base64")
    return Key(raw)


def _derived(raw: bytes, purpose: bytes) -> bytes:
    return hmac.digest(raw, b"controlplane secret " + purpose, hashlib.sha256)


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()

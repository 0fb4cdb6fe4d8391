"""The cluster key: 32 random bytes that all replicas of a plane share, from which their credentials derive.

A replica proves itself to another replica, and gives credentials to the joblets that it starts, by a message
authentication code (MAC) under this key: nothing has to be stored. Each purpose uses a key of its own. A replica's
credential names the address it is sent to, so whoever receives it there cannot use it elsewhere.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

import msgspec

from controlplane import key_files
from controlplane.model.access import CLUSTER_KEY_PREFIX

PREFIX = CLUSTER_KEY_PREFIX
_MOST_CHARACTERS = 2048


class Claims(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Either a joblet for a target, with a driver ('' for any), or a replica that calls the replica at `audience`.

    `owner` owns the target when the joblet creates it.
    """

    target: str = ""
    driver: str = ""
    owner: str = ""
    audience: str = ""


class ClusterKey:
    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._signing = self.derived(b"credential")

    def derived(self, purpose: bytes) -> bytes:
        return hmac.digest(self._raw, b"controlplane cluster " + purpose, hashlib.sha256)

    def joblet_credential(self, target: str, driver: str, owner: str = "") -> str:
        return self._signed(Claims(target=target, driver=driver, owner=owner))

    def replica_credential(self, audience: str) -> str:
        """For calls to the replica that serves gRPC at this address, and to no other."""
        return self._signed(Claims(audience=audience))

    def read(self, text: str) -> Claims | None:
        """The claims of a credential made with this key; None for any other text."""
        if len(text) > _MOST_CHARACTERS or not text.isascii() or not text.startswith(PREFIX):
            return None
        body, _, mac = text.removeprefix(PREFIX).rpartition(".")
        if not hmac.compare_digest(mac, self._mac(body)):
            return None
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(body), type=Claims)
        except (binascii.Error, ValueError, msgspec.DecodeError):
            return None

    def _signed(self, claims: Claims) -> str:
        body = base64.urlsafe_b64encode(msgspec.json.encode(claims)).decode()
        return f"{PREFIX}{body}.{self._mac(body)}"

    def _mac(self, body: str) -> str:
        return hmac.digest(self._signing, body.encode(), hashlib.sha256).hex()


def read_cluster_key(path: str) -> ClusterKey | None:
    """The key of the file, None without a path; Invalid unless it holds a key and only its owner may read it."""
    return ClusterKey(key_files.read_cluster_key(path)) if path else None

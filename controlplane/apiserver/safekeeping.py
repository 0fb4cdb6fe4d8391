"""Where what a user sends as a secret becomes what is stored: the only place that holds both at once.

The same content again is no change, whatever it was sealed with; sealed with a key that does not seal any more, it is
sealed anew. What cannot be opened here can be replaced.
"""

from __future__ import annotations

from controlplane.apiserver.admission import named
from controlplane.apiserver.admission.named import Stamp
from controlplane.model.errors import Refused
from controlplane.model.secret import Content, Secret, SecretWish
from controlplane.sealing import Keyring


class Safe:
    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def create(self, wish: SecretWish, stamp: Stamp) -> Secret:
        """Refused, like all of this, when this replica has no key."""
        self._keyring.check()
        content = Content(data=wish.data, seed=self._keyring.make_seed())
        return self._keyring.seal(named.create(_without_data(wish), stamp), content)

    def update(self, wish: SecretWish, old: Secret, path: str = "") -> tuple[Secret, bool]:
        """The secret as it would be stored over the old one, and whether that changes anything."""
        self._keyring.check()
        new = named.update(_without_data(wish), old, path)
        try:
            content = self._keyring.open(old)
        except Refused:
            return self._keyring.seal(new, Content(data=wish.data, seed=self._keyring.make_seed())), True
        if content.data == wish.data and self._keyring.is_current(old) and new.type == old.type:
            kept = _with_seal_of(new, old)
            return kept, kept != old
        return self._keyring.seal(new, Content(data=wish.data, seed=content.seed)), True


def _without_data(wish: SecretWish) -> Secret:
    return Secret(
        name=wish.name, id=wish.id, labels=wish.labels, owner=wish.owner, creator=wish.creator, type=wish.type
    )


def _with_seal_of(new: Secret, old: Secret) -> Secret:
    return Secret(
        name=new.name,
        id=new.id,
        labels=new.labels,
        owner=new.owner,
        creator=new.creator,
        created=new.created,
        type=old.type,
        size=old.size,
        digest=old.digest,
        sealed=old.sealed,
    )

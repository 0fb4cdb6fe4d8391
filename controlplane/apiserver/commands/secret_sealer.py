"""SecretSealer: a secret as sent becomes a secret as stored. Only this module holds both at once.

The same content again is no change, whichever key sealed it; a content under a retired key is sealed again. A secret
which cannot be opened here can be replaced.
"""

from __future__ import annotations

from controlplane.apiserver.admission import named_admission
from controlplane.apiserver.admission.named_admission import CreationStamp
from controlplane.model.errors import Refused
from controlplane.model.secret import Content, Secret, SecretWish
from controlplane.sealing import Keyring


class SecretSealer:
    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def create(self, wish: SecretWish, stamp: CreationStamp) -> Secret:
        """Refused, like every method here, when this replica has no key."""
        self._keyring.check()
        content = Content(data=wish.data, seed=self._keyring.make_seed())
        return self._keyring.seal(named_admission.create(_without_data(wish), stamp), content)

    def update(self, wish: SecretWish, old: Secret, stamp: CreationStamp, path: str = "") -> tuple[Secret, bool]:
        """The secret as stored over the old secret, and whether the value changes."""
        self._keyring.check()
        new = named_admission.update(_without_data(wish), old, stamp, path)
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

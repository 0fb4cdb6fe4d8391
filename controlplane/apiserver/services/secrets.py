"""The Secrets service: data comes in and never goes out."""

from __future__ import annotations

from typing import Any

from controlplane.apiserver.guard import Context, answered
from controlplane.apiserver.services.named import NamedObjects
from controlplane.apiserver.views.named import SecretView
from controlplane.model.secret import Secret, SecretWish
from controlplane.wire import convert
from controlplane.wire.v1 import secrets_pb2


class Secrets(NamedObjects):
    kind = Secret
    message = secrets_pb2.Secret
    response = secrets_pb2.SecretResponse
    listed = secrets_pb2.ListSecretsResponse
    event = secrets_pb2.SecretEvent

    def make_view(self) -> SecretView:
        return SecretView()

    @answered
    async def Create(self, request: Any, _context: Context) -> Any:
        return self._stored(await self._objects.create(convert.to_model(request, SecretWish)))

    @answered
    async def Update(self, request: Any, _context: Context) -> Any:
        wish = convert.to_model(request, SecretWish)
        return self._stored(await self._objects.update(wish, request.revision))

"""The Access service: tokens, bindings, and what the caller is and may do."""

from __future__ import annotations

from controlplane.apiserver import authorisation
from controlplane.apiserver.admission import fields
from controlplane.apiserver.authorisation import Verb
from controlplane.apiserver.call import Call
from controlplane.apiserver.commands.access_commands import AccessCommands, StoredBinding, TokenWish
from controlplane.apiserver.commands.enrolment_commands import (
    Credential,
    EnrolmentCommands,
    EnrolmentWish,
    JobletWish,
)
from controlplane.apiserver.edge.methods import ApiMethod, unary
from controlplane.model import kinds
from controlplane.model.access import Binding, Token
from controlplane.model.errors import Invalid
from controlplane.model.target import Target
from controlplane.wire import convert
from controlplane.wire.v1 import access_pb2

_ASKED_VERBS = tuple(verb for verb in Verb if verb not in (Verb.ASK, Verb.OPEN, Verb.RELAY))
_ASKED_KINDS = (*(kind.word for kind in kinds.KINDS), "Cluster", "Token", "Binding", "Enrolment", "Totals")


class AccessMethods:
    def __init__(self, commands: AccessCommands, enrolments: EnrolmentCommands) -> None:
        self._commands = commands
        self._enrolments = enrolments

    def rows(self) -> dict[str, ApiMethod]:
        pb = access_pb2
        return {
            "CreateToken": unary(pb.CreateTokenRequest, pb.CreatedToken, self.create_token),
            "ListTokens": unary(pb.ListTokensRequest, pb.ListTokensResponse, self.list_tokens),
            "RevokeToken": unary(pb.RevokeTokenRequest, pb.RevokeTokenResponse, self.revoke_token),
            "CreateEnrolment": unary(pb.CreateEnrolmentRequest, pb.CreatedToken, self.create_enrolment),
            "Enrol": unary(pb.EnrolRequest, pb.Credential, self.enrol),
            "Renew": unary(pb.RenewRequest, pb.Credential, self.renew),
            "Grant": unary(pb.Binding, pb.BindingResponse, self.grant),
            "ListBindings": unary(pb.ListBindingsRequest, pb.ListBindingsResponse, self.list_bindings),
            "Ungrant": unary(pb.UngrantRequest, pb.UngrantResponse, self.ungrant),
            "WhoAmI": unary(pb.WhoAmIRequest, pb.WhoAmIResponse, self.who_am_i),
            "CanI": unary(pb.CanIRequest, pb.CanIResponse, self.can_i),
        }

    async def create_token(self, call: Call, request: access_pb2.CreateTokenRequest) -> access_pb2.CreatedToken:
        made = await self._commands.create_token(
            call,
            TokenWish(
                subject=request.subject,
                roles=tuple(request.roles),
                owner=request.owner,
                groups=tuple(request.groups),
                targets=tuple(request.targets),
                driver=request.driver,
                expires_seconds=request.expires_seconds,
            ),
        )
        return access_pb2.CreatedToken(revision=made.revision, item=_token(made.token), token=made.text)

    async def list_tokens(self, call: Call, _request: access_pb2.ListTokensRequest) -> access_pb2.ListTokensResponse:
        revision, tokens = await self._commands.list_tokens(call)
        return access_pb2.ListTokensResponse(revision=revision, items=map(_token, tokens))

    async def revoke_token(self, call: Call, request: access_pb2.RevokeTokenRequest) -> access_pb2.RevokeTokenResponse:
        return access_pb2.RevokeTokenResponse(revision=await self._commands.revoke_token(call, request.id))

    async def create_enrolment(self, call: Call, request: access_pb2.CreateEnrolmentRequest) -> access_pb2.CreatedToken:
        wish = EnrolmentWish(tuple(request.targets), request.driver, request.owner, request.expires_seconds)
        made = await self._enrolments.create(call, wish)
        return access_pb2.CreatedToken(revision=made.revision, item=_token(made.token), token=made.text)

    async def enrol(self, call: Call, request: access_pb2.EnrolRequest) -> access_pb2.Credential:
        template = convert.to_model(request.template, Target)
        wish = JobletWish(tuple(request.targets), request.driver, request.digest, request.id, template)
        return _credential(await self._enrolments.enrol(call, wish))

    async def renew(self, call: Call, request: access_pb2.RenewRequest) -> access_pb2.Credential:
        return _credential(await self._enrolments.renew(call, request.digest))

    async def grant(self, call: Call, request: access_pb2.Binding) -> access_pb2.BindingResponse:
        return _stored(await self._commands.grant(call, convert.to_model(request, Binding)))

    async def list_bindings(
        self, call: Call, _request: access_pb2.ListBindingsRequest
    ) -> access_pb2.ListBindingsResponse:
        revision, bindings = await self._commands.list_bindings(call)
        return access_pb2.ListBindingsResponse(revision=revision, items=map(_binding, bindings))

    async def ungrant(self, call: Call, request: access_pb2.UngrantRequest) -> access_pb2.UngrantResponse:
        return access_pb2.UngrantResponse(revision=await self._commands.ungrant(call, request.name))

    async def who_am_i(self, call: Call, _request: access_pb2.WhoAmIRequest) -> access_pb2.WhoAmIResponse:
        subject = call.subject
        return access_pb2.WhoAmIResponse(
            name=subject.name,
            groups=subject.groups,
            roles=subject.roles,
            targets=subject.targets,
            via=subject.via,
            expires=subject.expires,
            grants=[access_pb2.RoleGrant(role=grant.role, owner=grant.owner) for grant in subject.grants],
        )

    async def can_i(self, call: Call, request: access_pb2.CanIRequest) -> access_pb2.CanIResponse:
        fields.one_of(request.verb, _ASKED_VERBS, "verb")
        kind = _kind_of(request.kind)
        reason = authorisation.refusal(call.subject, Verb(request.verb), kind, request.owner or None)
        return access_pb2.CanIResponse(allowed=not reason, reason=reason)


def _kind_of(word: str) -> str:
    """The kind by its word, in any case, or by its plural."""
    for kind in kinds.KINDS:
        if word.lower() in (kind.word.lower(), kind.plural):
            return kind.word
    for other in _ASKED_KINDS:
        if word.lower() in (other.lower(), f"{other.lower()}s"):
            return other
    raise Invalid("kind", f"must be one of {', '.join(_ASKED_KINDS)}, not {word[:80]!r}")


def _token(token: Token) -> access_pb2.Token:
    return convert.to_wire(token, access_pb2.Token)


def _credential(credential: Credential) -> access_pb2.Credential:
    return access_pb2.Credential(
        revision=credential.revision,
        item=_token(credential.token),
        renew_after_seconds=credential.renew_after_seconds,
        former_seconds=credential.former_seconds,
    )


def _binding(binding: Binding) -> access_pb2.Binding:
    return convert.to_wire(binding, access_pb2.Binding)


def _stored(stored: StoredBinding) -> access_pb2.BindingResponse:
    return access_pb2.BindingResponse(revision=stored.revision, item=_binding(stored.binding))

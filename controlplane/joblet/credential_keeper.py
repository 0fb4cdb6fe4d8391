"""The credential of an enrolled joblet: enrolled once, kept in the joblet's folder, renewed while the joblet lives.

The keeper writes the next text to the folder before it asks a replica to take it over. So a crash or a lost answer at
any moment leaves the joblet with a text that etcd knows: the request is repeated with the same digest, and after that
every text of the folder is tried.

A token with which the joblet may enrol is used when the joblet starts, never later: a joblet whose credential was
revoked while it ran stays out until somebody starts it anew.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import structlog

from controlplane.aio.backoff import Retries, doubling
from controlplane.aio.clock import Clock
from controlplane.joblet.credential_file import CredentialFile
from controlplane.joblet.enrolment_calls import EnrolmentCalls
from controlplane.joblet.shown_credential import ShownCredential
from controlplane.model.access import SECRET_BYTES, token_digest, token_text
from controlplane.model.credential import StoredCredential, retry_bounds, seconds_until_renewal
from controlplane.model.errors import ControlPlaneError, Forbidden, IllegalTransition, Unauthenticated, Unavailable
from controlplane.wire.v1 import access_pb2, targets_pb2

_ENROL_AGAIN = doubling(0.1, 5.0, jitter=0.5)
_DENIED = doubling(5.0, 60.0, jitter=0.5)
# The clock is asked at least so often: it may be set, and the machine may sleep.
_LOOK_SECONDS = 600.0
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Enrolment:
    """What the joblet enrols for. `token` is '' without one; `one_time` for an enrolment token, which is good for
    nothing else, while any other token may also be shown as it is."""

    targets: tuple[str, ...]
    driver: str
    template: targets_pb2.Target
    token: str = ""
    one_time: bool = False


class CredentialKeeper:
    def __init__(
        self,
        enrolment: Enrolment,
        file: CredentialFile,
        calls: EnrolmentCalls,
        shown: ShownCredential,
        *,
        clock: Clock,
        chance: Callable[[int], bytes],
        make_identity: Callable[[], str],
    ) -> None:
        self._enrolment = enrolment
        self._file = file
        self._calls = calls
        self._shown = shown
        self._clock = clock
        self._chance = chance
        self._make_identity = make_identity
        self._stored = self._read()
        self._denied = Retries(_DENIED)
        if self._stored.token:
            shown.show(self._stored.token)

    async def run(self) -> None:
        """Until cancelled. Raises the refusal of an enrolment, and Unauthenticated when the credential of the folder
        is refused from the start."""
        if not self._stored.token:
            await self._enrol()
        while True:
            await self._until_due()
            await self._renew()

    def _read(self) -> StoredCredential:
        wanted = self._enrolment
        stored = self._file.read()
        if stored is not None and stored.allows(wanted.targets, wanted.driver):
            return stored
        if stored is not None:
            log.warning("the credential of the folder is for other targets or another driver", targets=stored.targets)
        return StoredCredential(targets=wanted.targets, driver=wanted.driver, id=self._make_identity())

    # Enrolment

    async def _enrol(self) -> None:
        """Returns with a credential, or never where the token itself is shown."""
        wanted, retries = self._enrolment, Retries(_ENROL_AGAIN)
        if not wanted.token:
            raise Unauthenticated(f"the joblet has no credential; {self._next_command()}")
        self._prepare_next()
        # An enrolment token is good for one text, which must not be lost.
        self._file.write(self._stored)
        digest = token_digest(self._stored.next_token)
        request = access_pb2.EnrolRequest(
            targets=wanted.targets, driver=wanted.driver, digest=digest, id=self._stored.id, template=wanted.template
        )
        while True:
            try:
                answer = await self._calls.enrol(wanted.token, request)
            except Unavailable as error:
                if not retries.failures:
                    log.info("no replica enrols the joblet yet", targets=wanted.targets[:3], reason=str(error))
                await self._clock.sleep(retries.failed())
                continue
            except ControlPlaneError as error:
                refusal = error
            else:
                self._take(answer)
                log.info("enrolled", targets=wanted.targets[:3], credential=self._stored.id, until=answer.item.expires)
                return
            try:
                known = await self._renewed_with(self._stored.next_token, digest)
            except IllegalTransition:
                known = None
            except ControlPlaneError:
                await self._clock.sleep(retries.failed())
                continue
            await self._after_refusal(refusal, known)
            return

    async def _after_refusal(self, error: ControlPlaneError, known: access_pb2.Credential | None) -> None:
        """The enrolment may have happened before, with an answer that was lost: then `known` is the credential."""
        if known is not None:
            self._take(known)
        elif not self._enrolment.one_time and isinstance(error, Forbidden | IllegalTransition | Unauthenticated):
            # The token of a joblet, or one that replicas will refuse with their own words.
            self._shown.show(self._enrolment.token)
            await asyncio.Event().wait()
        else:
            raise error

    # Renewal

    async def _until_due(self) -> None:
        """Until a renewal is due, or a replica refused the credential."""
        draw = random.random()
        while (left := seconds_until_renewal(self._stored, self._now(), draw)) > 0:
            try:
                async with asyncio.timeout(min(left, _LOOK_SECONDS)):
                    await self._shown.denied.wait()
                    return
            except TimeoutError:
                continue

    async def _renew(self) -> None:
        """Tries until a replica has renewed the credential, or all of its texts are refused."""
        retries = Retries(doubling(*retry_bounds(self._stored.renew_after), jitter=0.5))
        self._prepare_next()
        digest = token_digest(self._stored.next_token)
        while True:
            try:
                for text in self._stored.candidates():
                    answer = await self._renewed_with(text, digest)
                    if answer is not None:
                        self._take(answer)
                        return
                break
            except ControlPlaneError as error:
                log.info("no replica renews the credential now", targets=self._stored.targets[:3], reason=str(error))
                await self._clock.sleep(retries.failed())
        await self._after_denial()

    async def _renewed_with(self, text: str, digest: str) -> access_pb2.Credential | None:
        """None when replicas refuse the text."""
        try:
            return await self._calls.renew(text, digest)
        except (Unauthenticated, Forbidden):
            return None

    async def _after_denial(self) -> None:
        if not self._shown.was_accepted and self._enrolment.token:
            self._stored = StoredCredential(
                targets=self._enrolment.targets, driver=self._enrolment.driver, id=self._make_identity()
            )
            await self._enrol()
            return
        rule = "the credential of the joblet was revoked, or has expired"
        if not self._shown.was_accepted:
            raise Unauthenticated(f"{rule}; {self._next_command()}")
        if not self._denied.failures:
            log.warning(rule, targets=self._stored.targets[:3], next=self._next_command())
        await self._clock.sleep(self._denied.failed())

    def _next_command(self) -> str:
        return f"`cpctl enrol {self._enrolment.targets[0]}` makes a token for `controlplane joblet --enrol TOKEN`"

    # The texts

    def _prepare_next(self) -> None:
        """A next text in the folder. Without room on the disk the text is kept in memory: a renewal with a lost answer
        and a crash at once is less likely than a disk that stays full for a week."""
        if not self._stored.next_token:
            self._stored = msgspec.structs.replace(self._stored, next_token=token_text(self._chance(SECRET_BYTES)))
            self._write()

    def _take(self, answer: access_pb2.Credential) -> None:
        self._denied.succeeded()
        self._stored = self._stored.renewed_at(self._now(), answer.renew_after_seconds)
        if answer.item.id:
            self._stored = msgspec.structs.replace(self._stored, id=answer.item.id)
        self._write()
        self._shown.show(self._stored.token, answer.former_seconds)

    def _write(self) -> None:
        try:
            self._file.write(self._stored)
        except OSError as error:
            log.warning("the credential cannot be kept in the folder", file=str(self._file.path), error=str(error))

    def _now(self) -> float:
        return self._clock.wall().timestamp()

"""TLS files: a certificate, its key and the CA certificates to trust, read, checked, and read again when they change.

A `TlsSource` holds what the files last said when they were sound. A certificate that does not match its key, as in the
middle of a renewal, is logged once and never used: the content before stays in use. Keys never appear in an error.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from controlplane.aio.clock import Clock
from controlplane.key_files import read_private
from controlplane.model.errors import Invalid

log = structlog.get_logger(__name__)

LOOK_SECONDS = 3.0
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files. `prefix` begins the options that named them, for errors: `tls` or `etcd`."""

    cert: str = ""
    key: str = ""
    ca: str = ""
    prefix: str = "tls"

    def __post_init__(self) -> None:
        if bool(self.cert) != bool(self.key):
            missing = "key" if self.cert else "cert"
            raise Invalid(
                f"{self.prefix}_{missing}", "is missing: a certificate needs its file and the file of its key"
            )


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """The content of TLS files; empty for a file that is not given. `ca` empty means the CAs of the system."""

    cert: bytes = b""
    key: bytes = field(default=b"", repr=False)
    ca: bytes = b""


def read_material(files: TlsFiles) -> TlsMaterial:
    """The content of the files; Invalid, by the option's name, for a file that cannot be used."""
    material = TlsMaterial(
        _read(files.cert, f"{files.prefix}_cert"),
        read_private(files.key, f"{files.prefix}_key") if files.key else b"",
        _read(files.ca, f"{files.prefix}_ca"),
    )
    check(material, files)
    return material


def check(material: TlsMaterial, files: TlsFiles) -> None:
    """Invalid unless the certificate matches the key, and the CA file holds a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if files.cert:
        try:
            load_pair(context, material)
        except (ssl.SSLError, ValueError) as error:
            why = getattr(error, "reason", None) or str(error)
            raise Invalid(f"{files.prefix}_cert", f"{files.cert} and {files.key} are no pair to use: {why}") from None
    if files.ca:
        try:
            context.load_verify_locations(cadata=material.ca.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise Invalid(f"{files.prefix}_ca", f"{files.ca} holds no CA certificate in PEM") from None


def load_pair(context: ssl.SSLContext, material: TlsMaterial) -> None:
    """Makes the context serve this certificate from its next handshake on; SSLError when the key does not match."""
    # The ssl module reads files only. These are in memory, so content that was checked is what is loaded.
    with _in_memory(material.cert) as cert, _in_memory(material.key) as key:
        context.load_cert_chain(cert, key, password=_no_password)


def _no_password() -> str:
    # Without a function OpenSSL would ask on the terminal.
    raise ValueError("the key is encrypted")


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
    with open(descriptor, "wb", buffering=0) as file:
        file.write(content)
        yield f"/proc/self/fd/{descriptor}"


def _read(path: str, option: str) -> bytes:
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise Invalid(option, f"cannot be read from {path}: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise Invalid(option, f"{path} is too long for certificates")
    return content


class TlsSource:
    """What TLS files held when they were last sound. `generation` grows with each change of `material`.

    `look` may run in any thread; readers see an old pair or a new pair, never a mixture.
    """

    def __init__(self, files: TlsFiles) -> None:
        self.files = files
        self._state = (1, read_material(files))
        self._complaint = ""

    @property
    def material(self) -> TlsMaterial:
        return self._state[1]

    @property
    def generation(self) -> int:
        return self._state[0]

    @property
    def state(self) -> tuple[int, TlsMaterial]:
        """Generation and material that belong together."""
        return self._state

    def look(self) -> bool:
        """Reads the files again; whether another material is in use now. Files that are not sound change nothing."""
        generation, before = self._state
        try:
            material = read_material(self.files)
        except Invalid as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("TLS files cannot be used, those before stay in use", error=str(error))
            return False
        self._complaint = ""
        if material == before:
            return False
        self._state = (generation + 1, material)
        log.info("TLS files changed", cert=self.files.cert, ca=self.files.ca)
        return True


class TlsWatch:
    """Looks at the files of some sources every few seconds, and soon after `look_soon`; outside the event loop.

    `on_change` is called on the event loop, with each source that changed.
    """

    def __init__(
        self,
        sources: Sequence[TlsSource],
        clock: Clock,
        on_change: Callable[[TlsSource], None] = lambda source: None,
        *,
        seconds: float = LOOK_SECONDS,
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._on_change = on_change
        self._seconds = seconds
        self._soon = asyncio.Event()

    def look_soon(self) -> None:
        self._soon.set()

    async def run(self) -> None:
        while True:
            await self._pause()
            self._soon.clear()
            for source in self._sources:
                if await asyncio.to_thread(source.look):
                    self._on_change(source)

    async def _pause(self) -> None:
        pausing = asyncio.ensure_future(self._clock.sleep(self._seconds))
        asked = asyncio.ensure_future(self._soon.wait())
        try:
            await asyncio.wait({pausing, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            pausing.cancel()
            asked.cancel()

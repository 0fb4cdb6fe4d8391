"""The pulse of a process: a TCP server in a thread of its own, from the start of the process to its end.

The server answers every Hello, and sends with every beat the incarnation, the epoch that the replica leads and the
epoch that the replica gave up last. The kernel closes the connections of a killed process: the pulse exists for the
sake of that signal. Junk closes only its own connection; the connection of a slow reader is closed too. A blocked event
loop does not stop the pulse.

Candidates have reserved connections. All other peers (strangers) share a bounded number: a newcomer replaces the oldest
connection of the source address with most strangers, since a replica may be a stranger only until its candidate key is
seen.

With a cluster key, a connection is reserved only for a follower that named a candidate's incarnation and proved to have
the key (`pulse_proof`) within a second of connecting. An incarnation is no secret, so without a key a stranger that
names a candidate takes one of the candidate's places. A follower without a proof, because of an older version or
because its proof came late, is served as a stranger. No thread waits for a handshake: the answer to a Hello is sent at
once, the beats of all followers go on, and a proof is checked when the proof has been read.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections import Counter
from collections.abc import Iterable
from enum import Enum

from controlplane.aio.clock import Clock
from controlplane.election import message
from controlplane.election.election_settings import ElectionSettings
from controlplane.election.pulse_proof import PulseHandshake, PulseProver, PulseRole

_MOST_STRANGERS = 64
# A replica connects as standby, for peer presence and for clock skew, some of them twice while it starts anew.
_MOST_OF_A_CANDIDATE = 8
# From the start of a connection: without a hello the connection is closed, a later proof makes no reserved place.
_HANDSHAKE_SECONDS = 1.0
_NAMELESS = "?"


class _Phase(Enum):
    CONNECTED = "connected"  # no hello yet
    ASKED = "asked"  # followed, and asked for a proof by the nonce in the first answer
    FOLLOWING = "following"  # followed, without a proof
    PROVEN = "proven"


class _Follower:
    def __init__(self, connection: socket.socket, source: str, since: float) -> None:
        self.connection = connection
        self.source = source
        self.since = since
        # The incarnation in the follower's hello.
        self.name = ""
        self.buffer = b""
        self.phase = _Phase.CONNECTED
        self.handshake: PulseHandshake | None = None

    @property
    def known(self) -> bool:
        return self.phase is not _Phase.CONNECTED


class PulseServer:
    """Binds when made. `lead` and `leave` may be called from any thread, and send their pulse before they return."""

    def __init__(
        self, settings: ElectionSettings, incarnation: str, clock: Clock, *, prover: PulseProver | None = None
    ) -> None:
        self._settings = settings
        self._incarnation = incarnation
        self._clock = clock
        self._prover = prover
        self._lock = threading.Lock()
        self._epoch = 0
        self._ended = 0
        self._followers: dict[int, _Follower] = {}
        self._candidates: frozenset[str] = frozenset()
        self._stopping = False
        family = socket.AF_INET6 if ":" in settings.pulse_host else socket.AF_INET
        self._listener = socket.create_server((settings.pulse_host, settings.pulse_port), family=family, backlog=128)
        self._listener.setblocking(False)
        self._waker, self._wakened = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wakened, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._work, name="pulse", daemon=True)

    @property
    def address(self) -> str:
        """The address at which other replicas reach the pulse, as written into the candidate key."""
        host, port = self._listener.getsockname()[:2]
        return self._settings.pulse_advertise or f"{host}:{port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Closes all connections; waits for the thread at most `timeout` seconds."""
        if self._stopping:
            return
        # With the lock, since a thread that sees `_stopping` closes the waker.
        with self._lock:
            self._stopping = True
            self._waker.send(b".")
        self._thread.join(timeout)

    def followers(self) -> int:
        with self._lock:
            return self._known()

    def expect(self, incarnations: Iterable[str]) -> None:
        """Names the incarnations of the candidates, whose connections strangers cannot displace.

        With a cluster key only proven connections of the candidates are kept.
        """
        with self._lock:
            self._candidates = frozenset(incarnations)

    def lead(self, epoch: int) -> None:
        with self._lock:
            self._epoch = epoch
            self._beat()

    def leave(self, epoch: int) -> int:
        """Says good-bye for the epoch and closes all connections. Returns how many followers were told."""
        with self._lock:
            followers = self._known()
            self._epoch = 0
            self._ended = max(self._ended, epoch)
            self._beat()
            for follower in list(self._followers.values()):
                # The thread may sit in select on the socket: the shutdown wakes the thread, which drops the socket.
                self._shut(follower)
            return followers

    def _known(self) -> int:
        return sum(follower.known for follower in self._followers.values())

    def _work(self) -> None:
        following = self._clock.monotonic()
        try:
            while not self._stopping:
                for key, _ in self._selector.select(max(following - self._clock.monotonic(), 0)):
                    with self._lock:
                        self._serve(key)
                now = self._clock.monotonic()
                if now >= following:
                    following = now + self._settings.pulse_beat_seconds
                    with self._lock:
                        self._sweep(now)
                        self._beat()
        finally:
            with self._lock:
                self._close_all()

    def _serve(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._listener:
            self._accept()
        elif key.fileobj is self._wakened:
            self._wakened.recv(64)
        elif (follower := self._followers.get(key.fd)) is not None:
            self._read(follower)

    def _accept(self) -> None:
        try:
            connection, address = self._listener.accept()
        except OSError:
            # Without a free descriptor, select would return at once for ever: listening resumes with the next beat.
            self._selector.unregister(self._listener)
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._make_room()
        self._followers[connection.fileno()] = _Follower(connection, str(address[0]), self._clock.monotonic())
        self._selector.register(connection, selectors.EVENT_READ)

    def _make_room(self) -> None:
        strangers = [follower for follower in self._followers.values() if not self._is_reserved(follower)]
        if len(strangers) < _MOST_STRANGERS:
            return
        sources = Counter(follower.source for follower in strangers)
        # `strangers` is in the order of arrival, so `max` gives the oldest connection of the busiest source.
        self._drop(max(strangers, key=lambda follower: sources[follower.source]))

    def _is_reserved(self, follower: _Follower) -> bool:
        return follower.name in self._candidates and self._is_believed(follower)

    def _is_crowded(self, name: str) -> bool:
        same = (follower for follower in self._followers.values() if follower.name == name)
        return sum(map(self._is_believed, same)) >= _MOST_OF_A_CANDIDATE

    def _is_believed(self, follower: _Follower) -> bool:
        """Whether the name of the follower is to be believed; without a key there is only the follower's word."""
        return self._prover is None or follower.phase is _Phase.PROVEN

    def _read(self, follower: _Follower) -> None:
        try:
            data = follower.connection.recv(message.LONGEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        follower.buffer += data
        line, newline, rest = follower.buffer.partition(b"\n")
        speaks = bool(data) and not rest and follower.phase in (_Phase.CONNECTED, _Phase.ASKED)
        if speaks and not newline and len(line) < message.LONGEST:
            return
        follower.buffer = b""
        if not (speaks and newline and self._take(follower, line)):
            self._drop(follower)

    def _take(self, follower: _Follower, line: bytes) -> bool:
        """Handles a line of a follower; False when the connection has to end."""
        return self._greet(follower, line) if follower.phase is _Phase.CONNECTED else self._check(follower, line)

    def _greet(self, follower: _Follower, line: bytes) -> bool:
        hello = message.read_hello(line)
        if hello is None or self._is_crowded(hello.hello):
            return False
        follower.name = hello.hello or _NAMELESS
        follower.phase = _Phase.FOLLOWING
        nonce = proof = ""
        if self._prover is not None and hello.nonce:
            nonce = self._prover.make_nonce()
            follower.phase = _Phase.ASKED
            follower.handshake = PulseHandshake(
                follower=hello.hello, follower_nonce=hello.nonce, server=self._incarnation, server_nonce=nonce
            )
            proof = self._prover.prove(PulseRole.SERVER, follower.handshake)
        self._send(follower, nonce, proof)
        return True

    def _check(self, follower: _Follower, line: bytes) -> bool:
        """Takes the proof of a follower. A late proof leaves the follower a stranger, a wrong proof is junk."""
        proof, handshake = message.read_proof(line), follower.handshake
        if proof is None or handshake is None or self._prover is None:
            return False
        follower.phase = _Phase.FOLLOWING
        if self._clock.monotonic() - follower.since > _HANDSHAKE_SECONDS:
            return True
        if not self._prover.is_proof(PulseRole.FOLLOWER, handshake, proof.proof) or self._is_crowded(follower.name):
            return False
        follower.phase = _Phase.PROVEN
        return True

    def _send(self, follower: _Follower, nonce: str = "", proof: str = "") -> None:
        wall = self._clock.wall().timestamp()
        state = message.Pulse(
            incarnation=self._incarnation, epoch=self._epoch, ended=self._ended, wall=wall, nonce=nonce, proof=proof
        )
        line = message.write(state)
        try:
            complete = follower.connection.send(line) == len(line)
        except OSError:
            complete = False
        if not complete:
            self._shut(follower)

    def _beat(self) -> None:
        for follower in self._followers.values():
            if follower.known:
                self._send(follower)

    def _sweep(self, now: float) -> None:
        for follower in list(self._followers.values()):
            if not follower.known and now - follower.since > _HANDSHAKE_SECONDS:
                self._drop(follower)
        if self._listener not in self._selector.get_map():
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _shut(self, follower: _Follower) -> None:
        """Shuts the connection down; the thread then reads the end of the stream and drops the follower."""
        try:
            follower.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def _drop(self, follower: _Follower) -> None:
        del self._followers[follower.connection.fileno()]
        self._selector.unregister(follower.connection)
        follower.connection.close()

    def _close_all(self) -> None:
        for follower in list(self._followers.values()):
            self._drop(follower)
        self._selector.close()
        for end in (self._listener, self._waker, self._wakened):
            end.close()

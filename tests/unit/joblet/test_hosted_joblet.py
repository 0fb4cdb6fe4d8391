"""What a hosted joblet is told, and what each host derives from a secret."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import pytest

from controlplane.hosting.hosted_targets import HostedTarget, instance_secret
from controlplane.joblet import hosted
from controlplane.joblet.joblet_state import JobletState
from controlplane.model.errors import Invalid
from controlplane.model.hosting import HostedIdentity
from controlplane.model.secret import Content

GUEST = HostedTarget("t", "target-1", "s", "secret-1", "digest-1")
CONTENT = Content(data={"kubeconfig": "one"}, seed="ab" * 32)


def test_an_instance_secret_depends_on_the_target_and_the_seed_alone() -> None:
    own = instance_secret(GUEST, CONTENT)
    changed = replace(GUEST, secret_digest="digest-2", secret_name="other")
    assert instance_secret(changed, Content(data={"kubeconfig": "two"}, seed=CONTENT.seed)) == own
    assert instance_secret(replace(GUEST, target_id="target-2"), CONTENT) != own
    assert instance_secret(GUEST, Content(data=CONTENT.data, seed="cd" * 32)) != own
    assert CONTENT.seed not in own


def said(text: bytes) -> int:
    """The end of a pipe on which that was said."""
    read, write = os.pipe()
    os.write(write, text)
    os.close(write)
    return read


def test_papers_are_the_first_line_and_nothing_behind_it() -> None:
    pipe = said(b'{"secret":"x","cluster":"e","known_attempt":3}\nrest')
    identity = hosted.read_identity(pipe)
    assert identity == HostedIdentity(secret="x", cluster="e", known_attempt=3)
    assert os.read(pipe, 100) == b"rest"
    state = JobletState("own")
    hosted.adopt_identity(identity, state)
    assert (state.secret, state.cluster, state.known_attempt) == ("x", "e", 3)
    os.close(pipe)


def test_papers_that_say_nothing_of_an_etcd_leave_what_is_known() -> None:
    state = JobletState("own")
    state.cluster, state.known_attempt = "mine", 4
    hosted.adopt_identity(HostedIdentity(secret="x"), state)
    assert (state.secret, state.cluster, state.known_attempt) == ("x", "mine", 4)


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"no identity\n", b"{}\n", b'{"secret":"x"', b'{"secret":"x","more":1}\n', b"x" * 9000]
)
def test_who_is_not_started_by_a_replica_is_refused(text: bytes) -> None:
    pipe = said(text)
    with pytest.raises(Invalid) as refused:
        hosted.read_identity(pipe)
    assert refused.value.field == "hosted"
    os.close(pipe)


def test_the_end_of_stdin_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not end by itself is made to."""
    read, write = os.pipe()
    stopped, made_to = threading.Event(), threading.Event()
    monkeypatch.setattr(hosted, "_GRACE_SECONDS", 0.01)
    monkeypatch.setattr(os, "_exit", lambda code: made_to.set())
    hosted.end_with_host(stopped.set, read)
    os.write(write, b"whatever is said\n")
    assert not stopped.wait(0.05)
    os.close(write)
    assert stopped.wait(10)
    assert made_to.wait(10)
    os.close(read)

"""`cpctl logs` on a running `up`: from any replica, of one task and of many, small and huge."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SECONDS = 200.0
# Less than a joblet keeps of an output.
HUGE = 60_000_000
# What any process on the way may need more for a huge log than before.
MOST_GROWTH = 32 << 20


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, module: str, *arguments: str) -> list[str]:
        """The options come first: behind `--` they would belong to the command."""
        front = [sys.executable, "-m", f"controlplane.cli.{module}", arguments[0], "--data-dir", str(self.folder)]
        return [*front, *arguments[1:]]

    def call(self, module: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(self.command(module, *arguments), capture_output=True, timeout=SECONDS)

    def cpctl(self, *arguments: str, code: int = 0) -> bytes:
        """What it prints; with another exit code than 0, what it says instead."""
        done = self.call("cpctl", *arguments)
        assert done.returncode == code, (done.returncode, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def submit(self, script: str, *, count: int = 1, wait: bool = True, **job: Any) -> str:
        file = self.folder / "order.json"
        inline = {"name": "say", "command": ["sh", "-c", script], **job}
        file.write_text(json.dumps({"kind": "Order", "packet": {"jobs": [{"job": inline, "count": count}]}}))
        flags = ("--wait",) if wait else ()
        identity: str = json.loads(self.cpctl("submit", "-f", str(file), "-o", "json", *flags))["id"]
        return identity

    def up_json(self) -> Any:
        return json.loads((self.folder / "up.json").read_text())

    @property
    def token_file(self) -> str:
        return str(self.folder / "token")

    def endpoints(self) -> list[str]:
        return [replica["grpc"] for replica in self.up_json()["replicas"]]

    def peaks(self) -> dict[int, int]:
        """The most memory that each replica and joblet ever had, by pid."""
        told = self.up_json()
        return {part["pid"]: peak_of(part["pid"]) for part in (*told["replicas"], *told["joblets"])}


def digest_of(command: list[str]) -> str:
    """Of what it prints, however much that is."""
    digest = hashlib.sha256()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        while block := reader.stdout.read(1 << 20):
            digest.update(block)
    assert reader.returncode == 0
    return digest.hexdigest()


def peak_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("up") / "data")
    started = made.call("controlplane", "up", "--detach", "--replicas", "3", "--targets", "1")
    assert started.returncode == 0, started.stderr
    yield made
    made.call("controlplane", "down")


@pytest.mark.timeout(300)
def test_the_log_of_one_task_is_its_bytes_whichever_replica_is_asked(cluster: Cluster) -> None:
    order = cluster.submit(r"printf 'a\000\377b\n'; echo err >&2")
    for endpoint in cluster.endpoints():
        assert (
            cluster.cpctl("logs", "--endpoints", endpoint, "--token-file", cluster.token_file, order)
            == b"a\0\xffb\nerr\n"
        )
    assert cluster.cpctl("logs", f"{order}/say", "--stream", "stderr") == b"err\n"
    assert cluster.cpctl("logs", f"{order}/say/0", "--tail", "1", "--stream", "stdout") == b"a\0\xffb\n"


@pytest.mark.timeout(300)
def test_lines_of_several_tasks_begin_with_their_task(cluster: Cluster) -> None:
    order = cluster.submit("echo I am $CONTROLPLANE_INDEX; printf end", count=3, wait=False)
    told = cluster.cpctl("logs", order, "--follow")
    assert sorted(told.splitlines()) == sorted(
        line for index in range(3) for line in (b"say/%d: I am %d" % (index, index), b"say/%d: end" % index)
    )
    assert cluster.cpctl("logs", order) == b"".join(
        b"say/%d: I am %d\nsay/%d: end\n" % (index, index, index) for index in range(3)
    )
    lines = [json.loads(line) for line in cluster.cpctl("logs", f"{order}/say/1", "-o", "json").splitlines()]
    assert lines == [
        {"job": "say", "index": 1, "attempt": 1, "stream": "stdout", "line": line} for line in ("I am 1", "end")
    ]


@pytest.mark.timeout(300)
def test_following_a_task_that_is_tried_again_shows_all_of_its_attempts(cluster: Cluster) -> None:
    policies = [{"on": {"exit_codes": [3]}, "action": "retry", "limit": 1}]
    script = "echo attempt $CONTROLPLANE_ATTEMPT; [ $CONTROLPLANE_ATTEMPT = 2 ] || { sleep 2; exit 3; }"
    order = cluster.submit(script, wait=False, failure_policies=policies)
    assert cluster.cpctl("logs", order, "-f") in (b"attempt 1\nattempt 2\n", b"attempt 2\n")
    assert cluster.cpctl("logs", order, "--previous") == b"attempt 1\n"
    assert cluster.cpctl("logs", order, "--attempt", "2") == b"attempt 2\n"


@pytest.mark.timeout(300)
def test_what_cannot_be_shown_is_an_error_that_says_why(cluster: Cluster) -> None:
    order = cluster.submit("true")
    for arguments, said in (
        ((f"{order}/nothing",), b"error: NotFound: order"),
        ((f"{order}/say/4",), b"job say has 1 tasks, and no 4"),
        ((order, "--attempt", "9"), b"there is no attempt 9"),
        ((order, "--previous"), b"no attempt before its newest"),
        ((order, "--stream", "stdin"), b"error: Invalid: stream: must be stdout or stderr"),
        ((order, "--tail", "-1"), b"error: Invalid: tail"),
        (("01HZZZZZZZZZZZZZZZZZZZZZZZ",), b"error: NotFound: id: there is no order"),
        (("nonsense",), b"error: Invalid: order"),
    ):
        assert said in cluster.cpctl("logs", *arguments, code=1), arguments
    waiting = cluster.submit("true", wait=False, requests={"cpu": 1000})
    assert b"has not started yet: it is Pending (InsufficientCapacity)" in cluster.cpctl("logs", waiting, code=1)


@pytest.mark.timeout(300)
def test_a_huge_log_needs_little_memory_on_its_way(cluster: Cluster) -> None:
    order = cluster.submit(f"yes 'the same line again and again' | head -c {HUGE}")
    kept = cluster.folder / "joblets" / "local-1" / "runs" / f"{order}.say.0.1" / "stdout"
    assert kept.stat().st_size == HUGE
    written = hashlib.sha256(kept.read_bytes()).hexdigest()
    before = cluster.peaks()
    for endpoint in cluster.endpoints():
        assert (
            digest_of(
                cluster.command("cpctl", "logs", "--endpoints", endpoint, "--token-file", cluster.token_file, order)
            )
            == written
        )
    growth = {pid: peak - before[pid] for pid, peak in cluster.peaks().items() if pid in before}
    assert len(growth) == 4
    assert max(growth.values()) < MOST_GROWTH, growth


@pytest.mark.timeout(300)
def test_a_reader_that_has_enough_ends_it_quietly(cluster: Cluster) -> None:
    order = cluster.submit("seq 1 1000000")
    receive, send = os.pipe()
    reader = subprocess.Popen(cluster.command("cpctl", "logs", order), stdout=send, stderr=subprocess.PIPE)
    os.close(send)
    assert os.read(receive, 4) == b"1\n2\n"
    os.close(receive)
    _, said = reader.communicate(timeout=SECONDS)
    assert (reader.returncode, said) == (141, b"")

"""An etcd of three members of a test's own; members are killed and started again one by one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.etcd import Etcd

COUNT = 3


class Members(Etcd):
    """All of them as one. `endpoint` names all, as `--etcd` takes it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.members: list[Etcd] = []
        for number in range(COUNT):
            place = folder / f"member-{number}"
            place.mkdir(parents=True, exist_ok=True)
            self.members.append(Etcd(place, name=f"member-{number}"))
        self.name_each_other()
        self.endpoint = ",".join(member.endpoint for member in self.members)

    def name_each_other(self) -> None:
        whole = ",".join(f"{member.name}={member.advertised_peer}" for member in self.members)
        for member in self.members:
            member.cluster = whole

    def start(self, *members: Etcd) -> None:
        """These, or all; returns when each of them answers, which takes a majority. Raises when one does not."""
        with ThreadPoolExecutor(COUNT) as threads:
            for started in [threads.submit(member.start) for member in members or self.members]:
                started.result()

    def kill(self) -> None:
        for member in self.members:
            member.kill()

    def pause(self) -> None:
        for member in self.members:
            member.pause()

    def resume(self) -> None:
        for member in self.members:
            member.resume()

    def leading(self) -> Etcd:
        """The member that the others follow."""
        for member in self.members:
            said = member.etcdctl("endpoint", "status", "--write-out=fields")
            fields = dict(line.split(" : ", 1) for line in said.splitlines() if " : " in line)
            if fields['"MemberID"'] == fields['"Leader"']:
                return member
        raise AssertionError("no member leads")


@contextmanager
def running_members(folder: Path) -> Iterator[Members]:
    members = Members(folder)
    try:
        members.start()
        yield members
    finally:
        members.kill()

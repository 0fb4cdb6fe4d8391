"""The user that the commands of a joblet run as (`--run-as`), and what the joblet needs to switch to that user.

A command gets the user, the groups of the user, and, as its primary group, a group of its own that no other attempt
has. The kernel lets a process look into another one (ptrace, /proc/PID/environ, mem, fd, cwd) only when user and group
are equal, so the commands of two attempts cannot look into each other, although their user is the same.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from pathlib import Path

import msgspec

from controlplane.model.errors import Invalid

FIELD = "run_as"
ROOT = 0
# Groups of attempts: no distribution gives such numbers to groups.
FIRST_GROUP, END_OF_GROUPS = 1 << 30, (1 << 31) - 1
# Bits of capabilities(7): to give files away and take them back, to signal another user's commands, to become the user.
_NEEDED = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7}


class TaskUser(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    uid: int
    groups: tuple[int, ...]
    home: str = "/"
    shell: str = "/bin/sh"

    def environment(self) -> dict[str, str]:
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}


def find_task_user(name: str) -> TaskUser:
    """The user of that name; Invalid for an unknown user, for root, and when this process cannot become that user."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise Invalid(FIELD, f"there is no user {name!r} on this machine") from None
    if entry.pw_uid == ROOT:
        raise Invalid(FIELD, f"{name} is root: commands need a user without rights")
    if entry.pw_uid == os.geteuid():
        raise Invalid(FIELD, f"{name} runs the joblet itself: commands need another user")
    check_capabilities(Path("/proc/self/status").read_text(encoding="ascii", errors="replace"))
    check_group_map(Path("/proc/self/gid_map").read_text(encoding="ascii"))
    groups = tuple(sorted(set(os.getgrouplist(name, entry.pw_gid))))
    return TaskUser(name=name, uid=entry.pw_uid, groups=groups, home=entry.pw_dir or "/", shell=entry.pw_shell)


def check_capabilities(status: str) -> None:
    """`status` is the content of /proc/self/status."""
    line = next((line for line in status.splitlines() if line.startswith("CapEff:")), "CapEff: 0")
    held = int(line.split()[1], 16)
    missing = [f"CAP_{name}" for name, bit in _NEEDED.items() if not held >> bit & 1]
    if missing:
        raise Invalid(FIELD, f"needs root, or the capabilities {', '.join(missing)}: the joblet has not got them")


def check_group_map(content: str) -> None:
    """`content` is /proc/self/gid_map: which groups exist in the user namespace of this process."""
    for line in content.splitlines():
        first, _, count = (int(word) for word in line.split())
        if first <= FIRST_GROUP and first + count >= END_OF_GROUPS:
            return
    raise Invalid(FIELD, f"needs the groups {FIRST_GROUP} to {END_OF_GROUPS - 1}, which this user namespace has not")


class TaskGroups:
    """Numbers of groups for attempts, each handed out once. `taken` are those of attempts from before."""

    def __init__(self, start: int, taken: Iterable[int] = ()) -> None:
        self._taken = set(taken)
        self._next = FIRST_GROUP + start % (END_OF_GROUPS - FIRST_GROUP)

    def take(self) -> int:
        while True:
            group, self._next = self._next, self._next + 1
            if self._next >= END_OF_GROUPS:
                self._next = FIRST_GROUP
            if group not in self._taken:
                return group

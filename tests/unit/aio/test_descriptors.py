"""Open files: raised as far as the system allows, and shared so that clients cannot take all of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from controlplane.aio import descriptors
print(descriptors.raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0], descriptors.most_connections())
"""


def limits(soft: int, hard: int) -> tuple[int, ...]:
    """(the limit as told, the limit as set, connections of clients) in a process that may open so many."""
    program = _PROGRAM.format(soft=soft, hard=hard)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return tuple(map(int, run.stdout.split()))


@pytest.mark.parametrize(("soft", "hard", "connections"), [(256, 1024, 384), (1024, 1024, 384), (64, 200, 32)])
def test_the_limit_is_raised_and_clients_get_less_than_half_of_it(soft: int, hard: int, connections: int) -> None:
    assert limits(soft, hard) == (hard, hard, connections)

"""Finished orders on disk: whole lines, whatever a full disk did before; files that do not grow for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controlplane.controller_manager.archive import Archive, append
from controlplane.model.errors import Unavailable
from controlplane.store import keys
from tests.builders import a_fulfilment, an_order
from tests.clock import ManualClock
from tests.picture import Told

ORDER = an_order()


def an_archive(folder: Path, *, full_bytes: int = 1 << 20, clock: ManualClock | None = None) -> Archive:
    return Archive(folder, "replica/1", clock or ManualClock(), full_bytes=full_bytes)


async def keep(archive: Archive, identity: str = ORDER.identity) -> None:
    told = Told()
    ended = a_fulfilment(ORDER.identity).task(0)
    told.write({keys.order(ORDER.identity): ORDER.build(), keys.order_status(ORDER.identity): b"{no json"})
    told.write({keys.ended(ORDER.identity, ended.identity): ended.ended("done")})
    snapshot = told.ledgers.cache.snapshot
    order, status = snapshot.get(keys.ORDERS, ORDER.identity), snapshot.get(keys.ORDER_STATUS, ORDER.identity)
    await archive.keep(identity, order, status, list(snapshot.all(keys.ENDED, ORDER.identity)))


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_line_holds_all_that_was_known_of_the_order(tmp_path: Path) -> None:
    await keep(an_archive(tmp_path))
    (line,) = lines(tmp_path)
    assert (line["kind"], line["id"], line["order"]["id"]) == ("Archived", ORDER.identity, ORDER.identity)
    assert line["ended"][0]["tasks"][0]["decision"] == "done"
    assert line["status"] == "{no json", "what cannot be read is kept as it is"
    assert names(tmp_path) == ["orders-2026-01-01-replica_1-1.jsonl"]


async def test_a_full_file_and_a_new_day_begin_the_next(tmp_path: Path) -> None:
    clock = ManualClock()
    archive = an_archive(tmp_path, full_bytes=1, clock=clock)
    await keep(archive)
    await keep(archive)
    clock.pass_seconds(86400)
    await keep(archive)
    days = ("2026-01-01", 1), ("2026-01-01", 2), ("2026-01-02", 1)
    assert names(tmp_path) == [f"orders-{day}-replica_1-{number}.jsonl" for day, number in days]


async def test_an_archive_that_cannot_be_written_says_so_until_it_can(tmp_path: Path) -> None:
    archive = an_archive(tmp_path / "missing")
    with pytest.raises(Unavailable, match="archive cannot be written"):
        await keep(archive)
    assert "No such file" in archive.why
    (tmp_path / "missing").mkdir()
    await keep(archive)
    assert archive.why == ""
    assert len(lines(tmp_path / "missing")) == 1


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b'{"id":1}\n{"id":2,"or')
    append(path, b'{"id":3}\n')
    assert path.read_bytes().splitlines() == [b'{"id":1}', b'{"id":2,"or', b'{"id":3}']

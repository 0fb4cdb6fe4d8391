"""The etcd that `up` starts, with the flags that `up` gives it: what browsers get of it, and how long it remembers."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import Compacted, Unavailable
from controlplane.standalone import etcd_binary
from controlplane.standalone.embedded_etcd import HistoryLimit, ask, is_healthy
from controlplane.standalone.layout import Layout
from controlplane.standalone.ports import Ports
from controlplane.standalone.process_plan import UpOptions, plan_processes
from controlplane.store import keys
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, put

SECONDS = 60


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    layout = Layout(tmp_path_factory.mktemp("up"))
    with Ports() as ports:
        parts = plan_processes(layout, etcd_binary.find(), ports, UpOptions(1, 0))
        with (layout.folder / "etcd.log").open("wb") as log:
            process = subprocess.Popen(parts.etcd.argv, stdout=log, stderr=log)
        try:
            until = time.monotonic() + SECONDS
            while not is_healthy(parts.etcd_url):
                assert process.poll() is None, (layout.folder / "etcd.log").read_text()
                assert time.monotonic() < until
                time.sleep(0.05)
            yield parts.etcd_url
        finally:
            process.kill()
            process.wait()


def posted(url: str, path: str, body: dict[str, object], **headers: str) -> int:
    """As a web page does it without being asked first: a simple request, text, from anywhere."""
    said = {"Content-Type": "text/plain", "Origin": "https://evil.example", **headers}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), said, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


def text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1"])
@pytest.mark.parametrize("path", ["/v3/kv/put", "/v3beta/kv/put", "/v3alpha/kv/put"])
async def test_no_web_page_can_write(url: str, host: str, path: str) -> None:
    body: dict[str, object] = {"key": text(f"{keys.ROOT}config/orders/evil"), "value": text("{}")}
    assert posted(url, path, body, Host=host) >= 400
    store = Store(EtcdOptions((url,)), SystemClock())
    assert await store.get(f"{keys.ROOT}config/orders/evil") is None
    await store.close()


def test_no_web_page_is_told_that_it_may_read(url: str) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    request = urllib.request.Request(f"{url}/v3/kv/range", headers=asked, method="OPTIONS")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            allowed = answer.headers.get("Access-Control-Allow-Origin")
    except urllib.error.HTTPError as refused:
        with refused:
            allowed = refused.headers.get("Access-Control-Allow-Origin")
    assert allowed not in ("*", "https://evil.example")


def test_etcd_says_of_another_host_that_it_is_not_that(url: str) -> None:
    request = urllib.request.Request(f"{url}/health", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)
    with refused.value as error:
        assert error.code == 421


async def test_history_goes_when_half_of_the_quota_is_in_use(url: str) -> None:
    store = Store(EtcdOptions((url,)), SystemClock())
    told: list[str] = []
    old = (await store.commit(Item(then=(put("/controlplane/a", b"1"),)))).revision
    await store.commit(Item(then=(put("/controlplane/a", b"2"),)))
    await HistoryLimit(url, SystemClock(), told.append).enforce()
    assert told == []
    await HistoryLimit(url, SystemClock(), told.append, quota=1).enforce()
    assert len(told) == 1
    assert "more than half of its quota" in told[0]
    with pytest.raises(Compacted):
        await store.get("/controlplane/a", revision=old)
    await store.close()


async def test_an_etcd_that_is_not_there_is_said_to_be_unavailable() -> None:
    with pytest.raises(Unavailable, match="does not report its status"):
        await ask("http://127.0.0.1:1")

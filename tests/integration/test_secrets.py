"""Secrets as a person meets them: through `up` and `cpctl`, which never show what they hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from controlplane.model.leadership import Candidate
from controlplane.store import codec
from controlplane.store.keys import CANDIDATES
from controlplane.store.transaction import Value
from tests.kubeconfigs import TOKEN, a_kubeconfig, base64_of, written
from tests.robustness.upped import an_up, call

FILE = """
kind: Target
name: eu-1
driver: kubernetes
kubeconfig_secret: eu-1
---
kind: Secret
name: eu-1
data:
  kubeconfig: |
    {kubeconfig}
"""


# What hangs is ended by this; a dozen commands take long on a machine with other load.
@pytest.mark.timeout(300)
async def test_a_secret_goes_in_and_never_comes_out(tmp_path: Path) -> None:
    folder, kubeconfig = tmp_path / "up", tmp_path / "kubeconfig"
    kubeconfig.write_text(written(a_kubeconfig()))
    backup = tmp_path / "backup"
    async with an_up(folder, replicas=1, targets=0) as up:
        for name in ("secret.key", "cluster.key"):
            assert (folder / name).stat().st_mode & 0o777 == 0o600
        await up.witness.until(lambda: _proving(up.witness.values) == [True], "its pulse proves itself")
        shown = []

        async def cpctl(*arguments: str, code: int = 0) -> str:
            told = await call("cpctl", folder, *arguments)
            shown.append(told.out + told.err)
            assert told.code == code, told
            return told.out

        made = ("create", "secret", "eu-1", "--from-file", f"kubeconfig={kubeconfig}")
        assert "created" in await cpctl(*made)
        assert "unchanged" in await cpctl(*made)
        assert "eu-1" in await cpctl("get", "secrets")
        stored = json.loads(await cpctl("get", "secret", "eu-1", "-o", "json"))
        assert (stored["type"], stored["size"]) == ("kubeconfig", len(kubeconfig.read_text()))
        assert "data" not in stored
        await cpctl("describe", "secret", "eu-1")
        (tmp_path / "eu-1.yaml").write_text(FILE.format(kubeconfig=kubeconfig.read_text()))
        assert "updated" in await cpctl("apply", "-f", str(tmp_path / "eu-1.yaml"))
        target = json.loads(await cpctl("get", "target", "eu-1", "-o", "json"))
        assert target["kubeconfig_secret"] == "eu-1"
        await cpctl("delete", "secret", "eu-1", code=1)
        await up.witness.until(
            lambda: b'"replica":"replica-1"' in _hosting(up.witness.values.get("/controlplane/status/hosting/eu-1")),
            "it is hosted",
        )
        bad = a_kubeconfig()
        bad["users"][0]["user"]["tokenFile"] = "/etc/shadow"
        kubeconfig.write_text(written(bad))
        await cpctl("create", "secret", "eu-2", "--from-file", f"kubeconfig={kubeconfig}", code=1)
        assert "data.kubeconfig.users[0].user.tokenFile: must not name a file" in shown[-1]
        await cpctl("get", "events")
        await cpctl("backup", str(backup))
        await cpctl("delete", "target", "eu-1")
        await cpctl("delete", "secret", "eu-1")
    found = [file for file in (*folder.rglob("*"), backup) if file.is_file() and _holds(file.read_bytes())]
    assert not found
    assert not any(_holds(text.encode()) for text in shown)


def _hosting(value: object) -> bytes:
    return bytes(getattr(value, "value", b""))


def _proving(values: Mapping[str, Value]) -> list[bool]:
    """Which candidates say that their pulse proves itself."""
    candidates = (value.value for key, value in values.items() if key.startswith(CANDIDATES.prefix))
    return [codec.decode(raw, Candidate).proves for raw in candidates]


def _holds(raw: bytes) -> bool:
    return TOKEN.encode() in raw or base64_of(TOKEN)[:20].encode() in raw

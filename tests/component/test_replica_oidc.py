"""A replica as a process that takes the JWTs of an issuer: its options, a login, and a call with the context."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from tests.component.test_login import WHO, User
from tests.etcd import Etcd, free_ports
from tests.issuer import AUDIENCE, CLIENT, an_issuer

PROGRAM = (sys.executable, "-m", "controlplane.cli.controlplane")


@asynccontextmanager
async def a_replica(etcd: Etcd, folder: Path, *options: str) -> AsyncIterator[str]:
    """The address of a replica that answers."""
    address, http = (f"127.0.0.1:{port}" for port in free_ports(2))
    with (folder / "replica.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, "replica", "--etcd", etcd.endpoint, "--grpc", address, "--http", http, *options,
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        async with asyncio.timeout(60), grpc.aio.insecure_channel(address) as channel:
            while channel.get_state(try_to_connect=True) is not grpc.ChannelConnectivity.READY:
                assert process.returncode is None, (folder / "replica.log").read_text()
                await asyncio.sleep(0.05)
        yield address
    finally:
        process.terminate()
        await process.wait()


async def first_administrator(etcd: Etcd) -> str:
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "bootstrap", "--etcd", etcd.endpoint, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return out.decode().strip()


async def test_a_person_logs_in_is_granted_a_role_by_group_and_works(emptied: Etcd, tmp_path: Path) -> None:
    user, admin = User(tmp_path), await first_administrator(emptied)
    async with an_issuer() as issuer:
        issuer.claims = {"sub": "7f3a", "email": "ada@example.org", "email_verified": True, "teams": ["film"]}
        options = [
            "--oidc-issuer", issuer.url, "--oidc-audience", AUDIENCE, "--oidc-name-claim", "email",
            "--oidc-groups-claim", "teams", "--oidc-prefix", "sso:",
        ]  # fmt: skip
        async with a_replica(emptied, tmp_path, *options) as address:
            places = ("--endpoints", address, "--context", "prod")
            assert (await user("login", "--issuer", issuer.url, "--client-id", CLIENT, *places))[0] == 0
            assert await user(*WHO) == (0, "sso:ada@example.org\n", "")
            code, _, err = await user("get", "jobs")
            assert (code, err) == (1, "error: Forbidden: 'sso:ada@example.org' (no role) may not read job\n")
            granted = await user("grant", "submitter", "--group", "sso:film", "-o", "name", CONTROLPLANE_TOKEN=admin)
            assert granted[0] == 0, granted
            (tmp_path / "job.yaml").write_text("kind: Job\nname: render\ncommand: ['true']\n")
            code, _, err = await user("apply", "-f", str(tmp_path / "job.yaml"))
            assert code == 0, err
            code, out, _ = await user("get", "job", "render", "-o", "json")
            assert '"owner": "sso:ada@example.org"' in out

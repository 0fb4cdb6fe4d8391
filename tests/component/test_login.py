"""`cpctl login`, `logout` and `config` as processes: an issuer on loopback, and a plane that takes its tokens."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane.model import times
from controlplane.model.job import Job
from controlplane.store import keys
from tests.component.jwt_stage import JwtPlane, a_jwt_plane
from tests.etcd import Etcd
from tests.issuer import CLIENT, DEVICE, TOKEN, Issuer, saying

WHO = ("auth", "whoami", "-o", "name")


@pytest.fixture
async def plane(emptied: Etcd) -> AsyncIterator[JwtPlane]:
    async with a_jwt_plane(emptied) as started:
        yield started


class User:
    """A user with a configuration folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": "/usr/bin:/bin", "HOME": str(folder), "NO_COLOR": "1", "XDG_CONFIG_HOME": str(folder / "conf"),
        }  # fmt: skip

    @property
    def file(self) -> Path:
        return self.folder / "conf" / "controlplane" / "config.json"

    @property
    def config(self) -> Any:
        return json.loads(self.file.read_text())

    def edit(self, **tokens: str) -> None:
        """Changes the tokens of the context `default`."""
        config = self.config
        config["contexts"]["default"]["tokens"] |= tokens
        self.file.write_text(json.dumps(config))

    async def begin(self, *arguments: str, **environment: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "controlplane.cli.cpctl", *arguments, env=self.environment | environment,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def __call__(self, *arguments: str, **environment: str) -> tuple[int | None, str, str]:
        process = await self.begin(*arguments, **environment)
        async with asyncio.timeout(60):
            out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    async def log_in(self, issuer: Issuer, *options: str) -> tuple[int | None, str, str]:
        return await self("login", "--issuer", issuer.url, "--client-id", CLIENT, *options)


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def stamp(seconds: float) -> str:
    return times.show(datetime.now(UTC) + timedelta(seconds=seconds))


async def test_a_login_is_kept_and_used_by_every_command(plane: JwtPlane, user: User) -> None:
    issuer = plane.issuer
    issuer.refusals = ["authorization_pending"]
    code, out, err = await user.log_in(issuer, "--endpoints", plane.api.address)
    assert (code, out) == (0, "")
    assert f"Open {issuer.url}/activate in a browser and enter the code WDJB-MJHT\n" in err
    # The first poll was told to wait, and the person has agreed before the second.
    assert [form["client_id"] for form in issuer.forms] == [CLIENT] * 3
    assert "openid" in issuer.forms[0]["scope"].split()
    assert stat.S_IMODE(user.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(user.file.parent.stat().st_mode) == 0o700

    assert await user(*WHO) == (0, "oidc:ada\n", "")
    code, out, _ = await user("config", "get-contexts")
    assert (code, out.split()[5:9]) == (0, ["*", "default", plane.api.address, "login"])
    token, refresh = (user.config["contexts"]["default"]["tokens"][name] for name in ("token", "refresh"))
    for output in ("yaml", "json"):
        code, out, _ = await user("config", "view", "-o", output)
        assert (code, "REDACTED" in out, token in out, refresh in out) == (0, True, False, False)

    assert (await user("logout"))[0] == 0
    assert token not in user.file.read_text()
    assert refresh not in user.file.read_text()
    code, _, err = await user(*WHO)
    assert (code, err.startswith("error: Unauthenticated: credentials are missing")) == (1, True)
    # Issuer and client are known by now.
    assert (await user("login"))[0] == 0
    assert await user(*WHO) == (0, "oidc:ada\n", "")


async def test_an_ended_login_is_renewed_once_by_commands_at_a_time(plane: JwtPlane, user: User) -> None:
    """The issuer takes each refresh token once."""
    assert (await user.log_in(plane.issuer, "--endpoints", plane.api.address))[0] == 0
    user.edit(token=plane.issuer.sign(exp=time.time() - 100), expires=stamp(-100))
    for answer in await asyncio.gather(user(*WHO), user(*WHO), user(*WHO)):
        assert answer == (0, "oidc:ada\n", "")
    assert [form["grant_type"] for form in plane.issuer.forms[2:]] == ["refresh_token"]


async def test_a_login_that_cannot_be_renewed_asks_for_a_new_one(plane: JwtPlane, user: User) -> None:
    issuer = plane.issuer
    assert (await user.log_in(issuer, "--endpoints", plane.api.address))[0] == 0
    # The provider is away shortly before the end: the token still counts.
    issuer.answers[TOKEN] = saying(b"", 503)
    user.edit(expires=stamp(15))
    assert await user(*WHO) == (0, "oidc:ada\n", "")
    user.edit(expires=stamp(-1))
    code, _, err = await user(*WHO)
    assert (code, err.startswith("error: Unavailable: the login of context 'default' has ended, run")) == (1, True)
    issuer.answers = {}
    issuer.refresh_tokens.clear()
    code, _, err = await user(*WHO)
    assert (code, err.startswith("error: Unauthenticated: the login of context 'default' has ended, run")) == (1, True)


@pytest.mark.parametrize(
    ("refusal", "message"),
    [("access_denied", "refused the login: access_denied"), ("\x1b[2J", "refused the login: \\x1b[2J")],
)
async def test_a_refused_login_keeps_nothing(plane: JwtPlane, user: User, refusal: str, message: str) -> None:
    plane.issuer.refusals = [refusal]
    code, _, err = await user.log_in(plane.issuer)
    assert (code, err.splitlines()[-1].startswith("error: Forbidden: the provider")) == (1, True)
    assert message in err
    assert not user.file.exists()


async def test_an_interrupted_login_keeps_nothing(plane: JwtPlane, user: User) -> None:
    plane.issuer.refusals = ["authorization_pending"] * 100
    process = await user.begin("login", "--issuer", plane.issuer.url, "--client-id", CLIENT)
    assert process.stderr is not None
    async with asyncio.timeout(30):
        assert b"WDJB-MJHT" in await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"")
    assert not user.file.exists()


@pytest.mark.parametrize("sort", ["no client", "huge", "no JSON", "a page of javascript"])
async def test_a_provider_that_cannot_begin_a_login_is_told_in_a_line(plane: JwtPlane, user: User, sort: str) -> None:
    page = {"device_code": "d", "user_code": "u", "verification_uri": "javascript:alert(1)"}
    answers = {"huge": saying(b" " * (1 << 20)), "no JSON": saying(b"<html>"), "a page of javascript": saying(page)}
    if sort in answers:
        plane.issuer.answers[DEVICE] = answers[sort]
    client = "stranger" if sort == "no client" else CLIENT
    code, out, err = await user("login", "--issuer", plane.issuer.url, "--client-id", client)
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert err.startswith("error: ")
    assert not user.file.exists()


async def test_a_context_is_chosen_made_and_deleted(plane: JwtPlane, user: User, tmp_path: Path) -> None:
    address = plane.api.address
    for name in ("bob", "carl"):
        (tmp_path / f"{name}.token").write_text(await plane.token(name, "viewer"))
        options = ("--endpoints", address, "--token-file", str(tmp_path / f"{name}.token"))
        assert (await user("config", "set-context", name, *options))[0] == 0
    assert await user(*WHO) == (0, "bob\n", "")
    assert await user(*WHO, "--context", "carl") == (0, "carl\n", "")
    assert (await user("config", "use-context", "carl"))[0] == 0
    assert await user(*WHO) == (0, "carl\n", "")

    # The order of tokens: the file of the option, the environment, the context.
    environment = {"CONTROLPLANE_TOKEN": await plane.token("dora", "viewer")}
    assert await user(*WHO, **environment) == (0, "dora\n", "")
    assert await user(*WHO, "--token-file", str(tmp_path / "bob.token"), **environment) == (0, "bob\n", "")
    # The token of the current context does not go to an address that is named otherwise, but for both by name.
    for arguments, named in ((("--endpoints", address), {}), ((), {"CONTROLPLANE_ENDPOINTS": address})):
        code, _, err = await user(*WHO, *arguments, **named)
        assert (code, "credentials are missing" in err) == (1, True)
    assert await user(*WHO, "--endpoints", address, "--context", "carl") == (0, "carl\n", "")
    assert await user(*WHO, "--context", "bob", CONTROLPLANE_ENDPOINTS="127.0.0.1:1") == (0, "bob\n", "")

    assert (await user("config", "delete-context", "carl"))[0] == 0
    assert (await user("config", "get-contexts", "-o", "name")) == (0, "bob\n", "")
    assert user.config["current"] == ""
    for words in (("config", "use-context", "carl"), (*WHO, "--context", "carl")):
        code, _, err = await user(*words)
        assert (code, err.startswith("error: NotFound: context: there is no context 'carl'")) == (1, True)


async def test_a_file_that_others_can_read_is_not_used(user: User, tmp_path: Path) -> None:
    file = tmp_path / "shared.json"
    file.write_text('{"current": "", "contexts": {}}')
    file.chmod(0o644)
    code, _, err = await user("config", "get-contexts", CONTROLPLANE_CONFIG=str(file))
    assert (code, err) == (1, f"error: Invalid: config: {file} must not be open to others: chmod 600 {file}\n")
    file.chmod(0o600)
    assert (await user("config", "get-contexts", CONTROLPLANE_CONFIG=str(file)))[0] == 0
    file.write_text("{")
    code, _, err = await user("config", "view", CONTROLPLANE_CONFIG=str(file))
    assert (code, err.startswith(f"error: Invalid: config: {file} cannot be read")) == (1, True)


async def test_changes_at_one_moment_lose_nothing(user: User) -> None:
    names = [f"c{number}" for number in range(6)]
    await asyncio.gather(*(user("config", "set-context", name, "--endpoints", "127.0.0.1:1") for name in names))
    assert sorted(user.config["contexts"]) == names


@pytest.mark.long
async def test_a_watch_goes_on_with_a_renewed_login_when_its_token_ends(plane: JwtPlane, user: User) -> None:
    await plane.bind("ada", "submitter", subject="oidc:ada")
    assert (await user.log_in(plane.issuer, "--endpoints", plane.api.address))[0] == 0
    end = time.time() + 10
    user.edit(token=plane.issuer.sign(exp=end), expires=stamp(3600))
    watch = await user.begin("get", "jobs", "--watch", "-o", "name")
    assert watch.stdout is not None

    async def create(name: str) -> None:
        job = Job(name=name, command=("true",), owner="oidc:ada")
        await plane.api.write({keys.config("jobs", name): job})

    try:
        async with asyncio.timeout(60):
            await create("first")
            assert await watch.stdout.readline() == b"first\n"
            await create("second")
            assert await watch.stdout.readline() == b"second\n"
            # The stream is open. The next call, at the latest that of another stream, renews the login.
            user.edit(expires=stamp(10))
            while time.time() < end + 1 or plane.issuer.forms[-1].get("grant_type") != "refresh_token":
                await asyncio.sleep(0.02)
            await create("third")
            assert await watch.stdout.readline() == b"third\n"
    finally:
        watch.terminate()
        await watch.wait()

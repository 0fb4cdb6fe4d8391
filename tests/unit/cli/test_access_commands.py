"""`cpctl token`, `grant`, `ungrant` and `auth`: requests, what is shown in each format, and exit codes."""

from __future__ import annotations

import json

import pytest

from controlplane.model import errors
from controlplane.wire.v1 import access_pb2
from tests.unit.cli.test_exit_codes import ORDER, ask, cpctl
from tests.unit.client.scripted_replica import ScriptedReplica, always, failing

TEXT = "cp_secret"
CREATED = "2026-01-01T00:00:00.000Z"
EXPIRES = "2026-01-31T00:00:00.000Z"
TOKEN = access_pb2.Token(
    id=ORDER,
    subject="bob",
    roles=["submitter", "viewer"],
    owner="film",
    created=CREATED,
    creator="ada",
    expires=EXPIRES,
)
MADE = access_pb2.CreatedToken(revision=7, item=TOKEN, token=TEXT)
BINDING = access_pb2.Binding(
    name="viewer-bob-film", role="viewer", subject="bob", owner="film", created=CREATED, creator="ada"
)
BOB = access_pb2.WhoAmIResponse(
    name="bob",
    groups=["editors"],
    roles=["submitter", "viewer"],
    via=ORDER,
    grants=[access_pb2.RoleGrant(role="submitter"), access_pb2.RoleGrant(role="viewer", owner="film")],
)
CREATE = ("token", "create", "--subject", "bob", "--role", "submitter")


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


# Tokens


async def test_a_new_token_is_asked_for_with_every_option() -> None:
    replica = ScriptedReplica(Access_CreateToken=always(MADE))
    options = ("--role", "joblet", "--owner", "film", "--group", "editors", "--target", "a", "--target", "b")
    code, _, _ = await ask(replica, *CREATE, *options, "--driver", "process", "--expires", "30d")
    assert code == 0
    [(_, request)] = replica.requests
    assert request == access_pb2.CreateTokenRequest(
        subject="bob",
        roles=["submitter", "joblet"],
        owner="film",
        groups=["editors"],
        targets=["a", "b"],
        driver="process",
        expires_seconds=30 * 86400,
    )


async def test_without_expires_a_token_never_ends() -> None:
    replica = ScriptedReplica(Access_CreateToken=always(MADE))
    await ask(replica, *CREATE)
    assert replica.requests[0][1].expires_seconds == 0


async def test_the_json_of_a_new_token_is_that_of_the_contract() -> None:
    code, out, err = await ask(ScriptedReplica(Access_CreateToken=always(MADE)), *CREATE, "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "id": ORDER,
        "subject": "bob",
        "roles": ["submitter", "viewer"],
        "owner": "film",
        "expires": EXPIRES,
        "token": TEXT,
    }


async def test_a_table_shows_the_text_on_stdout_and_says_on_stderr_that_this_is_the_only_time() -> None:
    code, out, err = await ask(ScriptedReplica(Access_CreateToken=always(MADE)), *CREATE)
    assert code == 0
    assert cells(out) == [
        ["ID", "SUBJECT", "ROLES", "OWNER", "EXPIRES", "TOKEN"],
        [ORDER, "bob", "submitter,viewer", "film", EXPIRES, TEXT],
    ]
    assert len(err.splitlines()) == 1
    assert "only once" in err


async def test_a_new_token_as_a_name_is_its_text_alone() -> None:
    code, out, err = await ask(ScriptedReplica(Access_CreateToken=always(MADE)), *CREATE, "-o", "name")
    assert (code, out, err) == (0, f"{TEXT}\n", "")


@pytest.mark.parametrize("expires", ["0", "0s", "soon", "-1d"])
async def test_a_token_that_ends_at_once_or_never_is_not_asked_for(expires: str) -> None:
    replica = ScriptedReplica(Access_CreateToken=always(MADE))
    code, out, err = await ask(replica, *CREATE, f"--expires={expires}")
    assert (code, out, replica.requests) == (1, "", [])
    assert err.startswith("error: Invalid: expires: ")


@pytest.mark.parametrize("missing", [("--subject", "bob"), ("--role", "viewer")])
async def test_a_token_needs_a_subject_and_a_role(missing: tuple[str, str]) -> None:
    code, out, err = await cpctl("token", "create", *missing)
    assert (code, out) == (1, "")
    assert err.startswith("error: Usage: Missing option")


async def test_tokens_are_listed_without_their_texts() -> None:
    replica = ScriptedReplica(Access_ListTokens=always(access_pb2.ListTokensResponse(revision=9, items=[TOKEN])))
    async with replica.serve():
        _, table, _ = await cpctl("token", "list", endpoints=replica.endpoint)
        _, names, _ = await cpctl("token", "list", "-o", "name", endpoints=replica.endpoint)
        _, out, _ = await cpctl("token", "list", "-o", "json", endpoints=replica.endpoint)
    assert cells(table)[1] == [ORDER, "bob", "submitter,viewer", "film", EXPIRES]
    assert names == f"{ORDER}\n"
    listed = json.loads(out)
    assert listed["revision"] == 9
    assert set(listed["items"][0]) == {
        "kind", "id", "subject", "roles", "owner", "groups", "targets", "driver", "created", "creator", "expires",
            "enrolled", "renewed",
    }  # fmt: skip


async def test_a_token_is_revoked_by_its_id() -> None:
    replica = ScriptedReplica(Access_RevokeToken=always(access_pb2.RevokeTokenResponse(revision=8)))
    code, out, _ = await ask(replica, "token", "revoke", ORDER, "-o", "json")
    assert code == 0
    assert json.loads(out) == {"kind": "Token", "id": ORDER, "result": "revoked", "revision": 8}
    assert replica.requests[0][1].id == ORDER


async def test_a_refused_revocation_is_1() -> None:
    refusing = failing(errors.IllegalTransition("the last administrator cannot be removed: make another one first"))
    answer = await ask(ScriptedReplica(Access_RevokeToken=refusing), "token", "revoke", ORDER)
    assert answer == (
        1, "", "error: IllegalTransition: the last administrator cannot be removed: make another one first\n"
    )  # fmt: skip


async def test_a_typo_suggests_list_and_never_revoke() -> None:
    _, _, near_list = await cpctl("token", "lst")
    _, _, near_revoke = await cpctl("token", "revok")
    assert "Did you mean 'list'?" in near_list
    assert "Did you mean" not in near_revoke


# Bindings


async def test_a_role_is_granted_to_a_subject_for_an_owner() -> None:
    replica = ScriptedReplica(Access_Grant=always(access_pb2.BindingResponse(revision=4, item=BINDING)))
    code, out, _ = await ask(replica, "grant", "viewer", "--subject", "bob", "--owner", "film")
    assert code == 0
    assert cells(out) == [
        ["NAME", "ROLE", "SUBJECT", "GROUP", "OWNER"],
        ["viewer-bob-film", "viewer", "bob", "-", "film"],
    ]
    assert replica.requests[0][1] == access_pb2.Binding(role="viewer", subject="bob", owner="film")


async def test_a_binding_as_json_is_the_object_and_as_a_name_its_name() -> None:
    replica = ScriptedReplica(Access_Grant=always(access_pb2.BindingResponse(revision=4, item=BINDING)))
    async with replica.serve():
        _, out, _ = await cpctl("grant", "viewer", "--group", "g", "-o", "json", endpoints=replica.endpoint)
        _, name, _ = await cpctl("grant", "viewer", "--group", "g", "-o", "name", endpoints=replica.endpoint)
    assert json.loads(out)["kind"] == "Binding"
    assert name == "viewer-bob-film\n"


@pytest.mark.parametrize("to", [(), ("--subject", "bob", "--group", "editors")])
async def test_a_role_goes_to_either_a_subject_or_a_group(to: tuple[str, ...]) -> None:
    answer = await cpctl("grant", "viewer", *to)
    assert answer == (1, "", "error: Invalid: subject: give either --subject or --group\n")


async def test_a_binding_is_deleted_by_its_name() -> None:
    replica = ScriptedReplica(Access_Ungrant=always(access_pb2.UngrantResponse(revision=5)))
    code, out, _ = await ask(replica, "ungrant", "viewer-bob-film", "-o", "json")
    assert code == 0
    assert json.loads(out) == {"kind": "Binding", "name": "viewer-bob-film", "result": "deleted", "revision": 5}


async def test_bindings_are_listed_and_none_is_said() -> None:
    some = always(access_pb2.ListBindingsResponse(revision=3, items=[BINDING]))
    none = always(access_pb2.ListBindingsResponse(revision=3))
    _, out, _ = await ask(ScriptedReplica(Access_ListBindings=some), "auth", "bindings", "-o", "name")
    empty = await ask(ScriptedReplica(Access_ListBindings=none), "auth", "bindings")
    assert out == "viewer-bob-film\n"
    assert empty == (0, "", "no bindings\n")


@pytest.mark.parametrize(("kind", "command"), [("bindings", "cpctl auth bindings"), ("Token", "cpctl token list")])
async def test_get_names_the_command_that_lists_tokens_and_bindings(kind: str, command: str) -> None:
    answer = await cpctl("get", kind)
    assert answer == (1, "", f"error: Invalid: kind: {kind} are shown by `{command}`\n")


# The caller


async def test_the_caller_is_shown_with_the_owner_that_bounds_each_role() -> None:
    code, out, _ = await ask(ScriptedReplica(Access_WhoAmI=always(BOB)), "auth", "whoami")
    assert code == 0
    assert cells(out)[1] == ["bob", "submitter,viewer", "of", "film", "editors", "-"]


async def test_the_caller_as_json_has_every_field() -> None:
    _, out, _ = await ask(ScriptedReplica(Access_WhoAmI=always(BOB)), "auth", "whoami", "-o", "json")
    assert json.loads(out) == {
        "name": "bob",
        "groups": ["editors"],
        "roles": ["submitter", "viewer"],
        "targets": [],
        "via": ORDER,
        "expires": "",
        "grants": [{"role": "submitter", "owner": ""}, {"role": "viewer", "owner": "film"}],
    }


async def test_an_open_plane_has_no_caller_and_says_so() -> None:
    nobody = access_pb2.WhoAmIResponse(via="insecure", grants=[access_pb2.RoleGrant(role="admin")])
    code, _, err = await ask(ScriptedReplica(Access_WhoAmI=always(nobody)), "auth", "whoami")
    assert code == 0
    assert err == "this plane asks nobody for credentials (--insecure)\n"


async def test_yes_is_0() -> None:
    replica = ScriptedReplica(Access_CanI=always(access_pb2.CanIResponse(allowed=True)))
    answer = await ask(replica, "auth", "can-i", "create", "order", "--owner", "bob")
    assert answer == (0, "yes\n", "")
    assert replica.requests[0][1] == access_pb2.CanIRequest(verb="create", kind="order", owner="bob")


async def test_no_is_2_with_the_reason() -> None:
    no = always(access_pb2.CanIResponse(allowed=False, reason="'bob' (submitter) may not read token"))
    table = await ask(ScriptedReplica(Access_CanI=no), "auth", "can-i", "read", "token")
    code, out, _ = await ask(ScriptedReplica(Access_CanI=no), "auth", "can-i", "read", "token", "-o", "json")
    assert table == (2, "no: 'bob' (submitter) may not read token\n", "")
    assert code == 2
    assert json.loads(out) == {
        "allowed": False,
        "verb": "read",
        "kind": "token",
        "owner": "",
        "reason": "'bob' (submitter) may not read token",
    }


async def test_a_token_may_be_named_by_an_alias_and_again_by_its_user(tmp_path: object) -> None:
    replica = ScriptedReplica(Access_WhoAmI=always(BOB))
    files = ("--token-file", f"{tmp_path}/none", "--token-file", f"{tmp_path}/neither")
    code, _, err = await ask(replica, "auth", "whoami", *files)
    assert (code, replica.requests) == (1, [])
    assert err.startswith(f"error: Invalid: token-file: {tmp_path}/neither cannot be read")


async def test_an_enrolment_names_the_targets_of_one_joblet_and_ends_within_an_hour() -> None:
    item = access_pb2.Token(id=ORDER, targets=["sim-0", "sim-1"], driver="simulated", owner="olga", expires=EXPIRES)
    replica = ScriptedReplica(Access_CreateEnrolment=always(access_pb2.CreatedToken(item=item, token=TEXT)))
    code, out, err = await ask(replica, "enrol", "sim", "--count", "2", "--driver", "simulated", "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "id": ORDER, "targets": ["sim-0", "sim-1"], "driver": "simulated", "owner": "olga", "expires": EXPIRES,
        "token": TEXT,
    }  # fmt: skip
    asked = replica.requests[0][1]
    assert (list(asked.targets), asked.driver, asked.expires_seconds) == (["sim-0", "sim-1"], "simulated", 3600)

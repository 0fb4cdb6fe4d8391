"""JWTs of an issuer: good ones of every algorithm, forged ones of every sort, and keys that are not taken."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from controlplane.apiserver import jwt_tokens
from controlplane.apiserver.jwt_keys import SigningKeys, read_keys
from controlplane.apiserver.jwt_tokens import IssuerRules, JwtIdentity
from controlplane.model.errors import Unauthenticated, Unavailable
from tests.forged_jwts import forgeries
from tests.issuer import AUDIENCE, Issuer, ed_key, rsa_key


def an_issuer() -> Issuer:
    issuer = Issuer()
    issuer.url = "https://issuer.example"
    issuer.keys["rsa"] = rsa_key()
    issuer.keys["ed"] = ed_key()
    issuer.published |= {"rsa", "ed"}
    return issuer


ISSUER = an_issuer()
RULES = IssuerRules(issuer=ISSUER.url, audience=AUDIENCE)
KEYS = read_keys(msgspec.json.encode(ISSUER.key_set()))
FORGED = forgeries(ISSUER)


def judged(text: str, rules: IssuerRules = RULES, keys: SigningKeys = KEYS) -> JwtIdentity:
    head = jwt_tokens.read_head(text)
    key = keys.find(head.kid, head.algorithm)
    if key is None:
        raise jwt_tokens.refused("(kid)")
    return jwt_tokens.check_claims(jwt_tokens.check_signature(text, head, key), rules, datetime.now(UTC))


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_token_is_refused_by_its_rule_and_never_shown(name: str) -> None:
    text, rule = FORGED[name]
    with pytest.raises(Unauthenticated) as refusal:
        judged(text)
    assert rule in str(refusal.value)
    assert not any(part and part in str(refusal.value) for part in text.split("."))


@pytest.mark.parametrize(
    ("kid", "algorithm"),
    [("first", "ES256"), ("ed", "Ed25519"), ("ed", "EdDSA")]
    + [("rsa", name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")],
)
@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
def test_a_good_token_of_every_algorithm_proves_its_bearer(kid: str, algorithm: str) -> None:
    end = float(int(time.time()) + 300)
    text = ISSUER.sign(kid, head={"alg": algorithm}, groups=["b", "a", "a"], exp=end)
    identity = judged(text)
    assert identity == JwtIdentity("oidc:ada", ("oidc:a", "oidc:b"), datetime.fromtimestamp(end, UTC))


def test_checking_a_token_by_the_old_name_of_an_algorithm_warns_nobody() -> None:
    with pytest.warns(UserWarning, match="EdDSA"):
        text = ISSUER.sign("ed", head={"alg": "EdDSA"})
    assert judged(text).name == "oidc:ada"


def test_clocks_may_differ_by_a_minute() -> None:
    now = time.time()
    assert judged(ISSUER.sign(exp=now - 50)).name == "oidc:ada"
    assert judged(ISSUER.sign(nbf=now + 50)).name == "oidc:ada"


def test_one_audience_of_several_and_a_single_group_as_text_are_enough() -> None:
    assert judged(ISSUER.sign(aud=["grafana", AUDIENCE], groups="film")).groups == ("oidc:film",)


def test_an_address_names_a_subject_only_when_the_issuer_has_verified_it() -> None:
    rules = msgspec.structs.replace(RULES, name_claim="email")
    assert judged(ISSUER.sign(email="ada@example.org", email_verified=True), rules).name == "oidc:ada@example.org"
    for verified in (False, None, "true"):
        with pytest.raises(Unauthenticated, match="email_verified"):
            judged(ISSUER.sign(email="ada@example.org", email_verified=verified), rules)


@pytest.mark.parametrize("name", ["replica", "joblet", "root", "oidc:ada"])
def test_no_issuer_can_name_a_local_subject(name: str) -> None:
    assert judged(ISSUER.sign(sub=name, groups=[name]))[:2] == (f"oidc:{name}", (f"oidc:{name}",))


def test_without_a_kid_the_only_key_of_an_issuer_is_taken() -> None:
    alone = read_keys(msgspec.json.encode({"keys": [ISSUER.keys["first"].as_dict(private=False)]}))
    assert judged(ISSUER.sign(head={"kid": ""}), keys=alone).name == "oidc:ada"


def small_rsa(bits: int) -> dict[str, Any]:
    with pytest.warns(UserWarning, match="Key size"):
        return dict(RSAKey.generate_key(bits, auto_kid=False).as_dict(private=False))


SMALL = small_rsa(1024)
UNUSABLE: dict[str, dict[str, Any]] = {
    "symmetric": dict(OctKey.generate_key(256).as_dict(private=True)),
    "private": dict(ISSUER.keys["first"].as_dict(private=True)),
    "for encryption": {**ISSUER.keys["first"].as_dict(private=False), "use": "enc"},
    "of another algorithm": {**ISSUER.keys["first"].as_dict(private=False), "alg": "HS256"},
    "on a slow curve": dict(ECKey.generate_key("P-521").as_dict(private=False)),
    "for key agreement": dict(OKPKey.generate_key("X25519").as_dict(private=False)),
    "short": SMALL,
    "oversized": {"kty": "RSA", "n": "w" * 100_000, "e": "AQAB"},
    "of a huge exponent": {**ISSUER.keys["rsa"].as_dict(private=False), "e": "_" * 300},
    "of no point": {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
    "of numbers": {"kty": "RSA", "n": 5, "e": 3},
    "with a kid of no text": {**ISSUER.keys["first"].as_dict(private=False), "kid": 7},
    "short behind zeros": {**SMALL, "n": "A" * 200 + SMALL["n"]},
    "with a list as alg": {**ISSUER.keys["first"].as_dict(private=False), "alg": ["ES256"]},
    "of lists": {"kty": ["RSA"], "n": [], "alg": []},
    "of nothing": {},
}


@pytest.mark.parametrize("sort", UNUSABLE)
def test_a_key_that_cannot_be_used_is_left_out(sort: str) -> None:
    good = {**ISSUER.keys["first"].as_dict(private=False), "kid": "good"}
    keys = read_keys(msgspec.json.encode({"keys": [UNUSABLE[sort], good]}))
    assert len(keys.thumbprints) == 1
    assert keys.find("good", "ES256") is not None
    with pytest.raises(Unavailable, match="no usable key"):
        read_keys(msgspec.json.encode({"keys": [UNUSABLE[sort]]}))


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"keys": {}}', b"\xff", b'{"keys":' + b"[" * 100_000])
def test_a_document_that_is_no_key_set_is_no_answer(content: bytes) -> None:
    with pytest.raises(Unavailable):
        read_keys(content)


def test_a_key_counts_for_its_algorithm_only() -> None:
    keys = read_keys(msgspec.json.encode({"keys": [{**ISSUER.key_set()["keys"][-1], "alg": "PS256"}]}))
    assert keys.find("rsa", "PS256") is not None
    assert keys.find("rsa", "RS256") is None

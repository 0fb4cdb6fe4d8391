"""Forged JWTs: for each rule of the verifier a token that breaks this rule and no other, by the name of the forgery."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

from joserfc import jws, jwt

from tests.issuer import AUDIENCE, Issuer, ec_key, rsa_key


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def glued(head: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    return f"{b64(json.dumps(head).encode())}.{b64(json.dumps(claims).encode())}.{b64(signature)}"


def _hs256(kid: str, secret: bytes, claims: dict[str, Any]) -> str:
    """Signed with the public key as if it were a shared secret."""
    unsigned = glued({"alg": "HS256", "kid": kid, "typ": "JWT"}, claims).rpartition(".")[0]
    return f"{unsigned}.{b64(hmac.new(secret, unsigned.encode(), hashlib.sha256).digest())}"


def forgeries(issuer: Issuer) -> dict[str, tuple[str, str]]:
    """Each with a part of the sentence with which it must be refused. The issuer has a key `rsa` and a key `first`."""
    now = time.time()
    claims = {"iss": issuer.url, "aud": AUDIENCE, "sub": "ada", "exp": now + 300}
    stranger = ec_key()
    own_key = {"alg": "ES256", "kid": "first", "jwk": stranger.as_dict(private=False)}
    good = issuer.sign()
    head, body, signature = good.split(".")
    changed = b64(json.dumps({**claims, "sub": "root"}).encode())
    public = issuer.keys["rsa"].as_dict(private=False)
    pem = issuer.keys["rsa"].as_pem(private=False)  # type: ignore[union-attr]
    nested = b'{"a":' + b"[" * 480
    no_crit = {"crit": ["b64"], "b64": True}
    return {
        "alg none": (glued({"alg": "none", "kid": "first"}, claims), "(alg)"),
        "alg None": (glued({"alg": "None", "kid": "first"}, claims), "(alg)"),
        "no alg": (glued({"kid": "first"}, claims), "(alg)"),
        "alg list": (glued({"alg": ["ES256"], "kid": "first"}, claims), "(alg)"),
        "HS256 with the public PEM": (_hs256("rsa", pem, claims), "(alg)"),
        "HS256 with the public JWK": (_hs256("rsa", json.dumps(public).encode(), claims), "(alg)"),
        "embedded jwk": (jwt.encode(own_key, claims, stranger), "brings a key of its own"),
        "jku": (issuer.sign(head={"jku": "https://evil.example/keys"}), "brings a key of its own"),
        "x5u": (issuer.sign(head={"x5u": "https://evil.example/cert"}), "brings a key of its own"),
        "unknown crit": (glued({"alg": "ES256", "kid": "first", **no_crit}, claims, b"x" * 64), "(crit)"),
        "another typ": (issuer.sign(head={"typ": "logout+jwt"}), "(typ)"),
        "unknown kid": (issuer.sign(head={"kid": "other"}), "(kid)"),
        "no kid": (jwt.encode({"alg": "ES256"}, claims, issuer.keys["first"]), "(kid)"),
        "kid of another type of key": (jwt.encode({"alg": "RS256", "kid": "first"}, claims, rsa_key()), "(kid)"),
        "another key with the kid": (jwt.encode({"alg": "ES256", "kid": "first"}, claims, stranger), "signature"),
        "changed claims": (f"{head}.{changed}.{signature}", "signature"),
        "no signature": (f"{head}.{body}.", "signature"),
        "zeros as signature": (f"{head}.{body}.{b64(bytes(64))}", "signature"),
        "no exp": (issuer.sign(exp=None), "(exp)"),
        "expired": (issuer.sign(exp=now - 61), "(exp)"),
        "exp as text": (issuer.sign(exp=str(now + 300)), "(exp)"),
        "exp true": (issuer.sign(exp=True), "(exp)"),
        "exp at the end of days": (issuer.sign(exp=1e300), "(exp)"),
        "exp below zero": (issuer.sign(exp=-1), "(exp)"),
        "nbf ahead": (issuer.sign(nbf=now + 90), "(nbf)"),
        "nbf as text": (issuer.sign(nbf="tomorrow"), "(nbf)"),
        "another iss": (issuer.sign(iss="https://evil.example"), "(iss)"),
        "iss with a slash": (issuer.sign(iss=f"{issuer.url}/"), "(iss)"),
        "no iss": (issuer.sign(iss=None), "(iss)"),
        "another aud": (issuer.sign(aud="grafana"), "(aud)"),
        "list of other aud": (issuer.sign(aud=["grafana", "cpctl2"]), "(aud)"),
        "aud as object": (issuer.sign(aud={AUDIENCE: 1}), "(aud)"),
        "no aud": (issuer.sign(aud=None), "(aud)"),
        "no name": (issuer.sign(sub=None), "(sub)"),
        "empty name": (issuer.sign(sub=""), "(sub)"),
        "name as number": (issuer.sign(sub=7), "(sub)"),
        "name that steers": (issuer.sign(sub="ada\u202eroot"), "(sub)"),
        "name of two lines": (issuer.sign(sub="ada\nroot"), "(sub)"),
        "long name": (issuer.sign(sub="a" * 257), "(sub)"),
        "groups as object": (issuer.sign(groups={"a": 1}), "(groups)"),
        "group as number": (issuer.sign(groups=["a", 1]), "(groups)"),
        "too many groups": (issuer.sign(groups=[f"g{i}" for i in range(201)]), "(groups)"),
        "oversized": (issuer.sign(padding="x" * 5480), "longer than"),
        "oversized head": (issuer.sign(head={"kid": "k" * 600}), "short head"),
        "two parts": (f"{head}.{body}", "three parts"),
        "five parts": (f"{good}.{body}.{signature}", "three parts"),
        "head of no JSON": (f"eyJ{b64(b'oops')}.{body}.{signature}", "head"),
        "nested head": (f"{b64(nested)}.{body}.{signature}", "head"),
        "claims of no object": (_list_claims(issuer), "claims"),
    }


def _list_claims(issuer: Issuer) -> str:
    return jws.serialize_compact({"alg": "ES256", "kid": "first"}, b"[1]", issuer.keys["first"])

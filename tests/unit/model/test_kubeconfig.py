"""Which kubeconfigs are taken, and what is taken of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.model import kubeconfig
from controlplane.model.errors import Invalid
from tests.kubeconfigs import KEY_PEM, PEM, TOKEN, a_kubeconfig, base64_of, written

Change = Callable[[dict[str, Any]], object]


def changed(change: Change) -> str:
    config = a_kubeconfig()
    change(config)
    return written(config)


def cluster(**fields: Any) -> Change:
    return lambda config: config["clusters"][0]["cluster"].update(_dashed(fields))


def user(**fields: Any) -> Change:
    return lambda config: config["users"][0]["user"].update(_dashed(fields))


def context(**fields: Any) -> Change:
    return lambda config: config["contexts"][0]["context"].update(fields)


def _dashed(fields: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in fields.items()}


def more(plural: str, **fields: Any) -> Change:
    return lambda config: config[plural].append(fields)


def without(name: str) -> Change:
    return lambda config: config.pop(name)


def test_a_sound_one_becomes_what_is_needed_of_it() -> None:
    found = kubeconfig.parse(written(a_kubeconfig()))
    assert found == kubeconfig.Kubeconfig(server="https://127.0.0.1:6443", ca=PEM, token=TOKEN, namespace="jobs")


def test_the_server_is_put_together_from_its_parts() -> None:
    """Parsers of URLs leave out tabs and line ends, which others take for parts of the URL."""
    for raw, server in (
        ("https://CLUSTER.example:6443/k8s/a", "https://cluster.example:6443/k8s/a"),
        ("https://a.exa\tmple", "https://a.example"),
        ("https://[fd00::1]:6443", "https://[fd00::1]:6443"),
    ):
        assert kubeconfig.parse(changed(cluster(server=raw))).server == server


def test_a_client_certificate_serves_as_well_as_a_token() -> None:
    def change(config: dict[str, Any]) -> None:
        config["users"][0]["user"] = {
            "client-certificate-data": base64_of(PEM),
            "client-key-data": base64_of(KEY_PEM),
        }
        config["clusters"][0]["cluster"]["tls-server-name"] = "kubernetes.default"

    found = kubeconfig.parse(changed(change))
    assert (found.token, found.client_certificate, found.client_key) == ("", PEM, KEY_PEM)
    assert found.tls_server_name == "kubernetes.default"


def test_what_is_rendered_says_the_same() -> None:
    found = kubeconfig.parse(written(a_kubeconfig()))
    assert kubeconfig.parse(kubeconfig.render(found)) == found


def test_the_only_context_needs_no_current_context_and_false_is_no_harm() -> None:
    kubeconfig.parse(changed(without("current-context")))
    kubeconfig.parse(changed(cluster(insecure_skip_tls_verify=False)))


REFUSED: list[tuple[Change, str]] = [
    (user(exec={"command": "aws"}), "users[0].user.exec"),
    (user(auth_provider={"name": "gcp"}), "users[0].user.auth-provider"),
    (lambda config: config["users"][0]["user"].update(tokenFile="/etc/passwd"), "users[0].user.tokenFile"),
    (user(client_certificate="/etc/c.pem"), "users[0].user.client-certificate"),
    (user(client_key="/etc/k.pem"), "users[0].user.client-key"),
    (user(username="u"), "users[0].user.username"),
    (user(password="p"), "users[0].user.password"),
    (user(**{"as": "admin"}), "users[0].user.as"),
    (user(client_key_data=base64_of(KEY_PEM)), "users[0].user.client-key-data"),
    (
        user(client_key_data=base64_of(KEY_PEM), client_certificate_data=base64_of(PEM)),
        "users[0].user",
    ),
    (user(token=""), "users[0].user"),
    (user(token="two words"), "users[0].user.token"),
    (user(token=5), "users[0].user.token"),
    (cluster(certificate_authority="/etc/ca.pem"), "clusters[0].cluster.certificate-authority"),
    (cluster(insecure_skip_tls_verify=True), "clusters[0].cluster.insecure-skip-tls-verify"),
    (cluster(insecure_skip_tls_verify="yes"), "clusters[0].cluster.insecure-skip-tls-verify"),
    (cluster(proxy_url="http://proxy:1"), "clusters[0].cluster.proxy-url"),
    (cluster(server="http://a:1"), "clusters[0].cluster.server"),
    (cluster(server="https://"), "clusters[0].cluster.server"),
    (cluster(server="https://u:p@a"), "clusters[0].cluster.server"),
    (cluster(server="https://a?b=c"), "clusters[0].cluster.server"),
    (cluster(server="https://a:99999"), "clusters[0].cluster.server"),
    (cluster(server="https://a/b c"), "clusters[0].cluster.server"),
    (cluster(server="https://a/\u202eb"), "clusters[0].cluster.server"),
    (user(client_key_data=base64_of("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")), "users[0].user.client-key-data"),
    (
        user(client_key_data=base64_of("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n")),
        "users[0].user.client-key-data",
    ),
    (cluster(server="unix:///run/k.sock"), "clusters[0].cluster.server"),
    (cluster(certificate_authority_data="!"), "clusters[0].cluster.certificate-authority-data"),
    (cluster(certificate_authority_data=base64_of("no pem")), "clusters[0].cluster.certificate-authority-data"),
    (cluster(tls_server_name="a b"), "clusters[0].cluster.tls-server-name"),
    (cluster(unheard_of=1), "clusters[0].cluster.unheard-of"),
    (context(cluster="other"), "contexts[0].context.cluster"),
    (context(user="other"), "contexts[0].context.user"),
    (context(namespace="../up"), "contexts[0].context.namespace"),
    (lambda config: config.update({"current-context": "other"}), "current-context"),
    (more("contexts", name="x", context={"cluster": "c", "user": "u"}), "contexts[1].name"),
    (more("users", name="v", user={"exec": {"command": "sh"}}), "users[1].user.exec"),
    (more("clusters", name="d", cluster={"server": "http://b"}), "clusters[1].cluster.server"),
    (without("clusters"), "clusters"),
    (lambda config: config.update(users=[]), "users"),
    (lambda config: config.update(kind="Pod"), "kind"),
    (lambda config: config.update(extra=1), "extra"),
]


@pytest.mark.parametrize(("change", "field"), REFUSED, ids=[f"{at}-{field}" for at, (_, field) in enumerate(REFUSED)])
def test_what_is_not_safe_is_refused_by_its_path_and_not_shown(change: Change, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        kubeconfig.parse(changed(change), "data.kubeconfig")
    assert refused.value.field == f"data.kubeconfig.{field}"
    assert TOKEN not in str(refused.value)


def test_of_several_contexts_one_must_be_the_current_one() -> None:
    def change(config: dict[str, Any]) -> None:
        config["contexts"].append({"name": "y", "context": {"cluster": "c", "user": "u"}})
        del config["current-context"]

    with pytest.raises(Invalid) as refused:
        kubeconfig.parse(changed(change))
    assert refused.value.field == "kubeconfig.current-context"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just text",
        "[]",
        f"{{token: {TOKEN}",
        f"a: 1\na: {TOKEN}",
        f"a: &x {TOKEN}\nb: *x",
        f"<<: {{a: {TOKEN}}}",
        f"a: !!python/object/apply:os.system [{TOKEN}]",
        f"\ttoken: {TOKEN}\x07",
        "[" * 5000,
        f"# {TOKEN}\n" + "x" * kubeconfig.MAX_BYTES,
        f"? {{{TOKEN}: 1}}\n: 1",
    ],
)
def test_what_is_no_plain_yaml_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        kubeconfig.parse(text)
    assert refused.value.field == "kubeconfig"
    assert TOKEN not in str(refused.value)


def test_it_does_not_show_itself() -> None:
    found = kubeconfig.parse(written(a_kubeconfig()))
    assert TOKEN not in repr(found)
    assert TOKEN in found.hidden()


@pytest.mark.parametrize(
    "value",
    [
        "!!bool My-Token", "!!timestamp My-Token", "!!int My-Token", "!!float My-Token", "!!null My-Token",
        "!!binary My-Token", "!!python/object:My-Token {}", "!My-Token x", "!!set {My-Token}", "!!omap [My-Token]",
        "!<tag:yaml.org,2002:timestamp> My-Token",
    ],
)  # fmt: skip
def test_a_tag_is_refused_and_nothing_of_the_value_is_told(value: str) -> None:
    text = written(a_kubeconfig()).replace(f'"{TOKEN}"', value)
    assert value in text
    with pytest.raises(Invalid) as refused:
        kubeconfig.parse(text, "secret s: kubeconfig")
    assert refused.value.field == "secret s: kubeconfig"
    assert "tags are not taken" in str(refused.value)
    assert "my-token" not in str(refused.value).lower()
    assert refused.value.__suppress_context__


@given(st.data())
def test_whatever_is_in_the_text_is_taken_or_refused_by_name(data: st.DataObject) -> None:
    """No other exception: it would reach a log with a piece of the secret in it."""
    text = written(a_kubeconfig())
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    pieces = ["!!bool ", "!!timestamp ", "2026-99-99", "0x", "1" * 5000, "{", "[", "'", '"', "\0", "\ud800", "é", "? "]
    piece = data.draw(st.one_of(st.sampled_from(pieces), st.text(max_size=20)))
    with suppress(Invalid):
        kubeconfig.parse(text[:start] + piece + text[end:])


@pytest.mark.parametrize("field", ["client-certificate-data", "client-key-data"])
def test_a_certificate_that_is_no_ascii_is_refused_by_its_field(field: str) -> None:
    def change(config: dict[str, Any]) -> None:
        config["users"][0]["user"] = {
            "client-certificate-data": base64_of(PEM),
            "client-key-data": base64_of(KEY_PEM),
            field: "zażółć",
        }

    with pytest.raises(Invalid) as refused:
        kubeconfig.parse(changed(change))
    assert refused.value.field.endswith(field)

"""A kubeconfig from outside, parsed strictly into the few values that are needed.

The author of a kubeconfig must not be able to run a command, to read a file of a replica or to send its requests to an
unproven server. So only known fields pass, all values are in the text itself, and the server is proven by TLS. All
clusters and users of the text are held to these rules, not only those in use. Every refusal is an Invalid that names
the field by its path and never shows a value: any value may be a secret.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from controlplane.model.errors import Invalid
from controlplane.model.object import Part

MAX_BYTES = 64 * 1024
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9.:-]{1,253}")
_PATH = re.compile(r"(/[A-Za-z0-9/._~%-]{0,1000})?")
_ENCRYPTED = re.compile(r"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type:.*ENCRYPTED", re.MULTILINE)
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")
_FILES = "must not name a file: put its content into {} instead"

_IGNORED = frozenset({"preferences", "extensions"})
_TOP = frozenset({"apiVersion", "kind", "clusters", "users", "contexts", "current-context", *_IGNORED})
_CLUSTER = frozenset({"server", "certificate-authority-data", "tls-server-name", "extensions"})
_USER = frozenset({"token", "client-certificate-data", "client-key-data", "extensions"})
_CONTEXT = frozenset({"cluster", "user", "namespace", "extensions"})
# Fields that are refused, and the reasons.
_RULES: Mapping[str, str] = {
    "exec": "must not be there: nothing is run to log in",
    "auth-provider": "must not be there: nothing is run to log in",
    "certificate-authority": _FILES.format("certificate-authority-data"),
    "client-certificate": _FILES.format("client-certificate-data"),
    "client-key": _FILES.format("client-key-data"),
    "tokenFile": _FILES.format("token"),
    "proxy-url": "must not be there: the server is spoken to directly",
    "username": "must not be there: log in with a token or a client certificate",
    "password": "must not be there: log in with a token or a client certificate",
}


class Kubeconfig(Part, frozen=True, kw_only=True):
    """`ca`, `client_certificate` and `client_key` are PEM. Without `ca` the system's own authorities are trusted."""

    server: str
    ca: str = ""
    token: str = ""
    client_certificate: str = ""
    client_key: str = ""
    namespace: str = ""
    tls_server_name: str = ""

    def __repr__(self) -> str:
        return f"Kubeconfig(server={self.server!r}, namespace={self.namespace!r})"

    @property
    def host_and_port(self) -> tuple[str, int]:
        parts = urlsplit(self.server)
        return parts.hostname or "", parts.port or 443

    def hidden(self) -> tuple[str, ...]:
        """Values that must never be shown, as they may appear within a line of text."""
        lines = self.client_key.splitlines()
        return tuple(part for part in (self.token, _data(self.client_key), *lines) if part)


def parse(text: str, path: str = "kubeconfig") -> Kubeconfig:
    """The values of the current context, or Invalid."""
    if len(text.encode(errors="surrogatepass")) > MAX_BYTES:
        raise Invalid(path, f"must not be above {MAX_BYTES // 1024} KiB")
    whole = _mapping(_load(text, path), path)
    _only(whole, _TOP, path)
    if whole.get("kind", "Config") != "Config" or whole.get("apiVersion", "v1") != "v1":
        raise Invalid(f"{path}.kind", "must be Config of version v1")
    clusters = _entries(whole, "clusters", "cluster", path, _check_cluster)
    users = _entries(whole, "users", "user", path, _check_user)
    contexts = _entries(whole, "contexts", "context", path, _check_context)
    context, where = _current(whole, contexts, path)
    cluster = _named(clusters, context, "cluster", where)
    user = _named(users, context, "user", where)
    return Kubeconfig(
        server=_server(cluster["server"], "server"),
        ca=_pem(cluster.get("certificate-authority-data", "")),
        tls_server_name=cluster.get("tls-server-name", ""),
        token=user.get("token", ""),
        client_certificate=_pem(user.get("client-certificate-data", "")),
        client_key=_pem(user.get("client-key-data", "")),
        namespace=context.get("namespace", ""),
    )


def render(config: Kubeconfig) -> str:
    """A kubeconfig with these values only."""
    cluster = {
        "server": config.server,
        "certificate-authority-data": _data(config.ca),
        "tls-server-name": config.tls_server_name,
    }
    user = {
        "token": config.token,
        "client-certificate-data": _data(config.client_certificate),
        "client-key-data": _data(config.client_key),
    }
    context = {"cluster": "target", "user": "target", "namespace": config.namespace}
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "target", "cluster": _said(cluster)}],
        "users": [{"name": "target", "user": _said(user)}],
        "contexts": [{"name": "target", "context": _said(context)}],
        "current-context": "target",
    }
    return msgspec.json.encode(whole).decode()


# The three lists


def _check_cluster(cluster: dict[str, Any], path: str) -> None:
    if cluster.pop("insecure-skip-tls-verify", False) is not False:
        raise Invalid(f"{path}.insecure-skip-tls-verify", "must not be set: the server is proven by TLS")
    if cluster.pop("disable-compression", False) not in (True, False):
        raise Invalid(f"{path}.disable-compression", "must be true or false")
    _only(cluster, _CLUSTER, path)
    _server(_text(cluster, "server", path), f"{path}.server")
    _check_pem(_text(cluster, "certificate-authority-data", path), "CERTIFICATE", f"{path}.certificate-authority-data")
    name = _text(cluster, "tls-server-name", path)
    if name and not _HOST.fullmatch(name):
        raise Invalid(f"{path}.tls-server-name", "must be the name of a host")


def _server(server: str, path: str) -> str:
    """The URL, put together anew from its parts: a parser drops characters that another parser may understand."""
    try:
        parts = urlsplit(server)
        sound = bool(parts.hostname and _HOST.fullmatch(parts.hostname)) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound or parts.scheme != "https":
        raise Invalid(path, "must be an https URL")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise Invalid(path, "must hold no user, password, query or fragment")
    if not _PATH.fullmatch(parts.path):
        raise Invalid(path, "must have a path of letters, digits and /._~%- only")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"https://{host}{f':{parts.port}' if parts.port is not None else ''}{parts.path}"


def _check_user(user: dict[str, Any], path: str) -> None:
    _only(user, _USER, path)
    token = _text(user, "token", path)
    if token and not _TOKEN.fullmatch(token):
        raise Invalid(f"{path}.token", "must be one word of printable characters")
    certificate = _text(user, "client-certificate-data", path)
    key = _text(user, "client-key-data", path)
    _check_pem(certificate, "CERTIFICATE", f"{path}.client-certificate-data")
    _check_pem(key, "PRIVATE KEY", f"{path}.client-key-data")
    if bool(certificate) != bool(key):
        raise Invalid(f"{path}.client-key-data", "must come together with client-certificate-data")
    if bool(token) == bool(certificate):
        raise Invalid(path, "must log in with a token or with a client certificate, one of the two")


def _check_context(context: dict[str, Any], path: str) -> None:
    _only(context, _CONTEXT, path)
    for field in ("cluster", "user"):
        if not _text(context, field, path):
            raise Invalid(f"{path}.{field}", "must not be empty")
    namespace = _text(context, "namespace", path)
    if namespace and not _NAMESPACE.fullmatch(namespace):
        raise Invalid(f"{path}.namespace", "must be the name of a namespace")


def _entries(
    whole: Mapping[str, Any], plural: str, singular: str, path: str, check: Callable[[dict[str, Any], str], None]
) -> dict[str, tuple[dict[str, Any], str]]:
    """Each entry of the list by its name, with its path."""
    here = f"{path}.{plural}"
    entries: dict[str, tuple[dict[str, Any], str]] = {}
    listed = whole.get(plural)
    if not isinstance(listed, list) or not listed:
        raise Invalid(here, "must be a list with at least one entry")
    for position, item in enumerate(listed):
        place = f"{here}[{position}]"
        entry = _mapping(item, place)
        _only(entry, frozenset({"name", singular}), place)
        name = _text(entry, "name", place)
        if not name:
            raise Invalid(f"{place}.name", "must not be empty")
        if name in entries:
            raise Invalid(f"{place}.name", "is there twice")
        inner = _mapping(entry.get(singular), f"{place}.{singular}")
        check(inner, f"{place}.{singular}")
        entries[name] = (inner, f"{place}.{singular}")
    return entries


def _current(
    whole: Mapping[str, Any], contexts: Mapping[str, tuple[dict[str, Any], str]], path: str
) -> tuple[dict[str, Any], str]:
    name = _text(whole, "current-context", path)
    if not name and len(contexts) > 1:
        raise Invalid(f"{path}.current-context", "must say which of several contexts is meant")
    if name and name not in contexts:
        raise Invalid(f"{path}.current-context", "must name one of the contexts")
    return contexts[name] if name else next(iter(contexts.values()))


def _named(
    entries: Mapping[str, tuple[dict[str, Any], str]], context: Mapping[str, Any], field: str, path: str
) -> dict[str, Any]:
    entry = entries.get(context[field])
    if entry is None:
        raise Invalid(f"{path}.{field}", f"must name one of the {field}s")
    return entry[0]


# Single fields


def _only(value: Mapping[str, Any], allowed: frozenset[str], path: str) -> None:
    for name in value:
        if name in _RULES and name not in allowed:
            raise Invalid(f"{path}.{name}", _RULES[name])
        if name not in allowed:
            raise Invalid(f"{path}.{_short(name)}", "is not a field that is taken here")


def _mapping(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Invalid(path, "must be a mapping")
    return dict(value)


def _text(value: Mapping[str, Any], field: str, path: str) -> str:
    text = value.get(field)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise Invalid(f"{path}.{field}", "must be text")
    return text


def _short(name: str) -> str:
    return name if len(name) <= 60 and name.isprintable() else "?"


def _check_pem(data: str, what: str, path: str) -> None:
    if not data:
        return
    try:
        text = base64.b64decode("".join(data.split()), validate=True).decode("ascii")
    except ValueError:
        raise Invalid(path, "must be PEM in base64") from None
    if _ENCRYPTED.search(text):
        raise Invalid(path, "must not be encrypted: nobody is there to give its password")
    if not re.search(rf"-----BEGIN [A-Z0-9 ]*{what}-----", text):
        raise Invalid(path, f"must hold a {what.lower()} in PEM")


def _pem(data: str) -> str:
    return base64.b64decode("".join(data.split())).decode("ascii")


def _data(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()


def _said(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


# YAML

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_DEPTH = 16


class _Strict(_LOADER):  # type: ignore[misc]
    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """A duplicate key is refused: readers differ in which value they take."""
        names = [key.value for key, _ in node.value]
        if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise _Refused("a key is there twice, or is no text")
        return super().construct_mapping(node, deep)


class _Refused(Exception):
    """YAML, but not of the plain kind."""


def _load(text: str, path: str) -> object:
    """The parser's own messages show pieces of the text, so that only the position is told."""
    try:
        _check_plain(text)
        return yaml.load(text, Loader=_Strict)
    except _Refused as refusal:
        raise Invalid(path, f"cannot be read: {refusal}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise Invalid(path, f"cannot be read{place}: it is no YAML") from None
    except Exception:  # noqa: BLE001 - whatever the parser raises names a piece of the secret, which no log may show
        raise Invalid(path, "cannot be read: it is no YAML") from None


def _check_plain(text: str) -> None:
    """Aliases could make a small text large, deep nesting could break readers, tags make the parser convert values."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _Refused("anchors and aliases are not taken")
        if getattr(event, "tag", None) not in (None, "!"):
            raise _Refused("tags are not taken")
        if isinstance(event, yaml.ScalarEvent) and event.value == "<<":
            raise _Refused("merged mappings are not taken")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise _Refused(f"it is nested deeper than {_MAX_DEPTH} levels")

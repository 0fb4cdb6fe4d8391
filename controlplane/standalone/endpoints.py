"""Endpoints of a control plane: `--endpoints`, `--data-dir`, their environment variables, then the folder of `up`.

A flag beats the environment. `up.json` is read again for every choice of a connection, because the supervisor rewrites
the file when a process moves to another address.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from controlplane.model import address
from controlplane.model.errors import Invalid, Unavailable
from controlplane.standalone.contexts import Context

# The administrator's token in the data folder of `up`.
TOKEN_FILE = "token"
CA_FILE = "CONTROLPLANE_CA_FILE"


class EtcdFiles(NamedTuple):
    """Paths of the TLS files with which etcd is asked; empty for none."""

    ca: str = ""
    cert: str = ""
    key: str = ""


PLAIN_ETCD = EtcdFiles()


@dataclass(frozen=True)
class EndpointSource:
    """Either fixed endpoints, or a data folder whose `up.json` names the endpoints.

    `given_token` is the token of an option or of the environment. Without one the token of the chosen context is used,
    and without that the token of the data folder.
    `given_ca` is the CA file of an option, of the environment or of the context; a data folder knows its own.
    """

    endpoints: tuple[str, ...] = ()
    data_dir: Path | None = None
    given_token: str = ""
    # The context that was chosen, and its token, '' for none: asked for with each call, since logins are renewed.
    context: Context | None = None
    context_token: Callable[[], str] = str
    given_ca: str = ""

    def current(self) -> Sequence[str]:
        """The gRPC addresses to try now."""
        if self.data_dir is None:
            return self.endpoints
        return [replica["grpc"] for replica in self.up()["replicas"]]

    def token(self) -> str:
        """The token to send, '' for none. A folder's own token is sent only to endpoints that the folder names."""
        token = self.given_token or self.context_token()
        if token or self.data_dir is None:
            return token
        try:
            return (self.data_dir / TOKEN_FILE).read_text().strip()
        except OSError:
            return ""

    def ca_file(self) -> str:
        """The file with the CAs of the replicas; empty where connections are not encrypted."""
        if self.given_ca or self.data_dir is None:
            return self.given_ca
        return self._tls("ca")

    def _tls(self, name: str) -> str:
        return str((self.up().get("tls") or {}).get(name) or "")

    def etcd_files(self, given: str = "", files: EtcdFiles = PLAIN_ETCD) -> EtcdFiles:
        """The TLS files for etcd: those of the options, else those of the data folder, for its own etcd only."""
        if given or self.data_dir is None or any(files):
            return files
        return EtcdFiles(self._tls("ca"), self._tls("etcd_cert"), self._tls("etcd_key"))

    def up(self) -> dict[str, Any]:
        """The content of `up.json`; Unavailable when no `up` was ever started in the folder."""
        if self.data_dir is None:
            raise Invalid("data-dir", "must be given here (or CONTROLPLANE_DATA_DIR), --endpoints is not enough")
        return read_up_json(self.data_dir)

    def etcd_urls(self, given: str) -> tuple[str, ...]:
        """The URLs of `--etcd`, or those of the data folder; Invalid when neither is given."""
        return tuple(url.strip() for url in given.split(",") if url.strip()) if given else tuple(self.up()["etcd"])


def default_data_dir(environment: Mapping[str, str] = os.environ) -> Path:
    state = environment.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "controlplane"


def find_endpoints(
    endpoints: str | None,
    data_dir: Path | None,
    environment: Mapping[str, str] = os.environ,
    *,
    token_file: Path | None = None,
    ca_file: Path | None = None,
) -> EndpointSource:
    token = find_token(token_file, environment)
    if endpoints or data_dir:
        chosen = EndpointSource(parse_endpoints(endpoints)) if endpoints else EndpointSource(data_dir=data_dir)
    elif environment.get("CONTROLPLANE_ENDPOINTS"):
        chosen = EndpointSource(parse_endpoints(environment["CONTROLPLANE_ENDPOINTS"]))
    elif environment.get("CONTROLPLANE_DATA_DIR"):
        chosen = EndpointSource(data_dir=Path(environment["CONTROLPLANE_DATA_DIR"]))
    else:
        chosen = EndpointSource(data_dir=default_data_dir(environment))
    # A folder knows its own CA.
    ca = str(ca_file or "") if chosen.data_dir is not None else str(ca_file or environment.get(CA_FILE, ""))
    named = endpoints or environment.get("CONTROLPLANE_ENDPOINTS", "")
    if chosen.data_dir is None and not ca and "https://" in named:
        raise Invalid("ca-file", f"is needed for https:// (or {CA_FILE})")
    return replace(chosen, given_token=token, given_ca=ca)


def find_token(token_file: Path | None, environment: Mapping[str, str] = os.environ) -> str:
    """The token of `--token-file`, else of CONTROLPLANE_TOKEN, else ''; Invalid for a file that cannot be read."""
    if token_file is None:
        return environment.get("CONTROLPLANE_TOKEN", "").strip()
    try:
        return token_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Invalid("token-file", f"{token_file} cannot be read: {why}") from None


def parse_endpoints(text: str | None) -> tuple[str, ...]:
    """The addresses of `host:port,host:port`; Invalid when a part is no address."""
    endpoints = tuple(_without_scheme(part.strip()) for part in (text or "").split(",") if part.strip())
    for endpoint in endpoints:
        if not address.parse(endpoint, "endpoints").port:
            raise Invalid("endpoints", f"must name the port of a replica, not {endpoint!r}")
    if not endpoints:
        raise Invalid("endpoints", "must name at least one host:port")
    return endpoints


def _without_scheme(endpoint: str) -> str:
    return endpoint.removeprefix("http://").removeprefix("https://")


def read_up_json(folder: Path) -> dict[str, Any]:
    path = folder / "up.json"
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        message = f"no control plane runs from {folder}; start one with `controlplane up` or name one with --endpoints"
        raise Unavailable(message) from None
    except (OSError, ValueError) as error:
        raise Unavailable(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise Unavailable(f"{path} is not an object")
    return content

"""Where the control plane is: `--endpoints`, `--data-dir`, their environment variables, then the folder of `up`.

A flag beats the environment. `up.json` is read again for every choice of a connection, because the supervisor rewrites
it when something moves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.model.errors import Invalid, Unavailable


@dataclass(frozen=True)
class Whereabouts:
    """Either fixed endpoints, or a data folder that knows them."""

    endpoints: tuple[str, ...] = ()
    data_dir: Path | None = None

    def current(self) -> Sequence[str]:
        """The gRPC addresses to try, as of now."""
        if self.data_dir is None:
            return self.endpoints
        return [replica["grpc"] for replica in self.up()["replicas"]]

    def up(self) -> dict[str, Any]:
        """What `up.json` says; Unavailable when nothing was ever started there."""
        if self.data_dir is None:
            raise Invalid("data-dir", "must be given here (or CONTROLPLANE_DATA_DIR), --endpoints is not enough")
        return read_up_json(self.data_dir)


def default_dir(environment: Mapping[str, str] = os.environ) -> Path:
    state = environment.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "controlplane"


def find(endpoints: str | None, data_dir: Path | None, environment: Mapping[str, str] = os.environ) -> Whereabouts:
    if endpoints or data_dir:
        return Whereabouts(parse(endpoints)) if endpoints else Whereabouts(data_dir=data_dir)
    if environment.get("CONTROLPLANE_ENDPOINTS"):
        return Whereabouts(parse(environment["CONTROLPLANE_ENDPOINTS"]))
    if environment.get("CONTROLPLANE_DATA_DIR"):
        return Whereabouts(data_dir=Path(environment["CONTROLPLANE_DATA_DIR"]))
    return Whereabouts(data_dir=default_dir(environment))


def parse(text: str | None) -> tuple[str, ...]:
    """`host:port,host:port` to its parts; Invalid when one of them is no address."""
    found = tuple(part.strip().removeprefix("http://") for part in (text or "").split(",") if part.strip())
    for endpoint in found:
        host, colon, port = endpoint.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
            raise Invalid("endpoints", f"must be host:port, several separated by commas, not {endpoint!r}")
    if not found:
        raise Invalid("endpoints", "must name at least one host:port")
    return found


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

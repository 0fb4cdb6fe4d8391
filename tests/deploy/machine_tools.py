"""`systemctl`, `scp` and `ssh` of the three machines in `test_three_machines.py`: what the guide calls and a namespace
has not. Units are started as systemd would: user, credentials, folders, capabilities, restarts; without the sandbox.

Run as a script of its own, `machine_tools.py systemctl|scp|ssh ...`, with MACHINES naming the folder of the machines.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

_UNITS = Path("/etc/systemd/system")
_RUN = Path("/run")
_ADDRESS = re.compile(r"root@10\.77\.0\.(\d+)")


def machine_pid(number: str) -> str:
    return (Path(os.environ["MACHINES"]) / f"{number}.pid").read_text()


def inside(number: str) -> list[str]:
    return ["nsenter", "--target", machine_pid(number), "--net", "--mount", "--uts", "--"]


def scp(arguments: list[str]) -> int:
    """Files to a folder or a file of another machine, made as `umask` of the other side says."""
    *sources, destination = arguments
    where, _, path = destination.partition(":")
    found = _ADDRESS.fullmatch(where)
    assert found is not None, destination
    for source in sources:
        into = path + Path(source).name if path.endswith("/") else path
        command = [*inside(found[1]), "sh", "-c", 'umask 077; cat > "$1"', "sh", into]
        subprocess.run(command, input=Path(source).read_bytes(), check=True)
    return 0


def ssh(arguments: list[str]) -> int:
    where, *command = arguments
    found = _ADDRESS.fullmatch(where)
    assert found is not None, where
    return subprocess.run([*inside(found[1]), "sh", "-c", " ".join(command)]).returncode


def systemctl(arguments: list[str]) -> int:
    match arguments:
        case ["daemon-reload"]:
            return 0
        case ["enable", "--now", unit]:
            start(unit)
        case ["restart", unit]:
            stop(unit)
            start(unit)
        case ["stop", unit]:
            stop(unit)
        case _:
            raise SystemExit(f"systemctl {arguments} is not played here")
    return 0


class Service:
    """The settings of a unit, with its specifiers and variables put in."""

    def __init__(self, unit: str) -> None:
        self.unit = unit.removesuffix(".service")
        self.instance = self.unit.partition("@")[2]
        text = (_UNITS / (re.sub("@.*", "@", self.unit) + ".service")).read_text()
        self._settings: list[tuple[str, str]] = []
        for line in text.splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                self._settings.append((name, self._specified(value)))
        self.variables: dict[str, str] = {}
        for path in self.all("EnvironmentFile"):
            if not path.startswith("-") or Path(path[1:]).exists():
                self._read_variables(Path(path.removeprefix("-")))

    @property
    def credentials(self) -> Path:
        return _RUN / "credentials" / f"{self.unit}.service"

    def all(self, name: str) -> list[str]:
        return [value for setting, value in self._settings if setting == name]

    def words(self, name: str) -> list[str]:
        return [word for value in self.all(name) for word in value.split()]

    def one(self, name: str) -> str:
        return (self.all(name) or [""])[-1]

    def command(self) -> list[str]:
        words = shlex.split(self.one("ExecStart"))
        return [re.sub(r"\$\{(\w+)\}", lambda found: self.variables[found[1]], word) for word in words]

    def _specified(self, value: str) -> str:
        known = {
            "i": self.instance,
            "H": socket.gethostname(),
            "d": str(self.credentials),
            "S": "/var/lib",
            "t": "/run",
        }
        return re.sub("%([iHdSt])", lambda found: known[found[1]], value)

    def _read_variables(self, path: Path) -> None:
        for line in path.read_text().splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                self.variables[name] = value


def start(unit: str) -> None:
    """Starts a supervisor that goes on when this command is over."""
    service = Service(unit)
    if os.fork() == 0:
        os.setsid()
        # The service manager's, not that of the step which called it.
        os.umask(0o022)
        with open(f"/var/log/{service.unit}.log", "ab", buffering=0) as log:
            for descriptor in (1, 2):
                os.dup2(log.fileno(), descriptor)
        (_RUN / f"{service.unit}.supervisor").write_text(str(os.getpid()))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            supervise(service)
        finally:
            os._exit(1)


def supervise(service: Service) -> None:
    while True:
        prepare(service)
        main = subprocess.Popen(launch(service), umask=int(service.one("UMask"), 8), env=environment(service))
        (_RUN / f"{service.unit}.pid").write_text(str(main.pid))
        main.wait()
        time.sleep(float(service.one("RestartSec")))


def stop(unit: str) -> None:
    """The main process, as `KillMode=process` does."""
    supervisor = int((_RUN / f"{unit}.supervisor").read_text())
    main = int((_RUN / f"{unit}.pid").read_text())
    os.kill(supervisor, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(main, signal.SIGTERM)
        while Path(f"/proc/{main}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.05)


def prepare(service: Service) -> None:
    user = service.one("User")
    for word, parent in (("StateDirectory", Path("/var/lib")), ("RuntimeDirectory", _RUN)):
        for name in service.words(word):
            folder = parent / name
            folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            shutil.chown(folder, user, user)
    shutil.rmtree(service.credentials, ignore_errors=True)
    service.credentials.mkdir(mode=0o755, parents=True)
    for pair in service.all("LoadCredential"):
        name, _, path = pair.partition(":")
        # Root's, and readable for the user of the unit: as systemd's access list for that user shows in the mode.
        into = service.credentials / name
        into.touch(mode=0o400)
        into.write_bytes(Path(path).read_bytes())
        shutil.chown(into, "root", user)
        into.chmod(0o440)


def launch(service: Service) -> list[str]:
    user = service.one("User")
    chosen = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--no-new-privs"]
    names = [name.removeprefix("CAP_").lower() for name in service.words("AmbientCapabilities")]
    if names:
        added = ",".join(f"+{name}" for name in names)
        chosen += [f"--inh-caps=-all,{added}", f"--ambient-caps=-all,{added}", f"--bounding-set=-all,{added}"]
    else:
        chosen += ["--inh-caps=-all", "--bounding-set=-all"]
    return [*chosen, "--", *service.command()]


def environment(service: Service) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **service.variables}


if __name__ == "__main__":
    sys.exit({"systemctl": systemctl, "scp": scp, "ssh": ssh}[sys.argv[1]](sys.argv[2:]))

"""Three machines in network namespaces, set up by the commands of `deploy/README.md`; then one of them is cut off.

Runs inside namespaces that the test makes (network, mounts, processes), so that nothing of the real machine changes:
each machine is a network namespace on a bridge of its own, with its own name, and layers over /etc, /opt, /usr, /var
and /root. `python -m tests.deploy.three_machines FOLDER` exits with 0 when everything held, and says what did not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.deploy import guide
from tests.deploy.rendering import ROOT

_LAYERS = ("etc", "opt", "root", "usr", "var")
_STEP_SECONDS = 180
_WAIT_SECONDS = 120.0
CUT_OFF = 3


class Machine:
    """`run` runs commands as root of the machine; what they assign is known to the next."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self._folder = folder
        self._own = folder / str(number)
        self._own.mkdir()
        holder = ["unshare", "--net", "--mount", "--uts", "sh", "-c", "echo made; exec sleep infinity"]
        self._holder = subprocess.Popen(holder, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"made\n"
        (folder / f"{number}.pid").write_text(str(self._holder.pid))

    @property
    def inside(self) -> list[str]:
        return ["nsenter", "--target", str(self._holder.pid), "--net", "--mount", "--uts", "--"]

    def connect(self) -> None:
        outer, inner = f"veth{self.number}", f"peer{self.number}"
        do("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
        do("ip", "link", "set", inner, "netns", str(self._holder.pid))
        do("ip", "link", "set", outer, "master", "br0", "up")
        do(*self.inside, "ip", "address", "add", f"10.77.0.{self.number}/24", "dev", inner)
        for name in ("lo", inner):
            do(*self.inside, "ip", "link", "set", name, "up")
        do(*self.inside, "hostname", f"machine-{self.number}")

    def set_link(self, state: str) -> None:
        do("ip", "link", "set", f"veth{self.number}", state)

    def furnish(self, etcd: str) -> None:
        """Layers over the folders that an installation writes to, and what step 1 of the guide puts there."""
        for name in _LAYERS:
            upper, work = self._own / name, self._own / f"{name}.work"
            upper.mkdir(mode=0o755)
            work.mkdir()
            layers = f"lowerdir=/{name},upperdir={upper},workdir={work}"
            do(*self.inside, "mount", "-t", "overlay", "overlay", "-o", layers, f"/{name}")
        do(*self.inside, "mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/run")
        do(*self.inside, "rm", "-rf", "/etc/controlplane", "/opt/controlplane", "/root/ca", "/usr/bin/etcd")
        do(*self.inside, "cp", "--no-preserve=ownership", etcd, "/usr/bin/etcd")
        do(*self.inside, "mkdir", "-p", "/opt/controlplane", "/etc/systemd/system")
        do(*self.inside, "ln", "-s", str(Path(sys.executable).parent), "/opt/controlplane/bin")

    def run(self, text: str) -> str:
        known = self._own / "variables"
        before = f". {known}\n" if known.exists() else ""
        script = f"set -ea\ncd {ROOT / 'deploy'}\n{before}{text}\nexport -p > {known}\n"
        # To a file: services that a step starts would keep a pipe open.
        output = self._own / "output"
        with output.open("wb") as file:
            done = subprocess.run(
                [*self.inside, "sh", "-c", script],
                env={"PATH": self._path(), "N": str(self.number), "MACHINES": str(self._folder), "HOME": "/root"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                timeout=_STEP_SECONDS,
            )
        said = output.read_text(errors="replace")
        if done.returncode != 0:
            raise RuntimeError(f"machine {self.number}:\n{text}\nended with {done.returncode}:\n{said}")
        return said

    def ask(self, text: str) -> Any:
        """JSON that a command prints."""
        said = self.run(f"{text} > /run/answer 2> /run/said")
        assert said == "", said
        return json.loads(self.run("cat /run/answer"))

    def logs(self) -> str:
        done = subprocess.run([*self.inside, "sh", "-c", "tail -n 25 /var/log/controlplane-*.log"], capture_output=True)
        return f"== machine {self.number}\n{done.stdout.decode(errors='replace')}"

    def _path(self) -> str:
        return ":".join(
            [str(self._folder / "tools"), "/opt/controlplane/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        )


def do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")


def say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def wait_for(what: str, look: Callable[[], bool]) -> float:
    """Seconds until it is so."""
    started = time.monotonic()
    why = ""
    while time.monotonic() - started < _WAIT_SECONDS:
        try:
            if look():
                return time.monotonic() - started
        except (RuntimeError, AssertionError, ValueError) as error:
            why = str(error)
        time.sleep(0.5)
    raise RuntimeError(f"waited in vain for: {what}; {why}")


def make_tools(folder: Path) -> None:
    tools = folder / "tools"
    tools.mkdir()
    for name in ("systemctl", "scp", "ssh"):
        path = tools / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT}/tests/deploy/machine_tools.py {name} "$@"\n')
        path.chmod(0o755)


def make_machines(folder: Path) -> dict[int, Machine]:
    etcd = os.environ["MACHINES_ETCD"]
    do("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(folder))
    do("ip", "link", "add", "br0", "type", "bridge")
    do("ip", "link", "set", "br0", "up")
    make_tools(folder)
    machines = {number: Machine(number, folder) for number in guide.MACHINES}
    for machine in machines.values():
        machine.connect()
        machine.furnish(etcd)
    return machines


def ready_targets(machine: Machine) -> set[str]:
    items = machine.ask("cpctl get targets -o json")
    items = items["items"] if isinstance(items, dict) else items
    return {item["name"] for item in items if item["status"]["phase"] == "Ready"}


def follow(machines: dict[int, Machine]) -> None:
    first = machines[1]
    for number, step in enumerate(guide.installation(), 1):
        say(f"step {number} on machine {step.machine}: {step.text.splitlines()[0]}")
        if "cpctl" in step.text or "bootstrap" in step.text:
            # An operator would type the command again; it has to succeed soon after everything was started.
            wait_for(f"step {number}", lambda step=step: machines[step.machine].run(step.text) is not None)  # type: ignore[misc]
        else:
            machines[step.machine].run(step.text)
    say(f"both targets Ready after {wait_for('targets', lambda: ready_targets(first) == {'edge-2', 'edge-3'}):.1f} s")
    first.run("cpctl run --count 4 -- sh -c 'test $(id -un) = controlplane-tasks'")
    say("nobody gets in without the CA's trust, or without a token")
    for wrong in ("CONTROLPLANE_CA_FILE=/etc/ssl/certs/ca-certificates.crt", "CONTROLPLANE_TOKEN=cp_wrong"):
        first.run(f"if {wrong} cpctl leader; then exit 1; fi")


def cut_one_off(machines: dict[int, Machine]) -> None:
    first = machines[1]
    machines[CUT_OFF].set_link("down")
    say(f"machine {CUT_OFF} is cut off")
    took = wait_for("work", lambda: first.run("cpctl run --count 4 -- true") is not None)
    say(f"work went on: {took:.1f} s for an order of 4 tasks")
    leader = first.ask("cpctl leader -o json")
    assert leader["id"] in ("machine-1", "machine-2"), leader
    machines[CUT_OFF].set_link("up")
    took = wait_for("the target to come back", lambda: ready_targets(first) == {"edge-2", "edge-3"})
    say(f"machine {CUT_OFF} is back after {took:.1f} s")


def rotate_the_sealing_key(machines: dict[int, Machine]) -> None:
    first = machines[1]
    wait_for("resealing", lambda: "could not be" in first.run(guide.later("reseal").text))
    say("the sealing key was changed")
    wait_for("work", lambda: first.run("cpctl run -- true") is not None)


def main() -> int:
    folder = Path(sys.argv[1])
    machines: dict[int, Machine] = {}
    try:
        machines = make_machines(folder)
        follow(machines)
        cut_one_off(machines)
        rotate_the_sealing_key(machines)
    except Exception as error:  # noqa: BLE001 - told with the logs of all machines
        say(f"FAILED: {type(error).__name__}: {error}")
        for machine in machines.values():
            say(machine.logs())
        return 1
    say("all of it held")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The small process that each command runs under: it keeps the exit code, the time limit and the promise to holders.

Run as `python -I -S shim.pyc SOURCE ROOM DATADIR`, SIGTERM and SIGCHLD blocked, a socket on stdin, it is the nursery of
one joblet: it forks a shim for each request and ends when the joblet is gone. A shim outlives both. It has its own
session, what to run marshalled on stdin, and says a line on stdout when the command runs; its folder takes the place of
ROOM in the command line (with a folder instead of ROOM it is a shim from its beginning). It writes "started" to the
records before the command and "ended" when nothing of it is left, then `end.json` by rename. It holds a lock on its
folder's `spec.json` while it lives; where the joblet found that lock free and left `abandoned`, it does nothing.

Standard library only, and little of it: every shim carries these imports, and a joblet that starts waits for them. That
is why there is `_signal` (signal needs enum), marshal and hand-written JSON; all that it writes is numbers and words of
its own, and text that the joblet has encoded before. What a shim would import later is imported here, once. It makes no
file that it can do without: making files costs more than all else it does.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import ctypes
import fcntl
import marshal
import os
import sys
import time
import warnings  # noqa: F401 (os.execvpe would import it in each shim)

TERM_SECONDS = 5.0
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself is too slow to import here
    from collections.abc import Callable

# By the interpreter itself, or by whoever started the joblet in the background.
_IGNORED = (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGHUP)
_SIGNALS = {_signal.SIGTERM, _signal.SIGCHLD}
_INT = 4
_DASH = ord("-")
_prctl = ctypes.CDLL(None, use_errno=True).prctl


class Run:
    """One attempt: its folder, the text for the records, the limits."""

    def __init__(self, data: str, spec: bytes) -> None:
        self.data = data
        read = marshal.loads(spec)
        self.folder: str = read["folder"]
        self.command: list[str] = read["command"]
        self.environment: dict[str, str] = read["environment"]
        self.record: str = read["record"]
        self.time_limit: float | None = read["time_limit"]
        self.holder: bool = read["holder"]
        self.nice: int = read["nice"]
        self.boot: str = read["boot"]
        self.until: float = read["until"]
        self.started = ""
        self.group = 0

    def path(self, name: str) -> str:
        return self.folder + "/" + name

    def write(self, name: str, text: str) -> None:
        with open(self.path(name + ".new"), "w", encoding="utf-8") as file:
            file.write("{" + text + "}\n")
        os.rename(self.path(name + ".new"), self.path(name))

    def append(self, event: str, **more: int) -> None:
        moment = encode(pid=os.getpid(), monotonic=round(time.monotonic(), 6), boot=self.boot, time=stamp(), **more)
        line = "{" + encode(event=event) + "," + self.record + "," + moment + "}\n"
        records = os.open(self.data + "/records.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.write(records, line.encode())
        os.close(records)


def encode(**fields: str | float) -> str:
    """The inside of a JSON object. Texts are words and times: nothing in them needs escaping."""
    return ",".join(
        f'"{name}":"{value}"' if isinstance(value, str) else f'"{name}":{value}' for name, value in fields.items()
    )


def stamp() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"


def serve() -> None:
    """Returns in each shim; the nursery itself ends here when its joblet is gone."""
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, 0)
    _signal.signal(_signal.SIGCHLD, bury)
    while True:
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {_signal.SIGCHLD})
        request, descriptors = hear(link)
        # Until the joblet has a descriptor of the new process, its number is not given to another.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _SIGNALS)
        if not request:
            os._exit(0)
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            link.detach()
            begin(*descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        answer(link, pid)


def hear(link: _socket.socket) -> tuple[bytes, list[int]]:
    """A request: what to run, and where to say that it runs. Nothing when the joblet is gone."""
    try:
        request, rights, _, _ = link.recvmsg(4096, _socket.CMSG_SPACE(2 * _INT))
    except ConnectionError:
        return b"", []
    packed = rights[0][2] if rights else b""
    return request, [int.from_bytes(packed[at : at + _INT], sys.byteorder) for at in range(0, len(packed), _INT)]


def answer(link: _socket.socket, pid: int) -> None:
    """The process as a descriptor; none when it could not be made."""
    try:
        if pid < 0:
            link.send(b"none")
            return
        process = os.pidfd_open(pid)
        rights = process.to_bytes(_INT, sys.byteorder)
        link.sendmsg([b"born"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        os.close(process)
    except ConnectionError:
        pass  # the joblet is gone: so is the nursery, when it listens next


def begin(told: int, stdout: int) -> None:
    """A new shim lets go of all that is the nursery's."""
    os.setsid()
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    os.dup2(told, 0)
    os.dup2(stdout, 1)
    os.closerange(3, 1 << 20)


def bury(_number: int, _frame: object) -> None:
    """Shims that are over leave nothing behind in the nursery."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main() -> None:
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _SIGNALS)
    room = sys.argv[2].encode()
    name_at = find_argument(room) if set(room) == {_DASH} else None
    if name_at is not None:
        serve()
    with open(0, "rb", closefd=False) as file:
        run = Run(sys.argv[3], file.read())
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if name_at is not None:
        # From now on the command line is that of the attempt: who looks for it finds it by its folder.
        ctypes.memmove(name_at, os.fsencode(run.folder).ljust(len(room), b"\0")[: len(room)], len(room))
    lock = os.open(run.path("spec.json"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.path.exists(run.path("abandoned")):
        return
    if not run.holder:
        # The shim of a holder has to kill in time, whatever else keeps the machine busy.
        be_nice(run.nice)
    _prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    run.started = stamp()
    run.write("shim.json", encode(pid=os.getpid(), ticks=start_ticks(), boot=run.boot, started=run.started))
    if overdue(run, time.monotonic()):
        # A joblet that was stopped meanwhile and goes on where it was: what it held may be another's by now.
        run.write("end.json", encode(how="lost", finished=stamp()))
        return
    run.append("started")
    error = start(run)
    if error:
        end(run, "not_started", error)
        return
    tell_running()
    how, status = watch(run)
    clear_descendants(run)
    end(run, how, status)


def find_argument(text: bytes) -> int:
    """Where in memory the argument stands; a fork has it at the same place."""
    with open("/proc/self/stat", "rb") as file:
        start = int(file.read().rpartition(b")")[2].split()[45])
    with open("/proc/self/cmdline", "rb") as file:
        return start + file.read().index(b"\0" + text + b"\0") + 1


def start_ticks() -> int:
    """When this process started, in the kernel's own count: with it a process identifier means one process only."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def be_nice(by: int) -> None:
    """Lets others go first. Many kernels weigh sessions against each other, not processes: this one is told of too."""
    if not by:
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, max(by, os.getpriority(os.PRIO_PROCESS, 0)))
        group = os.open("/proc/self/autogroup", os.O_WRONLY | os.O_CLOEXEC)
        os.write(group, b"%d" % by)
        os.close(group)
    except OSError:
        pass  # a kernel that does not, or a user who may do that only so often


def tell_running() -> None:
    try:
        os.write(1, b"running\n")
        os.close(1)
    except OSError:
        return  # the joblet is gone; the next one finds shim.json


def start(run: Run) -> int:
    """Starts the command in a session of its own; the error number when that was not possible."""
    said, say = os.pipe2(os.O_CLOEXEC)
    shim = os.getpid()
    pid = os.fork()
    if pid == 0:
        become_command(run, say, shim)
    os.close(say)
    trouble = os.read(said, 16)
    os.close(said)
    run.group = pid
    if trouble:
        os.waitpid(pid, 0)
        return int(trouble)
    return 0


def become_command(run: Run, say: int, shim: int) -> None:
    try:
        os.setsid()
        be_nice(run.nice)
        _prctl(_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
        if os.getppid() != shim:
            os._exit(127)
        for target, name, flags in ((0, "/dev/null", os.O_RDONLY), (1, run.path("stdout"), os.O_WRONLY | os.O_APPEND),
                                    (2, run.path("stderr"), os.O_WRONLY | os.O_APPEND)):  # fmt: skip
            file = os.open(name, flags | (os.O_CREAT if target else 0), 0o644)
            os.dup2(file, target, inheritable=True)
            os.close(file)
        os.chdir(run.path("work"))
        for ignored in _IGNORED:
            _signal.signal(ignored, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        os.execvpe(run.command[0], run.command, run.environment)
    except OSError as trouble:
        os.write(say, b"%d" % (trouble.errno or 1))
    except ValueError:
        os.write(say, b"22")
    finally:
        os._exit(127)


def watch(run: Run) -> tuple[str, int]:
    """Waits for the end of the command and enforces what may end it before; how it ended, and its wait status."""
    began = time.monotonic()
    limit = began + run.time_limit if run.time_limit is not None else None
    how, kill_at = "exited", None
    while True:
        status = reap(run)
        if status is not None:
            return how, status
        now = time.monotonic()
        if how != "lost" and overdue(run, now):
            how, kill_at = "lost", now
        if limit is not None and now >= limit and how == "exited":
            how, kill_at = "timed_out", terminate(run, now)
        if kill_at is not None and now >= kill_at:
            signal_group(run, _signal.SIGKILL)
            kill_at = None
        times = [at for at in (limit if how == "exited" else None, kill_at) if at is not None]
        if run.holder and how != "lost":
            times.append(run.until)
        if wait(min(times) - now if times else None) == _signal.SIGTERM:
            if how == "exited":
                how, kill_at = "stopped", terminate(run, time.monotonic())
            if stop_at_once(run):
                kill_at = time.monotonic()


def wait(seconds: float | None) -> int:
    found = _signal.sigwaitinfo(_SIGNALS) if seconds is None else _signal.sigtimedwait(_SIGNALS, max(0.0, seconds))
    return 0 if found is None else int(found.si_signo)


def stop_at_once(run: Run) -> bool:
    try:
        with open(run.path("stop.json"), "rb") as file:
            return b'"at_once":true' in file.read()
    except FileNotFoundError:
        return False


def overdue(run: Run, now: float) -> bool:
    """Whether a holder may not run any more, since nobody confirms its joblet's session."""
    return run.holder and now >= run.until and unconfirmed(run, now)


def unconfirmed(run: Run, now: float) -> bool:
    """Reads how long the joblet's session is confirmed. A gap in the confirmations ends a holder, however short."""
    try:
        with open(run.data + "/confirmed", "rb") as file:
            until, since, boot = file.read().split()
    except (OSError, ValueError):
        return True
    if boot != run.boot.encode() or float(since) > run.until:
        return True
    run.until = float(until)
    return now >= run.until


def reap(run: Run) -> int | None:
    """The wait status of the command once it has ended; what it left behind is buried on the way."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == run.group:
            return status
        if pid == 0:
            return None


def terminate(run: Run, now: float) -> float:
    signal_group(run, _signal.SIGTERM)
    return now + TERM_SECONDS


def signal_group(run: Run, number: int) -> None:
    signal_all(os.killpg, [run.group], number)


def signal_all(send: Callable[[int, int], None], pids: list[int], number: int) -> None:
    for pid in pids:
        try:  # noqa: SIM105 (contextlib costs the shim 2 ms)
            send(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def clear_descendants(run: Run) -> None:
    """Kills until nothing is left: an orphan of a killed process becomes a child of this one."""
    signal_group(run, _signal.SIGKILL)
    while True:
        signal_all(os.kill, children(), _signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def children() -> list[int]:
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and parent_of(pid) == me]


def parent_of(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def end(run: Run, how: str, status: int) -> None:
    """`status` is the exit code (128 + n for signal n), or the error number of a command that could not be started."""
    code = status if how == "not_started" else os.waitstatus_to_exitcode(status)
    code = 128 - code if code < 0 else code
    if how == "exited":
        run.append("ended", exit_code=code)
    else:
        run.append("ended")
    run.write("end.json", encode(how=how, code=code, started=run.started, finished=stamp()))


if __name__ == "__main__":
    main()
    # What is left to do for the interpreter is of no use to anyone, and takes milliseconds.
    os._exit(0)

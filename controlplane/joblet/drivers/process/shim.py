"""The small process that each command runs under: it keeps the exit code, the time limit and the promise to holders.

Run as `python -I -S shim.pyc SOURCE DATADIR`, with SIGTERM and SIGCHLD blocked and a socket on stdin, the program is
the fork server of one joblet: it forks a shim for each request and ends when the joblet is gone. With anything else on
stdin it is a shim from its beginning. A shim outlives the joblet and the fork server. A shim has its own session, reads
a marshalled spec from stdin, which stays open because its name identifies the shim, and writes a line to stdout when
the command runs.

A shim writes "started" to the records before the command starts, and "ended" when no process of the command is left;
then it writes `end.json` by rename, or, where the disk is full or the command put something in the way, the same text
into `shim.json`, whose space was allocated when the shim began. A shim holds a lock on the `spec.json` of its folder
while it lives; where the joblet found the lock free and left `abandoned`, the shim does nothing.

Standard library only, and little of it: every shim carries these imports, and a joblet that starts waits for them. That
is why there is `_signal` (signal needs enum), marshal and hand-written JSON: a shim writes only numbers, words of its
own, and text that the joblet has encoded before. Modules that a shim would import later are imported here, once. A shim
makes no file that it can do without: making files costs more than all its other work.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import ctypes
import errno
import fcntl
import os
import resource
import sys
import time
import warnings  # noqa: F401 (os.execvpe would import it in each shim)

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself is too slow to import here
    from collections.abc import Callable

    from controlplane.joblet.drivers.process import shim_output
    from controlplane.joblet.drivers.process.shim_fork_server import SIGNALS, is_fork_server, serve
    from controlplane.joblet.drivers.process.shim_run import ShimRun, boottime, encode, insist, overdue, read, stamp
else:
    # The joblet put all parts of the program beside this file.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    import shim_output
    from shim_fork_server import SIGNALS, is_fork_server, serve
    from shim_run import ShimRun, boottime, encode, insist, overdue, read, stamp

TERM_SECONDS = 5.0
# How long a shim tries to begin on a full disk, and the shim of a holder to put the end on record.
FULL_SECONDS = 5.0
# A suspended machine wakes no timer: the shim of a holder looks at its clock this often.
LOOK_SECONDS = 1.0
DRAIN_SECONDS = 2.0
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVS, _CAP_AMBIENT, _CLEAR_ALL = 1, 36, 38, 47, 4
# Signals that the interpreter ignores, or a shell that started the joblet in the background.
_IGNORED = (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGHUP)
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def main() -> None:
    _signal.pthread_sigmask(_signal.SIG_BLOCK, SIGNALS)
    if is_fork_server():
        serve()
    with open(0, "rb", closefd=False) as file:
        run = ShimRun(sys.argv[2], file.read())
    forget_stdin()
    lock = os.open(run.path("spec.json"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.path.exists(run.path("abandoned")):
        return
    if not run.holder:
        # The shim of a holder has to kill in time, whatever else keeps the machine busy.
        be_nice(run.nice)
    _prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    run.started = stamp()
    error = insist(run.write_evidence, FULL_SECONDS)
    if error:
        return  # the command did not begin, and the joblet finds no evidence of it
    if overdue(run):
        # The joblet was stopped meanwhile and goes on where it was: the unique resource may have another holder by now.
        run.write_end(encode(how="lost", finished=stamp()))
        return
    started = run.line("started")
    error = insist(lambda: run.append(started), FULL_SECONDS)
    if error or overdue(run):
        run.write_end(encode(how="not_started" if error else "lost", code=error, finished=stamp()))
        return
    pump = make_pump(run)
    error = start(run, pump) if pump is not None else errno.EMFILE
    if error or pump is None:
        end(run, "not_started", error)
        return
    tell_running()
    pump.start()
    how, status = watch(run)
    clear_descendants(run)
    pump.finish(DRAIN_SECONDS)
    end(run, how, status)


def forget_stdin() -> None:
    """Drops the content of the memory file, secrets among it, and keeps its name."""
    try:
        os.ftruncate(0, 0)
    except OSError:
        return  # stdin is no memory file


def make_pump(run: ShimRun) -> shim_output.Pump | None:
    try:
        return shim_output.Pump((run.path("stdout"), run.path("stderr")), run.output_limit)
    except OSError:
        return None


def be_nice(by: int) -> None:
    """Many kernels weigh sessions against each other, not processes, so the niceness is set for both."""
    if not by:
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, max(by, os.getpriority(os.PRIO_PROCESS, 0)))
        group = os.open("/proc/self/autogroup", os.O_WRONLY | os.O_CLOEXEC)
        os.write(group, b"%d" % by)
        os.close(group)
    except OSError:
        pass  # the kernel knows no autogroups, or limits how often a user may change them


def tell_running() -> None:
    try:
        os.write(1, b"running\n")
        os.close(1)
    except OSError:
        return  # the joblet is gone; the next one finds shim.json


def start(run: ShimRun, pump: shim_output.Pump) -> int:
    """Starts the command in a session of its own; returns the error number, 0 for success."""
    errors, failed = os.pipe2(os.O_CLOEXEC)
    shim = os.getpid()
    try:
        pid = os.fork()
    except OSError as refusal:
        return refusal.errno or errno.EAGAIN
    if pid == 0:
        become_command(run, failed, shim, pump.ends)
    os.close(failed)
    trouble = os.read(errors, 16)
    os.close(errors)
    run.group = pid
    if trouble:
        os.waitpid(pid, 0)
        return int(trouble)
    return 0


def become_command(run: ShimRun, failed: int, shim: int, outputs: tuple[int, ...]) -> None:
    try:
        os.setsid()
        be_nice(run.nice)
        if run.umask >= 0:
            os.umask(run.umask)
        set_limits(run)
        if run.run_as is not None:
            become_user(run.run_as, outputs)
        # A change of user would take this back.
        _prctl(_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
        if os.getppid() != shim:
            os._exit(127)
        os.dup2(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), 0, inheritable=True)
        for target, output in enumerate(outputs, 1):
            os.dup2(output, target, inheritable=True)
        os.chdir(run.task_folder + "/work")
        for ignored in _IGNORED:
            _signal.signal(ignored, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        os.execvpe(run.command[0], run.command, run.environment)
    except OSError as trouble:
        os.write(failed, b"%d" % (trouble.errno or 1))
    except ValueError:
        os.write(failed, b"22")
    finally:
        os._exit(127)


def set_limits(run: ShimRun) -> None:
    if run.descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (run.descriptors, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    if run.run_as is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if run.processes:
            resource.setrlimit(resource.RLIMIT_NPROC, (run.processes, run.processes))


def become_user(run_as: tuple[int, int, tuple[int, ...]], outputs: tuple[int, ...]) -> None:
    """Gives up the user of the joblet, its groups and all capabilities, for good. Raises OSError."""
    uid, gid, groups = run_as
    for output in outputs:
        # So that the command can open /dev/stdout and /dev/stderr.
        os.fchown(output, uid, -1)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    # A joblet that is not root may have its capabilities as ambient ones, which a change of user leaves.
    _prctl(_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    if _prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "")


def watch(run: ShimRun) -> tuple[str, int]:
    """Waits for the end of the command, and ends it early by time limit, stop or lost session.

    Returns how the command ended, and its wait status.
    """
    began = time.monotonic()
    limit = began + run.time_limit if run.time_limit is not None else None
    how, kill_at = "exited", None
    while True:
        status = reap(run)
        if status is not None:
            return how, status
        now = time.monotonic()
        if how != "lost" and overdue(run):
            how, kill_at = "lost", now
        if limit is not None and now >= limit and how == "exited":
            how, kill_at = "timed_out", terminate(run, now)
        if kill_at is not None and now >= kill_at:
            signal_group(run, _signal.SIGKILL)
            kill_at = None
        waits = [at - now for at in (limit if how == "exited" else None, kill_at) if at is not None]
        if run.holder and how != "lost":
            waits.append(min(run.until - boottime(), LOOK_SECONDS))
        if wait(min(waits) if waits else None) == _signal.SIGTERM:
            if how == "exited":
                how, kill_at = "stopped", terminate(run, time.monotonic())
            if stop_at_once(run):
                kill_at = time.monotonic()


def wait(seconds: float | None) -> int:
    signal = _signal.sigwaitinfo(SIGNALS) if seconds is None else _signal.sigtimedwait(SIGNALS, max(0.0, seconds))
    return 0 if signal is None else int(signal.si_signo)


def stop_at_once(run: ShimRun) -> bool:
    try:
        return b'"at_once":true' in read(run.path("stop.json"))
    except OSError:
        return False


def reap(run: ShimRun) -> int | None:
    """The wait status of the command once it has ended. Orphans of the command that ended are reaped on the way."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == run.group:
            return status
        if pid == 0:
            return None


def terminate(run: ShimRun, now: float) -> float:
    signal_group(run, _signal.SIGTERM)
    return now + TERM_SECONDS


def signal_group(run: ShimRun, number: int) -> None:
    signal_all(os.killpg, [run.group], number)


def signal_all(send: Callable[[int, int], None], pids: list[int], number: int) -> None:
    for pid in pids:
        try:  # noqa: SIM105 (contextlib costs the shim 2 ms)
            send(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def clear_descendants(run: ShimRun) -> None:
    """Kills until no process is left: an orphan of a killed process becomes a child of the shim."""
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


def end(run: ShimRun, how: str, status: int) -> None:
    """`status` is the exit code (128 + n for signal n), or the error number of a command that could not be started."""
    code = status if how == "not_started" else os.waitstatus_to_exitcode(status)
    code = 128 - code if code < 0 else code
    finished, ended = stamp(), run.line("ended", exit_code=code) if how == "exited" else run.line("ended")
    # The record of a holder is evidence that it did not overlap with the next holder.
    insist(lambda: run.append(ended), FULL_SECONDS if run.holder else 0)
    run.write_end(encode(how=how, code=code, started=run.started, finished=finished))


if __name__ == "__main__":
    main()
    # Shutting the interpreter down properly would take milliseconds for nothing.
    os._exit(0)

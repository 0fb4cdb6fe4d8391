"""Named points at which a process can be made to die or hang, for tests of recovery.

The plan is a text, read from an environment variable by the composition root: `name=crash` or `name=block:SECONDS`
(blocks the thread), several separated by commas. `@FILE` behind an action arms the action only while FILE exists, and
passing the point removes the file. Without a plan every point costs a dict look-up.
"""

from __future__ import annotations

import os
import signal
import time


class Failpoints:
    def __init__(self, plan: str = "") -> None:
        self._plan: dict[str, tuple[str, str]] = {}
        for entry in filter(None, plan.split(",")):
            name, _, rest = entry.partition("=")
            action, _, armed_by = rest.partition("@")
            if action != "crash" and not action.startswith("block:"):
                raise ValueError(f"failpoint {name}: action must be crash or block:SECONDS, not {action!r}")
            self._plan[name] = (action, armed_by)

    def reach(self, name: str) -> None:
        planned = self._plan.get(name)
        if planned is None:
            return
        action, armed_by = planned
        if armed_by:
            try:
                os.unlink(armed_by)
            except FileNotFoundError:
                return
        if action == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(float(action.removeprefix("block:")))


NONE = Failpoints()

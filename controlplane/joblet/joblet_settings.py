"""The settings of one joblet process, cross-checked when they are built."""

from __future__ import annotations

import re

import msgspec

from controlplane.aio.failpoint import Failpoints
from controlplane.model import address, quantity
from controlplane.model.driver_traits import DRIVERS, PROCESS, traits_of
from controlplane.model.errors import Invalid
from controlplane.model.quantity import Number
from controlplane.model.target import MOST_GRACE_SECONDS, SECURITY, targets_of

# The bytes that are kept of each output of an attempt.
OUTPUT_LIMIT = 64 << 20
LEAST_OUTPUT_LIMIT = 1 << 20
MOST_NICE = 19
# Of the user of commands, so that a command which forks without end leaves the machine alone.
MAX_PROCESSES = 4096
# A create may reach the API as late as its time-out and act as long again; names stay taken well beyond that.
TIMEOUTS_A_TOMBSTONE = 4
_NAME = re.compile(r"[a-z0-9.-]{1,63}")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_OBJECT = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a kubernetes joblet works with its cluster; times in seconds.

    kubeconfig: a file; empty inside the cluster.
    namespace: of the pods; empty for the namespace of the joblet's own pod, or `default` outside a cluster.
    request_timeout: of one request.
    tombstone: how long a pod that ended is kept.
    start_patience: how long a pod may wait for an image or a node.
    away: how long the API may be gone before the joblet falls silent.
    pull_secrets: for the images of all pods.
    security: the pod security standard of all pods.
    grace: how long a pod may take to stop.
    """

    kubeconfig: str = ""
    namespace: str = ""
    request_timeout: Number = 10
    tombstone: Number = 600
    start_patience: Number = 300
    away: Number = 10
    pull_secrets: tuple[str, ...] = ()
    security: str = "restricted"
    grace: Number = 30

    def __post_init__(self) -> None:
        for name in ("request_timeout", "tombstone", "start_patience", "away", "grace"):
            quantity.check(getattr(self, name), name)
        if not 1 <= self.grace <= MOST_GRACE_SECONDS:
            # Without any grace, the API would forget a pod whose node has not confirmed the end.
            raise Invalid("grace", f"must be 1 to {MOST_GRACE_SECONDS} s, not {self.grace}")
        if self.request_timeout < 1:
            raise Invalid("request_timeout", f"must be at least 1 s, not {self.request_timeout}")
        if self.tombstone < TIMEOUTS_A_TOMBSTONE * self.request_timeout:
            least = TIMEOUTS_A_TOMBSTONE * self.request_timeout
            raise Invalid("tombstone", f"must be at least {TIMEOUTS_A_TOMBSTONE} times request_timeout ({least} s)")
        if self.namespace and not _NAMESPACE.fullmatch(self.namespace):
            raise Invalid("namespace", f"{self.namespace!r} must be 1 to 63 characters of a-z, 0-9 and dash")
        for secret in self.pull_secrets:
            if not _OBJECT.fullmatch(secret):
                raise Invalid("pull_secrets", f"{secret!r} is no name of a Secret")
        if self.security not in SECURITY:
            raise Invalid("security", f"must be one of {', '.join(SECURITY)}, not {self.security!r}")


class JobletSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one joblet; fields without an entry here are as their names say.

    count: how many simulated targets the process serves, named NAME-0, NAME-1 and so on.
    duration, failure_rate, seed: how long simulated tasks take, and how many fail.
    token: the credential that the joblet shows to replicas, or a token with which the joblet enrols itself.
    enrol: a one-time enrolment token.
    tls_ca, tls_cert, tls_key: files with the CAs of replicas that serve TLS, and with a client certificate.
    region, labels: of a target that the joblet creates.
    resizable: a created target has no capacity of its own; its size is the capacity that its joblet reports, which may
    change with a restart.
    hosted: a replica starts the joblet, names its identity, and ends it; the joblet creates no target.
    nice: the niceness of the commands of a process target.
    output_limit: how many last bytes of each output of a command are kept, 0 for all.
    run_as: the user of commands; empty for the user of the joblet.
    task_dir: the folder of the folders of those commands; empty for `data_dir` with `.tasks` behind.
    max_processes: how many processes and threads all commands of that user may have, 0 for any number.
    """

    target: str
    endpoints: tuple[str, ...]
    driver: str = PROCESS
    capacity: dict[str, Number] = {}
    count: int = 1
    data_dir: str = ""
    duration: Number = 0.05
    failure_rate: float = 0.0
    seed: int = 0
    owner: str = ""
    token: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    enrol: str = ""
    region: str = ""
    labels: dict[str, str] = {}
    resizable: bool = False
    cluster: ClusterSettings = ClusterSettings()
    hosted: bool = False
    nice: int = 0
    output_limit: Number = OUTPUT_LIMIT
    run_as: str = ""
    task_dir: str = ""
    max_processes: int = MAX_PROCESSES
    failpoints: str = ""

    def __post_init__(self) -> None:
        self._check_driver()
        for name in self.targets():
            if not _NAME.fullmatch(name):
                raise Invalid("target", f"{name!r} must be 1 to 63 characters of a-z, 0-9, dot and dash")
        if not self.endpoints:
            raise Invalid("endpoints", "must name at least one replica as host:port")
        for endpoint in self.endpoints:
            host = address.parse(endpoint, "endpoints").host
            if not self.tls_ca and not address.is_loopback(host):
                raise Invalid("tls_ca", f"is needed: the joblet's credential goes to {host} over TLS only")
        if (self.tls_cert or self.tls_key) and not self.tls_ca:
            raise Invalid("tls_ca", "is needed with a client certificate")
        for name, amount in self.capacity.items():
            quantity.check(amount, f"capacity.{name}")
        quantity.check(self.duration, "duration")
        if not 0 <= self.failure_rate <= 1:
            raise Invalid("failure_rate", f"must be between 0 and 1, not {self.failure_rate}")
        try:
            Failpoints(self.failpoints)
        except ValueError as error:
            raise Invalid("failpoints", str(error)) from None

    def _check_driver(self) -> None:
        if self.driver not in DRIVERS:
            raise Invalid("driver", f"must be one of {', '.join(DRIVERS)}, not {self.driver!r}")
        traits = traits_of(self.driver)
        if self.count < 1:
            raise Invalid("count", f"must be at least 1, not {self.count}")
        if traits.outlives_joblet and self.count != 1:
            raise Invalid("count", f"must be 1 for the {self.driver} driver: one joblet for one target")
        if traits.outlives_joblet and not self.data_dir:
            raise Invalid("data_dir", f"must be given for the {self.driver} driver: its work outlives the joblet")
        if not 0 <= self.nice <= MOST_NICE:
            raise Invalid("nice", f"must be 0 to {MOST_NICE}, not {self.nice}")
        if not traits.runs_commands and self.nice:
            raise Invalid("nice", f"is for commands of the process driver, not for {self.driver}")
        if self.output_limit and not LEAST_OUTPUT_LIMIT <= self.output_limit <= 2**50:
            raise Invalid("output_limit", f"must be 0, or 1Mi to 1Pi, not {self.output_limit}")
        if not traits.runs_commands and self.output_limit != OUTPUT_LIMIT:
            raise Invalid("output_limit", f"is for commands of the process driver, not for {self.driver}")
        if not traits.runs_commands and self.run_as:
            raise Invalid("run_as", f"is for commands of the process driver, not for {self.driver}")
        if self.task_dir and not self.run_as:
            raise Invalid("task_dir", "is for commands that run as another user: give run_as too")
        if not 0 <= self.max_processes <= 2**22:
            raise Invalid("max_processes", f"must be 0 to {2**22}, not {self.max_processes}")
        if not traits.has_nodes and self.cluster != ClusterSettings():
            raise Invalid("kubeconfig", f"and all about a cluster is for the kubernetes driver, not for {self.driver}")

    def targets(self) -> tuple[str, ...]:
        return targets_of(self.target, self.count)

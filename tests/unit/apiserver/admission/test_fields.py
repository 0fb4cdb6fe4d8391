"""Every field of every object: what breaks its rule is refused by its path."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.apiserver.admission import named_admission, order_admission, settings_admission
from controlplane.model.errors import Invalid, LimitExceeded, NotFound, Refused
from controlplane.model.job import Constraint, Constraints, FailureMatch, FailurePolicy, Job
from controlplane.model.object import Named
from controlplane.model.order import OrderRequest
from controlplane.model.packet import Packet, PacketJob
from controlplane.model.resource import Resource
from controlplane.model.rule import Effect, Rule
from controlplane.model.settings import Quota, Settings, Weights
from controlplane.model.target import Target, Window
from tests.unit.apiserver.admission.known import Known

KNOWN = Known(Target(name="here"), Resource(name="scene", key="SCENE"), Job(name="render"))


def a_job(**fields: Any) -> Job:
    return Job(name="j", **fields)


def constrained(**fields: Any) -> Job:
    return a_job(constraints=Constraints(hard=(Constraint(**fields),)))


def with_policy(**fields: Any) -> Job:
    return a_job(failure_policies=(FailurePolicy(**fields),))


def with_policies(*policies: FailurePolicy) -> Job:
    return a_job(failure_policies=policies)


def matching(**fields: Any) -> FailurePolicy:
    return FailurePolicy(on=FailureMatch(**fields))


def a_packet(*parts: PacketJob, **fields: Any) -> Packet:
    return Packet(name="p", jobs=parts or (PacketJob(job="render"),), **fields)


def a_target(**fields: Any) -> Target:
    return Target(name="t", **fields)


def with_window(**fields: Any) -> Target:
    return a_target(windows=(Window(**{"from_": "08:00", "to": "18:00", **fields}),))


def a_rule(when: str = "true", **effect: Any) -> Rule:
    return Rule(name="r", when=when, then=Effect(**effect))


BAD: list[tuple[Named, type[Refused], str]] = [
    (Job(name=""), Invalid, "name"),
    (Job(name="Upper"), Invalid, "name"),
    (Job(name="a/b"), Invalid, "name"),
    (Job(name="x" * 64), Invalid, "name"),
    (Job(name=".."), Invalid, "name"),
    (Job(name="j", id="nope"), Invalid, "id"),
    (a_job(labels={"bad key": "x"}), Invalid, "labels.bad key"),
    (a_job(labels={"key": "line\nbreak"}), Invalid, "labels.key"),
    (a_job(labels={f"k{n}": "" for n in range(65)}), LimitExceeded, "labels"),
    (a_job(owner="x" * 300), LimitExceeded, "owner"),
    (a_job(creator="a\0b"), Invalid, "creator"),
    (a_job(image="x" * 2000), LimitExceeded, "image"),
    (a_job(command=("x",) * 1001), LimitExceeded, "command"),
    (a_job(command=("x" * 70_000,)), LimitExceeded, "command"),
    (a_job(command=("echo", "a\0b")), Invalid, "command[1]"),
    (a_job(command=("",)), Invalid, "command[0]"),
    (a_job(env={"1A": "x"}), Invalid, "env.1A"),
    (a_job(env={"CONTROLPLANE_ORDER": "x"}), Invalid, "env.CONTROLPLANE_ORDER"),
    (a_job(env={"A": "x" * 40_000}), LimitExceeded, "env.A"),
    (a_job(env={f"A{n}": "" for n in range(501)}), LimitExceeded, "env"),
    (a_job(requests={"cpu": -1}), Invalid, "requests.cpu"),
    (a_job(requests={"cpu": math.nan}), Invalid, "requests.cpu"),
    (a_job(requests={"cpu": math.inf}), Invalid, "requests.cpu"),
    (a_job(requests={"c p u": 1}), Invalid, "requests.c p u"),
    (a_job(time_limit=0), Invalid, "time_limit"),
    (a_job(time_limit=math.nan), Invalid, "time_limit"),
    (a_job(target_policy="here"), Invalid, "target_policy"),
    (a_job(target_policy="strict:"), Invalid, "target_policy"),
    (a_job(target_policy="strict:nowhere"), NotFound, "target_policy"),
    (a_job(drivers=("docker",)), Invalid, "drivers[0]"),
    (a_job(drivers=("process", "process")), Invalid, "drivers[1]"),
    (constrained(label="", op="Exists"), Invalid, "constraints.hard[0].label"),
    (constrained(label="zone", op="Is"), Invalid, "constraints.hard[0].op"),
    (constrained(label="zone", op="In"), Invalid, "constraints.hard[0].values"),
    (constrained(label="zone", op="NotIn"), Invalid, "constraints.hard[0].values"),
    (constrained(label="zone", op="Exists", values=("a",)), Invalid, "constraints.hard[0].values"),
    (constrained(label="zone", op="Gt", values=("1", "2")), Invalid, "constraints.hard[0].values"),
    (constrained(label="zone", op="Lt", values=("many",)), Invalid, "constraints.hard[0].values[0]"),
    (constrained(label="zone", op="Exists", weight=5), Invalid, "constraints.hard[0].weight"),
    (
        a_job(constraints=Constraints(soft=(Constraint(label="a", op="Exists", weight=math.nan),))),
        Invalid,
        "constraints.soft[0].weight",
    ),
    (a_job(affinity=(Constraint(label="a", op="?"),)), Invalid, "affinity[0].op"),
    (a_job(anti_affinity=(Constraint(label="a", op="?"),)), Invalid, "anti_affinity[0].op"),
    (a_job(spread="wide"), Invalid, "spread"),
    (a_job(region="e u"), Invalid, "region"),
    (a_job(prefer=((),)), Invalid, "prefer[0]"),
    (a_job(prefer=(("EU",),)), Invalid, "prefer[0][0]"),
    (a_job(class_="a b"), Invalid, "class"),
    (a_job(hurt_by=("a b",)), Invalid, "hurt_by[0]"),
    (a_job(resources=("missing",)), NotFound, "resources[0]"),
    (a_job(resources=("scene", "scene")), Invalid, "resources[1]"),
    (with_policy(action="shrug"), Invalid, "failure_policies[0].action"),
    (with_policy(action="retry", limit=-1), Invalid, "failure_policies[0].limit"),
    (with_policy(action="retry", backoff=-1), Invalid, "failure_policies[0].backoff"),
    (with_policy(action="retry", limit=1001), Invalid, "failure_policies[0].limit"),
    (with_policy(action="retry", backoff=math.nan), Invalid, "failure_policies[0].backoff"),
    (with_policy(action="retry", backoff=9, backoff_cap=8), Invalid, "failure_policies[0].backoff_cap"),
    (with_policy(action="fail", limit=1), Invalid, "failure_policies[0].limit"),
    (with_policy(action="hold", backoff=1), Invalid, "failure_policies[0].backoff"),
    (with_policy(action="ignore", backoff_cap=1), Invalid, "failure_policies[0].backoff_cap"),
    (with_policy(action="fail_order", elsewhere=True), Invalid, "failure_policies[0].elsewhere"),
    (with_policy(on=FailureMatch(exit_codes=(300,))), Invalid, "failure_policies[0].on.exit_codes[0]"),
    (with_policy(on=FailureMatch(exit_codes=(1, 0))), Invalid, "failure_policies[0].on.exit_codes[1]"),
    (with_policy(on=FailureMatch(reasons=("",))), Invalid, "failure_policies[0].on.reasons[0]"),
    (with_policy(on=FailureMatch(reasons=("Lost", "Tired"))), Invalid, "failure_policies[0].on.reasons[1]"),
    (with_policy(on=FailureMatch(attempts=(0,))), Invalid, "failure_policies[0].on.attempts[0]"),
    (with_policies(FailurePolicy(), matching(exit_codes=(1,))), Invalid, "failure_policies[1].on"),
    (
        with_policies(matching(reasons=("Lost", "Failed")), matching(reasons=("Lost",))),
        Invalid,
        "failure_policies[1].on",
    ),
    (
        with_policies(matching(exit_codes=(1, 2)), matching(attempts=(2,)), matching(exit_codes=(2,), attempts=(1,))),
        Invalid,
        "failure_policies[2].on",
    ),
    (
        with_policies(FailurePolicy(), matching(reasons=("Preempted",)), matching(reasons=("Preempted",))),
        Invalid,
        "failure_policies[2].on",
    ),
    (with_policies(FailurePolicy(), matching(reasons=("Lost",))), Invalid, "failure_policies[1].on"),
    (a_job(work=-1), Invalid, "work"),
    (a_job(min_chunk=0), Invalid, "min_chunk"),
    (a_job(max_chunks=0), Invalid, "max_chunks"),
    (Packet(name="p"), Invalid, "jobs"),
    (Packet(name="p", jobs=tuple(PacketJob(job=Job(name=f"j{n}")) for n in range(1001))), LimitExceeded, "jobs"),
    (a_packet(PacketJob()), Invalid, "jobs[0].job"),
    (a_packet(PacketJob(job="missing")), NotFound, "jobs[0].job"),
    (a_packet(PacketJob(job="render", count=0)), Invalid, "jobs[0].count"),
    (a_packet(PacketJob(job=Job(requests={"cpu": -1}))), Invalid, "jobs[0].job.requests.cpu"),
    (a_packet(PacketJob(job=Job(name="No"))), Invalid, "jobs[0].job.name"),
    (a_packet(PacketJob(job="render"), PacketJob(job="render")), Invalid, "jobs[1].job"),
    (a_packet(PacketJob(job="render", after=("x",))), Invalid, "jobs[0].after[0]"),
    (a_packet(PacketJob(job="render", after=("render",))), Invalid, "jobs[0].after"),
    (
        a_packet(PacketJob(job="render", after=("job-2",)), PacketJob(job=Job(), after=("render",))),
        Invalid,
        "jobs[0].after",
    ),
    (a_packet(resources=("missing",)), NotFound, "resources[0]"),
    (a_packet(pack=0), Invalid, "pack"),
    (a_packet(PacketJob(job=Job(env={f"A{n}": "x" * 30_000 for n in range(9)}))), LimitExceeded, "jobs"),
    (Resource(name="r"), Invalid, "key"),
    (Resource(name="r", key="A-B"), Invalid, "key"),
    (Resource(name="r", key="A", value="x" * 40_000), LimitExceeded, "value"),
    (a_target(driver="docker"), Invalid, "driver"),
    (a_target(region="e u"), Invalid, "region"),
    (a_target(capacity={"cpu": math.nan}), Invalid, "capacity.cpu"),
    (a_target(max_fulfilments=0), Invalid, "max_fulfilments"),
    (a_target(kubeconfig_secret="A B"), Invalid, "kubeconfig_secret"),
    (a_target(kubeconfig_secret="s"), Invalid, "kubeconfig_secret"),
    (a_target(kubeconfig_secret="s", driver="kubernetes"), NotFound, "kubeconfig_secret"),
    (a_target(security="baseline"), Invalid, "security"),
    (a_target(security="baseline", driver="kubernetes"), Invalid, "security"),
    (a_target(stop_grace=5, driver="kubernetes"), Invalid, "stop_grace"),
    (with_window(days=("monday",)), Invalid, "windows[0].days[0]"),
    (with_window(days=("mon", "mon")), Invalid, "windows[0].days[1]"),
    (with_window(from_="8:00"), Invalid, "windows[0].from"),
    (with_window(to="25:00"), Invalid, "windows[0].to"),
    (with_window(tz="Mars/Base"), Invalid, "windows[0].tz"),
    (with_window(tz="../../etc/passwd"), Invalid, "windows[0].tz"),
    (a_rule(" ", forbid=True), Invalid, "when"),
    (a_rule("[1].all(a, [1].all(b, [1].all(c, true)))", forbid=True), Invalid, "when"),
    (a_rule("size(['aaaaaaaa']" + ".map(x, x + x)" * 22 + "[0]) > 0", forbid=True), Invalid, "when"),
    (a_rule(), Invalid, "then"),
    (a_rule(forbid=True, limit=3), Invalid, "then"),
    (a_rule(prefer=math.nan), Invalid, "then.prefer"),
    (a_rule(prefer=-101), Invalid, "then.prefer"),
    (a_rule(prefer=101), Invalid, "then.prefer"),
    (a_rule(limit=-1), Invalid, "then.limit"),
    (a_rule("true &&\n  nobody == 1", forbid=True), Invalid, "when"),
    (a_rule("target.name == 'here'", priority=5), Invalid, "when"),
    (a_rule("job.name == 'render'", require=True), Invalid, "when"),
]


@pytest.mark.parametrize(
    ("item", "kind", "field"), BAD, ids=[f"{type(i).__name__}-{f}-{n}" for n, (i, _, f) in enumerate(BAD)]
)
def test_a_bad_field_is_refused_by_its_path(item: Named, kind: type[Refused], field: str) -> None:
    with pytest.raises(Refused) as caught:
        named_admission.admit(item, KNOWN)
    assert type(caught.value) is kind
    assert caught.value.field == field


@pytest.mark.parametrize(("item", "kind", "field"), BAD[::7])
def test_a_path_in_front_stands_before_the_field(item: Named, kind: type[Refused], field: str) -> None:
    with pytest.raises(kind) as caught:
        named_admission.admit(item, KNOWN, "objects[4]")
    assert caught.value.field == f"objects[4].{field}"


GOOD: list[Named] = [
    Job(name="a.b-3"),
    a_job(requests={"cpu": 0, "some.odd/thing": 2.5}, time_limit=0.5, target_policy="strict:here"),
    constrained(label="zone", op="Gt", values=("-2.5",)),
    a_job(constraints=Constraints(soft=(Constraint(label="a", op="In", values=("b",), weight=50),))),
    with_policy(on=FailureMatch(exit_codes=(1, 255), reasons=("Failed",), attempts=(1, 9)), action="fail_order"),
    with_policy(action="retry", limit=0, backoff=0, backoff_cap=0, elsewhere=True),
    with_policies(matching(reasons=("Lost",)), matching(exit_codes=(1,)), matching(attempts=(1,)), FailurePolicy()),
    with_policies(FailurePolicy(), matching(reasons=("Preempted",))),
    with_policies(matching(attempts=(1,)), matching(reasons=("Lost", "Preempted"), attempts=(1,))),
    with_policies(matching(exit_codes=(1,), attempts=(1,)), matching(exit_codes=(1,)), matching(exit_codes=(2, 1))),
    a_target(default_time_limit=60),
    a_packet(PacketJob(job="render"), PacketJob(job=Job(), after=("render",)), resources=("scene",), gang=True, pack=5),
    Resource(name="r", key="_A1", value="", unique=True),
    a_target(capacity={"cpu": 4}, max_fulfilments=1, driver="simulated"),
    with_window(days=("mon", "sun"), from_="00:00", to="24:00", tz="UTC"),
    with_window(from_="22:00", to="06:00", tz="Europe/Berlin"),
    with_window(to="08:00"),
    a_rule(prefer=-100),
    a_rule(prefer=-30),
    a_rule(priority=10),
]


@pytest.mark.parametrize("item", GOOD)
def test_what_keeps_the_rules_is_admitted_as_it_is(item: Named) -> None:
    admitted = named_admission.admit(item, KNOWN)
    assert (admitted.name, type(admitted)) == (item.name, type(item))


def test_a_rule_is_refused_with_the_line_and_the_column_of_its_error() -> None:
    with pytest.raises(Invalid) as caught:
        named_admission.admit(
            a_rule("job.labels.team == 'film'\n  && && now.hour >= 22", forbid=True), KNOWN, "objects[3]"
        )
    assert caught.value.field == "objects[3].when"
    assert caught.value.rule.startswith("at line 2, column 6: ")


def test_a_packet_gets_its_defaults_and_its_jobs_their_names() -> None:
    admitted = named_admission.admit(Packet(name="p", jobs=(PacketJob(job="render"), PacketJob(job=Job()))), KNOWN)
    assert (admitted.gang, admitted.pack) == (False, 1)
    assert [part.count for part in admitted.jobs] == [1, 1]
    assert isinstance(admitted.jobs[1].job, Job)
    assert admitted.jobs[1].job.name == "job-2"


@given(st.text(max_size=70))
def test_a_name_is_taken_only_in_its_alphabet(name: str) -> None:
    allowed = 0 < len(name) < 64 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-") and set(name) != {"."}
    if allowed:
        named_admission.admit(Job(name=name), KNOWN)
    else:
        with pytest.raises(Invalid, match=r"^name: "):
            named_admission.admit(Job(name=name), KNOWN)


@given(st.dictionaries(st.integers(0, 7), st.sets(st.integers(0, 7), max_size=3), max_size=8))
def test_jobs_that_wait_in_a_circle_are_refused_and_no_others(waits: dict[int, set[int]]) -> None:
    names = {number: f"j{number}" for number in range(8)}
    parts = tuple(
        PacketJob(job=Job(name=names[number]), after=tuple(names[other] for other in waits.get(number, ())))
        for number in range(8)
    )

    def circular(number: int, path: tuple[int, ...] = ()) -> bool:
        return number in path or any(circular(other, (*path, number)) for other in waits.get(number, ()))

    if any(circular(number) for number in range(8)):
        with pytest.raises(Invalid, match="would wait for itself"):
            named_admission.admit(Packet(name="p", jobs=parts), KNOWN)
    else:
        named_admission.admit(Packet(name="p", jobs=parts), KNOWN)


@pytest.mark.parametrize(
    ("request_", "kind", "field"),
    [
        (OrderRequest(), Invalid, "packet"),
        (OrderRequest(packet="UP"), Invalid, "packet"),
        (OrderRequest(packet=Packet(name="UP")), Invalid, "packet.name"),
        (OrderRequest(packet="p", priority=0), Invalid, "priority"),
        (OrderRequest(packet="p", priority=101), Invalid, "priority"),
        (OrderRequest(packet="p", owner="a\nb"), Invalid, "owner"),
        (OrderRequest(packet="p", labels={"": "x"}), Invalid, "labels."),
        (OrderRequest(packet="p", target_policy="strict:nowhere"), NotFound, "target_policy"),
        (OrderRequest(packet="p", target_policy="some"), Invalid, "target_policy"),
        (OrderRequest(packet="p", deadline=0), Invalid, "deadline"),
        (OrderRequest(packet="p", deadline=math.inf), Invalid, "deadline"),
        (OrderRequest(packet="p", not_before="tomorrow"), Invalid, "not_before"),
        (OrderRequest(packet="p", not_before="2026-12-01T00:00:00"), Invalid, "not_before"),
        (OrderRequest(packet="p", orchestration="shove"), Invalid, "orchestration"),
        (
            OrderRequest(packet="p", failure_policies=(FailurePolicy(action="x"),)),
            Invalid,
            "failure_policies[0].action",
        ),
    ],
)
def test_a_bad_field_of_an_order_is_refused(request_: OrderRequest, kind: type[Refused], field: str) -> None:
    with pytest.raises(Refused) as caught:
        order_admission.check(request_, KNOWN)
    assert (type(caught.value), caught.value.field) == (kind, field)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"clean_up": 0}, "clean_up"),
        ({"clean_up": math.nan}, "clean_up"),
        ({"target_grace": 1}, "target_grace"),
        ({"joblet_lease": 1}, "joblet_lease"),
        ({"heartbeat": 0}, "heartbeat"),
        ({"heartbeat": 2.5}, "heartbeat"),
        ({"kill_grace": -1}, "kill_grace"),
        ({"cycle_budget": 0}, "cycle_budget"),
        ({"default_requests": {"cpu": -1}}, "default_requests.cpu"),
        ({"placement": "spread"}, "placement"),
        ({"weights": Weights(soft=-1)}, "weights.soft"),
        ({"weights": Weights(reliability=100.5)}, "weights.reliability"),
        ({"weights": Weights(room=math.nan)}, "weights.room"),
        ({"reservations": -1}, "reservations"),
        ({"reservations": 1001}, "reservations"),
        ({"failure_memory": -1}, "failure_memory"),
        ({"event_ttl": 59}, "event_ttl"),
        ({"stats_interval": 0}, "stats_interval"),
        ({"quotas": {"": Quota()}}, "quotas."),
        ({"quotas": {"a\nb": Quota()}}, "quotas.a\nb"),
        ({"quotas": {"ada": Quota(orders=-1)}}, "quotas.ada.orders"),
        ({"quotas": {"*": Quota(live_tasks=-1)}}, "quotas.*.live_tasks"),
        ({"quotas": {"ada": Quota(quantities={"cpu": -1})}}, "quotas.ada.quantities.cpu"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        settings_admission.admit(msgspec.structs.replace(Settings(), **changes))
    assert caught.value.field == field


def test_the_default_settings_are_admitted() -> None:
    assert settings_admission.admit(Settings()) == Settings()


def test_settings_of_the_engine_are_admitted_up_to_their_bounds() -> None:
    quotas = {"*": Quota(orders=0), "Ada Lovelace": Quota(live_tasks=3, quantities={"cpu": 8.0})}
    weights = Weights(soft=0, room=100, rules=0.5)
    chosen = Settings(placement="pack", weights=weights, quotas=quotas, reservations=0, failure_memory=0)
    assert settings_admission.admit(chosen) == chosen
    with pytest.raises(LimitExceeded):
        settings_admission.admit(Settings(quotas={str(number): Quota() for number in range(1001)}))

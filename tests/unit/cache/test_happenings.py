"""What changes tell a person: the good path tells nothing, the rest says what, why and by whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from controlplane.cache.happenings import owned
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.observer import Observer
from controlplane.model.event import About, Happening
from controlplane.model.fulfilment import Ended, EndedTask, Preemption
from controlplane.model.job import Job
from controlplane.model.leadership import Term, TermEnd
from controlplane.model.order import Counts, OrderStatus
from controlplane.model.packet import Packet, PacketJob
from controlplane.model.resource import Resource
from controlplane.model.rule import Rule
from controlplane.model.scalepolicy import ScalePolicy
from controlplane.model.settings import Settings
from controlplane.model.target import TargetStatus
from controlplane.store import keys
from tests.builders import NOW, a_fulfilment, a_session, a_target, an_identity, an_order
from tests.picture import Content, History, Picture

ORDER = an_order().build()


class Scene:
    """A replica that has listed an etcd with one order and one target in it, led by replica-1."""

    def __init__(self) -> None:
        self.history = History()
        self.cache = Picture()
        self.observer = Observer(Ledgers(self.cache))
        self.heard: list[Happening] = []
        self.tell(
            {
                keys.term(1): Term(epoch=1, id="replica-1", since=NOW),
                keys.order(ORDER.id): ORDER,
                keys.config("targets", "t1"): msgspec.structs.replace(a_target("t1", cpu=4), owner="ada"),
            }
        )
        self.stop = self.observer.subscribe(self.heard.append, 0)

    def tell(self, contents: Mapping[str, Content]) -> list[Happening]:
        """What is told of this write."""
        before = len(self.heard)
        self.cache.tell(self.history.write(contents))
        return self.heard[before:]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def brief(happenings: list[Happening]) -> list[tuple[str, str, str]]:
    return [(f"{one.about.kind}/{one.about.name}", one.reason, one.by) for one in happenings]


def status(phase: str, **counts: int) -> OrderStatus:
    return OrderStatus(order=ORDER.id, epoch=1, phase=phase, counts=Counts(**counts))


def test_the_list_that_a_replica_starts_with_is_no_news(scene: Scene) -> None:
    assert scene.heard == []


def test_the_good_path_tells_nothing(scene: Scene) -> None:
    order = ORDER
    placed = a_fulfilment(order.id).task(0)
    assert scene.tell({keys.order(order.id): order}) == []
    assert scene.tell({keys.desired("t1", placed.identity): placed.build()}) == []
    assert scene.tell({keys.observed("t1", placed.identity): placed.observed("Running")}) == []
    assert scene.tell({keys.order_status(order.id): status("Running", running=1)}) == []
    ended = {keys.ended(order.id, placed.identity): placed.ended("done"), keys.desired("t1", placed.identity): None}
    assert scene.tell({**ended, keys.order_status(order.id): status("Succeeded", succeeded=1)}) == []
    assert scene.tell({keys.order(order.id): None, keys.order_status(order.id): None}) == []


@pytest.mark.parametrize(
    ("change", "reason", "message"),
    [
        ({"cancel": True}, "CancelWished", ""),
        ({"paused": True}, "PauseWished", ""),
        ({"priority": 90}, "Changed", "priority 50 -> 90"),
        ({"target_policy": "strict:t1"}, "Changed", 'target_policy unset -> "strict:t1"'),
    ],
)
def test_a_wish_about_an_order_is_told_by_its_owner(
    scene: Scene, change: dict[str, Any], reason: str, message: str
) -> None:
    changed = msgspec.structs.replace(ORDER, owner="ada")
    scene.tell({keys.order(ORDER.id): changed})
    [told] = scene.tell({keys.order(ORDER.id): msgspec.structs.replace(changed, **change)})
    assert brief([told]) == [(f"Order/{ORDER.id}", reason, "ada")]
    assert told.message == message


def test_a_resumed_order_says_so(scene: Scene) -> None:
    scene.tell({keys.order(ORDER.id): msgspec.structs.replace(ORDER, paused=True)})
    told = scene.tell({keys.order_status(ORDER.id): status("Paused", pending=1)})
    assert brief(told) == [(f"Order/{ORDER.id}", "Paused", "controller_manager@replica-1")]
    assert [one.reason for one in scene.tell({keys.order(ORDER.id): ORDER})] == ["ResumeWished"]
    assert [one.reason for one in scene.tell({keys.order_status(ORDER.id): status("Running", placed=1)})] == ["Resumed"]


def ended(*tasks: EndedTask) -> Ended:
    return Ended(id="f1", order=ORDER.id, target="t1", epoch=1, cycle=1, tasks=tasks, ended=NOW)


def attempt(index: int = 0, **fields: Any) -> EndedTask:
    given = {"job": "job-0", "index": index, "attempt": 1, "phase": "Failed", "decision": "fail", "reason": "Failed"}
    return EndedTask(**{**given, **fields})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "AttemptFailed"),
        ({"decision": "retry"}, "Retry"),
        ({"decision": "hold"}, "Held"),
        ({"decision": "ignore"}, "Ignored"),
        ({"phase": "Cancelled", "reason": "Preempted", "decision": "retry"}, "Retry"),
    ],
)
def test_an_attempt_that_did_not_go_well_tells_its_reason_and_the_decision(
    scene: Scene, fields: dict[str, Any], reason: str
) -> None:
    [told] = scene.tell({keys.ended(ORDER.id, "f1"): ended(attempt(exit_code=3, **fields))})
    assert brief([told]) == [(f"Order/{ORDER.id}", reason, "controller_manager@replica-1")]
    assert f"attempt 1 of job-0 on t1 ended: {fields.get('reason', 'Failed')}, exit code 3" in told.message
    assert told.message.endswith(f"decision: {fields.get('decision', 'fail')}")
    assert told.type == "Warning"


def test_tasks_that_ended_alike_are_told_together_and_good_ones_not_at_all(scene: Scene) -> None:
    good = attempt(9, phase="Succeeded", decision="done", reason="")
    told = scene.tell({keys.ended(ORDER.id, "f1"): ended(attempt(0), attempt(1), attempt(2, exit_code=5), good)})
    assert len(told) == 2


def test_a_failed_order_says_why(scene: Scene) -> None:
    scene.tell({keys.ended(ORDER.id, "f1"): ended(attempt(exit_code=3, message="no space"))})
    [told] = scene.tell({keys.order_status(ORDER.id): status("Failed", failed=1)})
    assert (told.reason, told.type) == ("Failed", "Warning")
    assert told.message == "1 failed: Failed, exit code 3, no space"


def test_held_tasks_are_told_when_they_become_more(scene: Scene) -> None:
    [told] = scene.tell({keys.order_status(ORDER.id): status("Running", held=1, running=1)})
    assert told.reason == "Held"
    assert scene.tell({keys.order_status(ORDER.id): status("Running", held=1, succeeded=1)}) == []
    assert len(scene.tell({keys.order_status(ORDER.id): status("Running", held=2)})) == 1


def test_the_order_that_work_is_stopped_for_is_named(scene: Scene) -> None:
    placed = a_fulfilment(ORDER.id).task(0)
    scene.tell({keys.desired("t1", placed.identity): placed.build()})
    other = an_identity()
    record = Preemption(
        fulfilment=placed.identity,
        order=ORDER.id,
        target="t1",
        by=other,
        job="j",
        room=placed.identity,
        epoch=1,
        cycle=1,
    )
    stopped = msgspec.structs.replace(placed.build(), want="stop", reason="Preempted")
    together = {keys.desired("t1", placed.identity): stopped, keys.preemption("t1", placed.identity): record}
    [told] = scene.tell(together)
    assert told.message == f"1 tasks are stopped on t1 to make room for order {other}"


def test_whoever_wished_for_a_change_is_named_and_else_the_owner(scene: Scene) -> None:
    [told] = scene.tell({keys.order(ORDER.id): msgspec.structs.replace(ORDER, cancel=True, changed_by="bob")})
    assert (told.reason, told.by) == ("CancelWished", "bob")
    [told] = scene.tell({keys.order(ORDER.id): msgspec.structs.replace(ORDER, paused=True, cancel=True, owner="ada")})[
        :1
    ]
    assert told.by == "ada"


def test_work_that_is_stopped_without_a_cancel_is_told_once(scene: Scene) -> None:
    placed = a_fulfilment(ORDER.id).task(0).task(1)
    place = keys.desired("t1", placed.identity)
    scene.tell({place: placed.build()})
    stopped = msgspec.structs.replace(placed.build(), want="stop", reason="Preempted")
    [told] = scene.tell({place: stopped})
    assert brief([told]) == [(f"Order/{ORDER.id}", "Preempted", "scheduler@replica-1")]
    assert told.message == "2 tasks are stopped on t1"
    assert scene.tell({place: msgspec.structs.replace(stopped, epoch=2)}) == []
    other = a_fulfilment(ORDER.id).task(2)
    place = keys.desired("t1", other.identity)
    scene.tell({place: other.build()})
    assert scene.tell({place: msgspec.structs.replace(other.build(), want="stop", reason="Cancelled")}) == []


def test_the_phases_of_a_target_are_told_with_why(scene: Scene) -> None:
    place = keys.target_status("t1")
    assert scene.tell({place: TargetStatus(target="t1", epoch=1, phase="Ready")}) == []
    assert scene.tell({place: TargetStatus(target="t1", epoch=1, phase="Ready", used={"cpu": 1})}) == []
    [told] = scene.tell({place: TargetStatus(target="t1", epoch=1, phase="Suspect", reason="its session ended")})
    assert brief([told]) == [("Target/t1", "Suspect", "controller_manager@replica-1")]
    assert (told.message, told.type) == ("was Ready: its session ended", "Warning")
    [told] = scene.tell({place: TargetStatus(target="t1", epoch=1, phase="Ready")})
    assert (told.reason, told.message, told.type) == ("Ready", "was Suspect", "Normal")


def test_joblets_come_and_go_and_their_stats_are_no_event(scene: Scene) -> None:
    live = a_session("t1", cpu=4)
    [told] = scene.tell({keys.live("t1"): live})
    assert brief([told]) == [("Target/t1", "Joined", "joblet@t1")]
    assert scene.tell({keys.live("t1"): msgspec.structs.replace(live, stats={"load": 1})}) == []
    assert scene.tell({keys.live("t1"): msgspec.structs.replace(live, session="another-lease")}) == []
    assert [one.reason for one in scene.tell({keys.live("t1"): a_session("t1", cpu=4)})] == ["Joined"]
    [told] = scene.tell({keys.live("t1"): None})
    assert (told.reason, told.type) == ("Left", "Warning")


@pytest.mark.parametrize(
    ("field", "made", "taken_back"),
    [("cordoned", "CordonWished", "UncordonWished"), ("drain", "DrainWished", "DrainTakenBack")],
)
def test_a_wish_about_a_target_is_told_by_its_owner(scene: Scene, field: str, made: str, taken_back: str) -> None:
    target = msgspec.structs.replace(a_target("t1", cpu=4), owner="ada")
    scene.tell({keys.config("targets", "t1"): target})
    wished = scene.tell({keys.config("targets", "t1"): msgspec.structs.replace(target, **{field: True})})
    assert brief(wished) == [("Target/t1", made, "ada")]
    assert [one.reason for one in scene.tell({keys.config("targets", "t1"): target})] == [taken_back]


def test_settings_and_rules_say_what_changed(scene: Scene) -> None:
    assert brief(scene.tell({keys.SETTINGS: Settings(clean_up=10)})) == [("Settings/settings", "Created", "user")]
    [told] = scene.tell({keys.SETTINGS: Settings(clean_up=20, placement="pack")})
    assert told.message == 'clean_up 10 -> 20; placement unset -> "pack"'
    rule = keys.config("rules", "r")
    contents = (Rule(name="r", owner="eve", when="true"), Rule(name="r", owner="eve", when="false"), None)
    rules = [one for content in contents for one in scene.tell({rule: content})]
    assert brief(rules) == [("Rule/r", reason, "eve") for reason in ("Created", "Changed", "Deleted")]


def test_a_change_of_leader_says_how_the_term_before_ended(scene: Scene) -> None:
    ended = TermEnd(epoch=1, how="pulse-closed")
    [told] = scene.tell({keys.term(5): Term(epoch=5, id="replica-2", since=NOW, ended=ended)})
    assert brief([told]) == [("Cluster/leader", "LeaderElected", "election@replica-2")]
    assert told.message == "replica-2 leads, epoch 5; epoch 1 ended: pulse-closed"


def test_poison_is_told_when_it_is_found_and_when_it_is_mended(scene: Scene) -> None:
    key = keys.order(an_order().build().id)
    name = key.removeprefix(keys.ROOT)
    [told] = scene.tell({key: b"not json"})
    assert (told.about.kind, told.about.name, told.reason, told.type) == ("Key", name, "Poison", "Warning")
    assert told.message.startswith("is set aside: not a Order: ")
    [other] = scene.tell({keys.claim("x"): b"{}"})
    assert (other.about.name, other.reason) == ("claims/x", "Poison")
    assert [one.reason for one in scene.tell({key: None})] == ["Mended"]


def test_a_config_object_that_cannot_be_read_is_poison_too(scene: Scene) -> None:
    [told] = scene.tell({keys.config("packets", "broken"): b"{not json"})
    assert (told.about.kind, told.about.name, told.reason) == ("Key", "config/packets/broken", "Poison")


@pytest.mark.parametrize("tree", [keys.order_status("o"), keys.ended("o", "f"), keys.target_status("t"), keys.term(9)])
def test_what_cannot_be_read_tells_nothing_but_that(scene: Scene, tree: str) -> None:
    told = scene.tell({tree: b'{"phase":"Failed","held":1'})
    assert {one.reason for one in told} <= {"Poison"}


def test_a_new_leader_is_told_what_happened_behind_the_last_event(scene: Scene) -> None:
    scene.stop()
    scene.tell({keys.live("t1"): a_session("t1", cpu=4)})
    known = scene.cache.revision
    scene.tell({keys.live("t1"): None})
    heard: list[Happening] = []
    scene.observer.subscribe(heard.append, known)
    assert [one.reason for one in heard] == ["Left"]


NO_SUCH_FILE = 'exec: "/bin/doesnotexist": stat /bin/doesnotexist: no such file or directory'


def test_of_a_long_start_error_the_event_keeps_the_cause(scene: Scene) -> None:
    placed = a_fulfilment(ORDER.id).task(0)
    ended = placed.ended("fail", reason="StartError")
    long = f"{'failed to create shim task: ' * 20}{NO_SUCH_FILE}"
    ended = msgspec.structs.replace(ended, tasks=(msgspec.structs.replace(ended.tasks[0], message=long),))
    [told] = scene.tell({keys.ended(ORDER.id, placed.identity): ended})
    assert "StartError, …" in told.message
    assert NO_SUCH_FILE in told.message


PASSWORD = "hunter2"


def a_job_with(**said: Any) -> Job:
    return Job(name="j", command=("run",), **said)


@pytest.mark.parametrize(
    ("folder", "old", "new", "message"),
    [
        ("jobs", a_job_with(), a_job_with(env={"DB_PASSWORD": PASSWORD}), "env (DB_PASSWORD)"),
        ("jobs", a_job_with(env={"A": "1", "B": PASSWORD}), a_job_with(env={"A": "1"}), "env (B)"),
        ("jobs", a_job_with(), Job(name="j", command=("run", f"--token={PASSWORD}")), "command"),
        ("jobs", a_job_with(), a_job_with(labels={"key": PASSWORD}), "labels (key)"),
        ("jobs", a_job_with(requests={"cpu": 1}), a_job_with(requests={"cpu": 2}), 'requests {"cpu":1} -> {"cpu":2}'),
        (
            "packets",
            Packet(name="j"),
            Packet(name="j", jobs=(PacketJob(job=a_job_with(env={"A": PASSWORD})),)),
            "jobs",
        ),
        (
            "scalepolicies",
            ScalePolicy(name="j", provider="webhook", url="https://old/"),
            ScalePolicy(name="j", provider="webhook", url=f"https://user:{PASSWORD}@new/"),
            "url",
        ),
        ("rules", Rule(name="j", when="true"), Rule(name="j", when=f"job.env.KEY == '{PASSWORD}'"), "when"),
    ],
)
def test_an_event_names_what_changed_and_shows_no_text_that_may_be_secret(
    scene: Scene, folder: str, old: msgspec.Struct, new: msgspec.Struct, message: str
) -> None:
    scene.tell({keys.config(folder, "j"): old})
    [told] = scene.tell({keys.config(folder, "j"): new})
    assert (told.reason, told.message) == ("Changed", message)


def test_resources_that_an_order_gets_are_named_without_their_values(scene: Scene) -> None:
    changed = msgspec.structs.replace(ORDER, resources=(Resource(name="r", key="KEY", value=PASSWORD),))
    [told] = scene.tell({keys.order(ORDER.id): changed})
    assert (told.reason, told.message) == ("Changed", "resources")


def test_a_failure_about_an_order_belongs_to_the_owner_of_the_order(scene: Scene) -> None:
    order = msgspec.structs.replace(an_order().build(), owner="ada")
    scene.tell({keys.order(order.id): order})
    failure = Happening(about=About(kind="Order", name=order.id), reason="HandlingFailed")
    assert owned(failure, scene.cache.snapshot).owner == "ada"
    gone = Happening(about=About(kind="Order", name="gone"), reason="HandlingFailed")
    assert owned(gone, scene.cache.snapshot).owner == ""
    of_the_plane = Happening(about=About(kind="Target", name=order.id), reason="HandlingFailed")
    assert owned(of_the_plane, scene.cache.snapshot) == of_the_plane

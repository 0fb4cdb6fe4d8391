"""F14: the cluster's API answers 409, 429, 500, or not at all after it has acted; its watch has to begin anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubernetes.faulty import (
    Act,
    answers,
    answers_after_the_effect,
    faulty,
    gone,
    late,
    silent_after_the_effect,
    silent_without_effect,
)
from tests.kubernetes.kubelet import Cluster, busy_node
from tests.kubernetes.server import KubeServer
from tests.kubernetes.stage import ALONE, add_cluster, ends, kept, submit, until_final, until_ready
from tests.robustness.world import UNIQUE, a_world

QUICK = ("--request-timeout", "1s")

FAULTS: dict[str, tuple[str, Act, int]] = {
    "a conflict": ("create", answers(409, "Conflict"), 2),
    "too many requests": ("create", answers(429, "TooManyRequests", retry_after=1), 2),
    "an error without effect": ("create", answers(500, "InternalError"), 2),
    "an error after the effect": ("create", answers_after_the_effect(500, "InternalError"), 2),
    "silence after the effect": ("create", silent_after_the_effect, 2),
    "silence without effect": ("create", silent_without_effect, 1),
    "a watch that is gone": ("watch", gone, 3),
    "a list that errs": ("list", answers(500, "InternalError"), 2),
    "a delete that errs": ("delete", answers(500, "InternalError"), 3),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_everything_ends_well_and_no_pod_is_made_twice(
    fault: str, tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    namespace = f"f14-{list(FAULTS).index(fault)}"
    await cluster.add_namespace(namespace)
    async with (
        a_world(tmp_path, ALONE) as world,
        faulty(kube) as proxy,
        busy_node(cluster, namespace=namespace) as history,
    ):
        kind, act, times = FAULTS[fault]
        injected = proxy.inject(kind, act, times)
        add_cluster(
            world, "kube-1", proxy.kubeconfig(tmp_path), namespace=namespace, flags=(*QUICK, "--tombstone", "4s")
        )
        await until_ready(world, "kube-1")
        orders = [await submit(world, count=3), await submit(world, unique=UNIQUE[0])]
        assert await until_final(world, *orders) == ["Succeeded", "Succeeded"]
        # Tombstones go too, in the end.
        await history.until(lambda seen: not seen.newest)
        assert injected.met == times, "the fault was met"
        await kept(world, *orders)
        assert history.made_twice() == set()


async def test_a_create_that_acts_after_it_was_given_up_makes_no_second_run(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    """Its attempt is lost, and tried again as another one; the pod that comes late is removed."""
    await cluster.add_namespace("late")
    async with (
        a_world(tmp_path, ALONE) as world,
        faulty(kube) as proxy,
        busy_node(cluster, namespace="late") as history,
    ):
        proxy.inject("create", late(4.0))
        add_cluster(world, "kube-1", proxy.kubeconfig(tmp_path), namespace="late", flags=QUICK)
        await until_ready(world, "kube-1")
        order = await submit(world)
        assert await until_final(world, order) == ["Succeeded"]
        (_, first), (_, second) = sorted(ends(world, order), key=lambda end: end[1].attempt)
        assert (first.attempt, first.phase, first.reason) == (1, "Failed", "Lost")
        assert (second.attempt, second.phase) == (2, "Succeeded")
        await history.until(lambda seen: len(seen.made) == 2)
        assert history.made_twice() == set()
        await kept(world, order)

"""Typed calls of every service, and which calls are safe to repeat.

Safe to repeat are reads, submits (each carries an identity), idempotent wishes (cancel, pause, resume), and updates
that compare the revision that was read. Deletes, creates and step-down are not: a repeat would meet the effect of the
first call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from controlplane.client.caller import Caller, Method
from controlplane.client.log_reading import read_logs
from controlplane.client.resuming_watch import WatchStream, latest, watch
from controlplane.wire.v1 import access_pb2 as access
from controlplane.wire.v1 import access_pb2_grpc as access_grpc
from controlplane.wire.v1 import cluster_pb2 as cluster
from controlplane.wire.v1 import cluster_pb2_grpc as cluster_grpc
from controlplane.wire.v1 import common_pb2 as common
from controlplane.wire.v1 import explanations_pb2 as explanations
from controlplane.wire.v1 import logs_pb2 as logs
from controlplane.wire.v1 import orders_pb2 as orders
from controlplane.wire.v1 import orders_pb2_grpc as orders_grpc

PAGE = 1000


class ReadCalls:
    """Get, list and watch a kind of object."""

    def __init__(self, caller: Caller, stub: Any, key: str) -> None:
        self._caller = caller
        self._stub = stub
        self._key = key

    async def get(self, name: str) -> Any:
        request = common.GetRequest(name=name, min_revision=self._caller.revision)
        return await self._caller.read(Method(self._stub, "Get", object), request)

    async def page(self, request: Any) -> Any:
        request.min_revision = max(request.min_revision, self._caller.revision)
        return await self._caller.read(Method(self._stub, "List", object), request)

    def watch(self, request: Any) -> AsyncGenerator[Any, None]:
        return watch(self._caller, WatchStream(self._stub, "Watch", self._key), request)


class NamedCalls(ReadCalls):
    """Calls for objects that users write, each under its unique name."""

    def __init__(self, caller: Caller, stub: Any) -> None:
        super().__init__(caller, stub, "name")

    async def create(self, item: Any) -> Any:
        return await self._caller.write(Method(self._stub, "Create", object), item, repeatable=False)

    async def update(self, item: Any) -> Any:
        return await self._caller.write(Method(self._stub, "Update", object), item, repeatable=item.revision != 0)

    async def delete(self, name: str, *, revision: int = 0) -> common.DeleteResponse:
        request = common.DeleteRequest(name=name, revision=revision)
        return await self._caller.write(Method(self._stub, "Delete", common.DeleteResponse), request, repeatable=False)


class OrderCalls(ReadCalls):
    """Calls for orders and their tasks."""

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller, orders_grpc.OrdersStub, "id")

    async def submit(self, order: orders.Order) -> orders.OrderResponse:
        """The order must carry its identity, so that a repeat of this call submits the same order."""
        return await self._caller.write(
            Method(self._stub, "Submit", orders.OrderResponse), order, repeatable=bool(order.id)
        )

    async def submit_batch(self, request: orders.SubmitBatchRequest) -> orders.SubmitBatchResponse:
        repeatable = all(order.id for order in request.orders)
        answer = await self._caller.write(
            Method(self._stub, "SubmitBatch", orders.SubmitBatchResponse), request, repeatable=repeatable
        )
        self._caller.revision = max([self._caller.revision, *(result.revision for result in answer.results)])
        return answer

    async def tasks(self, request: orders.ListTasksRequest) -> orders.ListTasksResponse:
        request.min_revision = max(request.min_revision, self._caller.revision)
        return await self._caller.read(Method(self._stub, "ListTasks", orders.ListTasksResponse), request)

    async def update(self, request: orders.UpdateOrderRequest) -> orders.OrderResponse:
        """Sets fields to given values, so a repeat changes no more."""
        return await self._caller.write(Method(self._stub, "Update", orders.OrderResponse), request, repeatable=True)

    async def cancel(self, identity: str) -> orders.OrderResponse:
        return await self._wish("Cancel", identity)

    async def pause(self, identity: str) -> orders.OrderResponse:
        return await self._wish("Pause", identity)

    async def resume(self, identity: str) -> orders.OrderResponse:
        return await self._wish("Resume", identity)

    async def cancel_tasks(self, request: orders.TasksRequest) -> orders.OrderResponse:
        return await self._caller.write(
            Method(self._stub, "CancelTasks", orders.OrderResponse), request, repeatable=True
        )

    async def move_task(self, request: orders.MoveTaskRequest) -> orders.OrderResponse:
        """Safe to repeat when the request names the attempt: a later attempt is not moved again."""
        repeatable = request.HasField("attempt")
        return await self._caller.write(
            Method(self._stub, "MoveTask", orders.OrderResponse), request, repeatable=repeatable
        )

    async def release_tasks(self, request: orders.TasksRequest) -> orders.OrderResponse:
        """Unsafe to repeat: a repeat may release a task that was held again in between."""
        return await self._caller.write(
            Method(self._stub, "ReleaseTasks", orders.OrderResponse), request, repeatable=False
        )

    async def explain(self, identity: str, *, cycle: int = 0) -> explanations.Explanation:
        """Why the order's tasks wait: now, or as a past cycle saw the cluster."""
        request = orders.ExplainRequest(id=identity, cycle=cycle, min_revision=self._caller.revision)
        return await self._caller.read(Method(self._stub, "Explain", explanations.Explanation), request)

    async def plan(self, request: orders.PlanRequest) -> explanations.Plan:
        """The placement that an order would get; no state is written."""
        request.min_revision = max(request.min_revision, self._caller.revision)
        return await self._caller.read(Method(self._stub, "Plan", explanations.Plan), request)

    def logs(self, request: logs.LogsRequest) -> AsyncGenerator[logs.LogsChunk, None]:
        """The log of a task; resumes at another endpoint when a replica fails."""
        return read_logs(self._caller, self._stub, request)

    async def delete(self, identity: str, *, revision: int = 0) -> common.DeleteResponse:
        request = common.DeleteRequest(name=identity, revision=revision)
        return await self._caller.write(Method(self._stub, "Delete", common.DeleteResponse), request, repeatable=False)

    async def _wish(self, method: str, identity: str) -> orders.OrderResponse:
        return await self._caller.write(
            Method(self._stub, method, orders.OrderResponse), orders.OrderRequest(id=identity), repeatable=True
        )


class TermCalls(ReadCalls):
    """Terms of leaders; they are part of the Cluster service and have no Get."""

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller, cluster_grpc.ClusterStub, "epoch")

    async def page(self, request: common.ListRequest) -> cluster.ListTermsResponse:
        request.min_revision = max(request.min_revision, self._caller.revision)
        return await self._caller.read(Method(self._stub, "ListTerms", cluster.ListTermsResponse), request)

    def watch(self, request: common.WatchRequest) -> AsyncGenerator[cluster.TermEvent, None]:
        return watch(self._caller, WatchStream(self._stub, "WatchTerms", self._key), request)


class ClusterCalls:
    """Calls about the control plane itself."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._stub = cluster_grpc.ClusterStub

    async def status(self) -> cluster.StatusResponse:
        return await self._caller.read(Method(self._stub, "Status", cluster.StatusResponse), cluster.StatusRequest())

    async def leader(self) -> cluster.Leader:
        request = cluster.LeaderRequest(min_revision=self._caller.revision)
        return await self._caller.read(Method(self._stub, "GetLeader", cluster.Leader), request)

    async def totals(self) -> cluster.Totals:
        request = cluster.TotalsRequest(min_revision=self._caller.revision)
        return await self._caller.read(Method(self._stub, "GetTotals", cluster.Totals), request)

    def watch_totals(self) -> AsyncGenerator[cluster.Totals, None]:
        return latest(self._caller, WatchStream(self._stub, "WatchTotals", ""), cluster.TotalsRequest())

    def watch_leader(self) -> AsyncGenerator[cluster.Leader, None]:
        return latest(self._caller, WatchStream(self._stub, "WatchLeader", ""), cluster.LeaderRequest())

    async def step_down(self) -> cluster.StepDownResponse:
        return await self._caller.call(
            Method(self._stub, "StepDown", cluster.StepDownResponse), cluster.StepDownRequest(), repeatable=False
        )

    async def end_restore(self) -> cluster.EndRestoreResponse:
        return await self._caller.write(
            Method(self._stub, "EndRestore", cluster.EndRestoreResponse), cluster.EndRestoreRequest(), repeatable=True
        )

    async def hash(self) -> cluster.HashResponse:
        return await self._caller.read(Method(self._stub, "Hash", cluster.HashResponse), cluster.HashRequest())

    async def apply(self, request: cluster.ApplyRequest) -> cluster.ApplyResponse:
        """Safe to repeat, since objects are given as they should be; orders must carry their identity."""
        repeatable = all(item.WhichOneof("object") != "order" or item.order.id for item in request.objects)
        return await self._caller.write(
            Method(self._stub, "Apply", cluster.ApplyResponse), request, repeatable=repeatable
        )

    async def settings(self) -> cluster.Settings:
        request = cluster.SettingsRequest(min_revision=self._caller.revision)
        return await self._caller.read(Method(self._stub, "GetSettings", cluster.Settings), request)


class AccessCalls:
    """Calls about tokens, bindings and the caller's own rights."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._stub = access_grpc.AccessStub

    async def create_token(self, request: access.CreateTokenRequest) -> access.CreatedToken:
        """Not safe to repeat: each call makes a token."""
        return await self._caller.write(
            Method(self._stub, "CreateToken", access.CreatedToken), request, repeatable=False
        )

    async def create_enrolment(self, request: access.CreateEnrolmentRequest) -> access.CreatedToken:
        """Not safe to repeat: each call makes a token."""
        method = Method(self._stub, "CreateEnrolment", access.CreatedToken)
        return await self._caller.write(method, request, repeatable=False)

    async def tokens(self) -> access.ListTokensResponse:
        request = access.ListTokensRequest(min_revision=self._caller.revision)
        return await self._caller.read(Method(self._stub, "ListTokens", access.ListTokensResponse), request)

    async def revoke_token(self, identity: str) -> access.RevokeTokenResponse:
        method = Method(self._stub, "RevokeToken", access.RevokeTokenResponse)
        return await self._caller.write(method, access.RevokeTokenRequest(id=identity), repeatable=False)

    async def grant(self, binding: access.Binding) -> access.BindingResponse:
        return await self._caller.write(Method(self._stub, "Grant", access.BindingResponse), binding, repeatable=True)

    async def bindings(self) -> access.ListBindingsResponse:
        request = access.ListBindingsRequest(min_revision=self._caller.revision)
        return await self._caller.read(Method(self._stub, "ListBindings", access.ListBindingsResponse), request)

    async def ungrant(self, name: str) -> access.UngrantResponse:
        method = Method(self._stub, "Ungrant", access.UngrantResponse)
        return await self._caller.write(method, access.UngrantRequest(name=name), repeatable=False)

    async def who_am_i(self) -> access.WhoAmIResponse:
        return await self._caller.read(Method(self._stub, "WhoAmI", access.WhoAmIResponse), access.WhoAmIRequest())

    async def can_i(self, request: access.CanIRequest) -> access.CanIResponse:
        return await self._caller.read(Method(self._stub, "CanI", access.CanIResponse), request)

"""The Orders service: submit, look, change, explain, logs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from controlplane.apiserver import large_requests
from controlplane.apiserver.api_ports import ApiPorts
from controlplane.apiserver.call import Call
from controlplane.apiserver.commands.change_order import OrderCommands
from controlplane.apiserver.commands.submit import Submissions
from controlplane.apiserver.commands.update_order import OrderUpdate
from controlplane.apiserver.edge.methods import ApiMethod, streaming, unary
from controlplane.apiserver.edge.object_messages import warned
from controlplane.apiserver.edge.object_methods import ReadMethods
from controlplane.apiserver.edge.order_messages import OrderMessages, fill_result, fill_task
from controlplane.apiserver.edge.sent_objects import order_request
from controlplane.apiserver.fresh_reads import fresh, order_status
from controlplane.apiserver.logs.log_reader import LogReaders
from controlplane.apiserver.queries.objects import PageRequest
from controlplane.apiserver.queries.order_explanations import OrderExplanations, PlanQuestion
from controlplane.apiserver.queries.order_queries import OrderQueries
from controlplane.apiserver.queries.views.order_view import OrderView
from controlplane.model.access import Subject
from controlplane.model.errors import ControlPlaneError
from controlplane.model.explanation import Explanation, Plan
from controlplane.model.order import OrderRequest
from controlplane.model.target import Target
from controlplane.wire import convert
from controlplane.wire.v1 import common_pb2, explanations_pb2, logs_pb2, orders_pb2


class OrderMethods:
    def __init__(self, ports: ApiPorts, submissions: Submissions, view: OrderView, logs: LogReaders) -> None:
        reads = ports.reads
        self._reads = reads
        self._submissions = submissions
        self._commands = OrderCommands(reads, ports.writes)
        self._queries = OrderQueries(reads, view)
        self._explanations = OrderExplanations(reads, ports.writes.clock, submissions.admission, submissions.quotas)
        self._messages = OrderMessages(reads.ledgers)
        self._objects = ReadMethods(
            reads.cache, view, self._messages, orders_pb2.ListOrdersResponse, orders_pb2.OrderEvent
        )
        self._logs = logs

    def rows(self) -> dict[str, ApiMethod]:
        response = orders_pb2.OrderResponse
        return {
            "Submit": unary(orders_pb2.Order, response, self.submit),
            "SubmitBatch": unary(orders_pb2.SubmitBatchRequest, orders_pb2.SubmitBatchResponse, self.submit_batch),
            "Create": unary(orders_pb2.Order, response, self.submit),
            "Get": unary(common_pb2.GetRequest, orders_pb2.Order, self.get),
            "List": unary(common_pb2.ListRequest, orders_pb2.ListOrdersResponse, self.list),
            "ListTasks": unary(orders_pb2.ListTasksRequest, orders_pb2.ListTasksResponse, self.list_tasks),
            "Watch": streaming(common_pb2.WatchRequest, orders_pb2.OrderEvent, self._objects.watch),
            "Update": unary(orders_pb2.UpdateOrderRequest, response, self.update),
            "Delete": unary(common_pb2.DeleteRequest, common_pb2.DeleteResponse, self.delete),
            "Cancel": unary(orders_pb2.OrderRequest, response, self.cancel),
            "Pause": unary(orders_pb2.OrderRequest, response, self.pause),
            "Resume": unary(orders_pb2.OrderRequest, response, self.resume),
            "CancelTasks": unary(orders_pb2.TasksRequest, response, self.cancel_tasks),
            "MoveTask": unary(orders_pb2.MoveTaskRequest, response, self.move_task),
            "ReleaseTasks": unary(orders_pb2.TasksRequest, response, self.release_tasks),
            "Explain": unary(orders_pb2.ExplainRequest, explanations_pb2.Explanation, self.explain),
            "Plan": unary(orders_pb2.PlanRequest, explanations_pb2.Plan, self.plan),
            "Logs": streaming(logs_pb2.LogsRequest, logs_pb2.LogsChunk, self._logs.read),
        }

    async def submit(self, call: Call, message: orders_pb2.Order) -> orders_pb2.OrderResponse:
        cache = self._reads.cache
        await fresh(cache, call)
        await self._submissions.turnstile.enter(call.subject.name or message.owner, 1)
        request = await large_requests.run(lambda: order_request(call.subject, message))
        done = await self._submissions.submit(call, request)
        status = order_status(cache.snapshot, done.order.id) if done.repeated else None
        item = self._messages.order(done.order, done.revision, status)
        answer = orders_pb2.OrderResponse(revision=done.revision, item=item, repeated=done.repeated)
        return warned(answer, done.warnings)

    async def submit_batch(self, call: Call, batch: orders_pb2.SubmitBatchRequest) -> orders_pb2.SubmitBatchResponse:
        await fresh(self._reads.cache, call)
        if batch.orders:
            await self._submissions.turnstile.enter(call.subject.name or batch.orders[0].owner, len(batch.orders))
        read, refused = await large_requests.run(lambda: _read_all(call.subject, batch.orders))
        results = dict(zip(read, await self._submissions.submit_all(call, list(read.values())), strict=True))
        answer = orders_pb2.SubmitBatchResponse()
        for position, order in enumerate(batch.orders):
            fill_result(answer.results.add(), order.id, refused.get(position) or results[position])
        return answer

    async def get(self, call: Call, request: common_pb2.GetRequest) -> orders_pb2.Order:
        return self._messages.message(await self._queries.get(call, request.name))

    async def list(self, call: Call, request: common_pb2.ListRequest) -> orders_pb2.ListOrdersResponse:
        asked = PageRequest(request.limit, request.page_token)
        page = await self._queries.list(call, request.phase, asked, self._messages)
        return orders_pb2.ListOrdersResponse(revision=page.revision, items=page.items, next_page_token=page.next_token)

    async def list_tasks(self, call: Call, request: orders_pb2.ListTasksRequest) -> orders_pb2.ListTasksResponse:
        page = await self._queries.list_tasks(call, request.id, PageRequest(request.limit, request.page_token))
        answer = orders_pb2.ListTasksResponse(revision=page.revision, next_page_token=page.next_token)
        for task in page.items:
            fill_task(task, answer.items.add())
        return answer

    async def cancel(self, call: Call, request: orders_pb2.OrderRequest) -> orders_pb2.OrderResponse:
        return self._messages.changed(await self._commands.cancel(call, request.id, request.revision))

    async def pause(self, call: Call, request: orders_pb2.OrderRequest) -> orders_pb2.OrderResponse:
        return self._messages.changed(await self._commands.pause(call, request.id, request.revision))

    async def resume(self, call: Call, request: orders_pb2.OrderRequest) -> orders_pb2.OrderResponse:
        return self._messages.changed(await self._commands.resume(call, request.id, request.revision))

    async def delete(self, call: Call, request: common_pb2.DeleteRequest) -> common_pb2.DeleteResponse:
        return common_pb2.DeleteResponse(revision=await self._commands.delete(call, request.name, request.revision))

    async def update(self, call: Call, request: orders_pb2.UpdateOrderRequest) -> orders_pb2.OrderResponse:
        update = OrderUpdate(
            priority=request.priority if request.HasField("priority") else UNSET,
            target_policy=request.target_policy if request.HasField("target_policy") else UNSET,
            deadline=request.deadline if request.HasField("deadline") else UNSET,
            not_before=request.not_before if request.HasField("not_before") else UNSET,
            resources=tuple(request.resources.names) if request.HasField("resources") else UNSET,
        )
        return self._messages.changed(await self._commands.update(call, request.id, request.revision, update))

    async def cancel_tasks(self, call: Call, request: orders_pb2.TasksRequest) -> orders_pb2.OrderResponse:
        index = request.index if request.HasField("index") else None
        changed = await self._commands.cancel_tasks(call, request.id, request.revision, request.job, index)
        return self._messages.changed(changed)

    async def move_task(self, call: Call, request: orders_pb2.MoveTaskRequest) -> orders_pb2.OrderResponse:
        attempt = request.attempt if request.HasField("attempt") else None
        changed = await self._commands.move_task(
            call, request.id, request.revision, job=request.job, index=request.index, to=request.to, attempt=attempt
        )
        return self._messages.changed(changed)

    async def release_tasks(self, call: Call, request: orders_pb2.TasksRequest) -> orders_pb2.OrderResponse:
        index = request.index if request.HasField("index") else None
        changed = await self._commands.release_tasks(
            call, request.id, request.revision, job=request.job, index=index, stopped=request.stopped
        )
        return self._messages.changed(changed)

    async def explain(self, call: Call, request: orders_pb2.ExplainRequest) -> explanations_pb2.Explanation:
        return await self._explanations.explain(call, request.id, request.cycle, _explanation)

    async def plan(self, call: Call, request: orders_pb2.PlanRequest) -> explanations_pb2.Plan:
        question = await large_requests.run(lambda: _question(call.subject, request))
        return await self._explanations.plan(call, question, _plan)


def _read_all(
    subject: Subject, messages: Sequence[orders_pb2.Order]
) -> tuple[dict[int, OrderRequest], dict[int, ControlPlaneError]]:
    """The requests of a batch by their position, and the refusals of unreadable ones."""
    read: dict[int, OrderRequest] = {}
    refused: dict[int, ControlPlaneError] = {}
    for position, message in enumerate(messages):
        try:
            read[position] = order_request(subject, message)
        except ControlPlaneError as error:
            refused[position] = error
    return read, refused


def _question(subject: Subject, request: orders_pb2.PlanRequest) -> PlanQuestion:
    wish = order_request(subject, request.order)
    if request.HasField("priority"):
        wish = replace(wish, priority=request.priority)
    added = [convert.to_model(target, Target) for target in request.with_targets]
    return PlanQuestion(wish, added, list(request.without_targets))


def _explanation(explanation: Explanation) -> explanations_pb2.Explanation:
    return convert.to_wire(explanation, explanations_pb2.Explanation)


def _plan(plan: Plan) -> explanations_pb2.Plan:
    return convert.to_wire(plan, explanations_pb2.Plan)

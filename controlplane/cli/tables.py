"""The columns of each kind's table. Every value comes from the JSON of the object, without another request."""

from __future__ import annotations

from typing import Any

from controlplane.aio.clock import SystemClock
from controlplane.cli import ages
from controlplane.cli.output import TableColumn
from controlplane.model import quantity, texts

Item = dict[str, Any]


def _text(key: str) -> Any:
    return lambda item: _show(item.get(key))


def _show(value: Any) -> str:
    if value is None or value == "" or value == [] or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(str(part) for part in value)
    if isinstance(value, dict):
        return ",".join(f"{key}={part}" for key, part in value.items())
    return str(value)


def quantities(value: dict[str, Any] | None) -> str:
    return ",".join(f"{name}={quantity.show(name, amount)}" for name, amount in (value or {}).items()) or "-"


def _age(key: str = "created") -> Any:
    return lambda item: ages.since(item.get(key), SystemClock().wall())


def _packet(item: Item) -> str:
    packet = item.get("packet")
    return packet if isinstance(packet, str) and packet else (packet or {}).get("name") or "(inline)"


def _done(item: Item) -> str:
    if item.get("schedule"):
        runs = item["status"].get("runs") or 0
        return f"{runs} {'run' if runs == 1 else 'runs'}"
    counts = item["status"]["counts"]
    return f"{counts['succeeded']}/{item.get('tasks_total') or sum(counts.values())}"


def _schedule(item: Item) -> str:
    schedule = item.get("schedule")
    return f"{schedule['cron']} {schedule.get('tz') or 'UTC'}" if schedule else "-"


def _percent(item: Item) -> str:
    percent = item["status"].get("percent")
    return "-" if percent is None else f"{percent}%"


def _why(item: Item) -> str:
    reasons = item["status"].get("reasons", [])
    return ", ".join(f"{reason['reason']} ({reason['count']})" for reason in reasons) or "-"


def _count(name: str) -> Any:
    return lambda item: str(item["status"]["counts"][name])


def _status(key: str) -> Any:
    return lambda item: _show(item["status"].get(key))


def _room(item: Item) -> str:
    """`free/all` of every quantity of the target; quantities with capacity 0, such as hugepages, are left out."""
    free = item["status"].get("free") or {}
    used = item["status"].get("used") or {}
    parts = []
    for name, left in free.items():
        total = left + used.get(name, 0)
        if left or total:
            parts.append(f"{name} {quantity.show(name, left)}/{quantity.show(name, total)}")
    return ", ".join(parts) or "-"


def _tasks(item: Item) -> str:
    return ",".join(f"{task['job']}/{task['index']}#{task['attempt']}" for task in item.get("tasks", [])) or "-"


def _observed(item: Item) -> str:
    observed = item.get("observed")
    return observed["phase"] if observed else "Placed"


def _messages(item: Item) -> str:
    """The target's messages about its tasks, each once."""
    observed = item.get("observed") or {}
    said = dict.fromkeys(task["message"] for task in observed.get("tasks", []) if task.get("message"))
    return "; ".join(map(texts.one_line, said)) or "-"


def _jobs(item: Item) -> str:
    names = []
    for entry in item.get("jobs", []):
        job = entry.get("job")
        name = job if isinstance(job, str) else (job or {}).get("name") or "(inline)"
        names.append(f"{name}x{entry['count']}" if entry.get("count", 1) != 1 else name)
    return ",".join(names) or "-"


def _ended(item: Item) -> str:
    ended = item.get("ended")
    return f"{ended['how']} ({ended['epoch']})" if ended else "-"


def _refused(item: Item) -> str:
    return ", ".join(f"{reason} ({count})" for reason, count in item.get("refused", {}).items()) or "-"


_AGE = TableColumn("AGE", _age())
_NAME = TableColumn("NAME", _text("name"))
_OWNER = TableColumn("OWNER", _text("owner"), wide=True)
_ID = TableColumn("ID", _text("id"), wide=True)
_LABELS = TableColumn("LABELS", _text("labels"), wide=True)

ORDERS = (
    TableColumn("ID", _text("id")),
    TableColumn("PACKET", _packet),
    TableColumn("PRIORITY", _text("priority")),
    TableColumn("PHASE", _status("phase")),
    TableColumn("DONE", _done),
    TableColumn("PERCENT", _percent, wide=True),
    *(TableColumn(name.upper(), _count(name), wide=True) for name in ("pending", "placed", "running", "failed")),
    TableColumn("WAITS FOR", _why),
    _OWNER,
    TableColumn("POLICY", _text("target_policy"), wide=True),
    TableColumn("SCHEDULE", _schedule, wide=True),
    TableColumn("NEXT", _status("next"), wide=True),
    TableColumn("RUN OF", _text("template"), wide=True),
    _AGE,
)
JOBS = (
    _NAME,
    TableColumn("COMMAND", lambda item: texts.cut(" ".join(item.get("command", [])), 60) or "-"),
    TableColumn("REQUESTS", lambda item: quantities(item.get("requests"))),
    TableColumn("RESOURCES", _text("resources")),
    TableColumn("POLICY", _text("target_policy"), wide=True),
    TableColumn("IMAGE", _text("image"), wide=True),
    _LABELS,
    _OWNER,
    _ID,
    _AGE,
)
PACKETS = (
    _NAME,
    TableColumn("JOBS", _jobs),
    TableColumn("RESOURCES", _text("resources")),
    TableColumn("GANG", _text("gang"), wide=True),
    TableColumn("PACK", _text("pack"), wide=True),
    _LABELS,
    _OWNER,
    _ID,
    _AGE,
)
RESOURCES = (
    _NAME,
    TableColumn("KEY", _text("key")),
    TableColumn("VALUE", lambda item: texts.cut(_show(item.get("value")), 40)),
    TableColumn("UNIQUE", _text("unique")),
    TableColumn("MOUNT", _text("mount"), wide=True),
    _LABELS,
    _OWNER,
    _ID,
    _AGE,
)
SECRETS = (
    _NAME,
    TableColumn("TYPE", _text("type")),
    TableColumn("SIZE", _text("size")),
    TableColumn("DIGEST", lambda item: _show(item.get("digest"))[:12]),
    TableColumn("KEY", _text("key"), wide=True),
    _LABELS,
    _OWNER,
    _ID,
    _AGE,
)
TARGETS = (
    _NAME,
    TableColumn("DRIVER", _text("driver")),
    TableColumn("PHASE", _status("phase")),
    TableColumn("FREE", _room),
    TableColumn("REGION", _text("region"), wide=True),
    TableColumn("JOBLET", lambda item: (item.get("live") or {}).get("instance") or "-", wide=True),
    TableColumn("REASON", _status("reason"), wide=True),
    _LABELS,
    _OWNER,
    _AGE,
)
FULFILMENTS = (
    TableColumn("ID", _text("id")),
    TableColumn("ORDER", _text("order")),
    TableColumn("TARGET", _text("target")),
    TableColumn("TASKS", _tasks),
    TableColumn("OBSERVED", _observed),
    TableColumn("WANT", _text("want")),
    TableColumn("CYCLE", _text("cycle"), wide=True),
    TableColumn("EPOCH", _text("epoch"), wide=True),
    TableColumn("HOLDS", _text("holds"), wide=True),
    TableColumn("REQUESTS", lambda item: quantities(item.get("requests")), wide=True),
    _AGE,
    TableColumn("MESSAGE", _messages, wide=True),
)
RULES = (_NAME, TableColumn("WHEN", _text("when")), TableColumn("THEN", _text("then")), _LABELS, _OWNER, _ID, _AGE)
SCALE_POLICIES = (
    _NAME,
    TableColumn("METRIC", _text("metric")),
    TableColumn("THRESHOLD", _text("threshold")),
    TableColumn("MIN", _text("min")),
    TableColumn("MAX", _text("max")),
    TableColumn("TARGETS", _status("targets")),
    TableColumn("UP", _status("up")),
    TableColumn("PROVIDER", _text("provider"), wide=True),
    TableColumn("TEMPLATE", _text("template"), wide=True),
    TableColumn("ACTED", _status("acted"), wide=True),
    _LABELS,
    _OWNER,
    _ID,
    _AGE,
)
MADE = (
    TableColumn("TARGET", _text("target")),
    TableColumn("PHASE", _text("phase")),
    TableColumn("WANT", _text("want")),
    TableColumn("CAPACITY", lambda item: quantities(item.get("capacity"))),
    TableColumn("SINCE", _text("since")),
    TableColumn("ERROR", _text("error")),
)
SCALING_STEPS = (
    TableColumn("AT", _text("at")),
    TableColumn("ACTION", _text("action")),
    TableColumn("TARGET", _text("target")),
    TableColumn("TARGETS", _text("targets")),
    TableColumn("WHY", _text("why")),
)
CYCLES = (
    TableColumn("N", _text("n")),
    TableColumn("EPOCH", _text("epoch")),
    TableColumn("REVISION", _text("revision")),
    TableColumn("CONSIDERED", _text("considered")),
    TableColumn("PLACED", _text("placed")),
    TableColumn("REFUSED", _refused),
    TableColumn("MS", lambda item: f"{item.get('seconds', 0) * 1000:.1f}"),
    TableColumn("HASH", _text("hash"), wide=True),
    TableColumn("ENGINE", _text("engine"), wide=True),
    TableColumn("AGE", _age("now")),
)
TERMS = (
    TableColumn("EPOCH", _text("epoch")),
    TableColumn("LEADER", _text("id")),
    TableColumn("SINCE", _text("since")),
    TableColumn("TERM BEFORE", _ended),
    TableColumn("GRPC", _text("grpc"), wide=True),
    TableColumn("HTTP", _text("http"), wide=True),
    TableColumn("AGE", _age("since")),
)
EVENTS = (
    TableColumn("LAST", _age("last")),
    TableColumn("TYPE", _text("type")),
    TableColumn("REASON", _text("reason")),
    TableColumn("ABOUT", lambda item: f"{item['about']['kind']}/{item['about']['name']}"),
    TableColumn("COUNT", _text("count")),
    TableColumn("BY", _text("by")),
    TableColumn("MESSAGE", _text("message")),
    TableColumn("FIRST", _text("first"), wide=True),
    _ID,
)
SETTINGS = (
    TableColumn("DEFAULT REQUESTS", lambda item: quantities(item.get("default_requests"))),
    *(
        TableColumn(name.replace("_", " ").upper(), _text(name))
        for name in ("clean_up", "target_grace", "joblet_lease", "heartbeat", "kill_grace", "cycle_budget", "placement")
    ),
    TableColumn("RESERVATIONS", _text("reservations"), wide=True),
    TableColumn("FAILURE MEMORY", _text("failure_memory"), wide=True),
    TableColumn("HISTORY", _text("history"), wide=True),
    TableColumn("EVENT TTL", _text("event_ttl"), wide=True),
    TableColumn("STATS INTERVAL", _text("stats_interval"), wide=True),
    TableColumn("WEIGHTS", _text("weights"), wide=True),
    TableColumn("QUOTAS", lambda item: ",".join(item.get("quotas") or {}) or "-", wide=True),
)
TASKS = (
    TableColumn("JOB", _text("job")),
    TableColumn("INDEX", _text("index")),
    TableColumn("PHASE", _text("phase")),
    TableColumn("ATTEMPT", _text("attempt")),
    TableColumn("TARGET", _text("target")),
    TableColumn("EXIT", _text("exit_code")),
    TableColumn("REASON", _text("reason")),
    TableColumn("PERCENT", _text("percent"), wide=True),
    TableColumn("DECIDED", _text("why"), wide=True),
    TableColumn("FULFILMENT", _text("fulfilment"), wide=True),
    TableColumn("ARTEFACTS", _text("artefacts"), wide=True),
    TableColumn("MESSAGE", lambda item: texts.one_line(item.get("message") or "") or "-"),
)
APPLIED = (
    TableColumn("KIND", _text("kind")),
    TableColumn("NAME", lambda item: item.get("name") or "-"),
    TableColumn("ID", _text("id")),
    TableColumn("RESULT", _text("result")),
)
LEADER = (
    TableColumn("LEADER", _text("id")),
    TableColumn("EPOCH", _text("epoch")),
    TableColumn("SINCE", _text("since")),
    TableColumn("GRPC", _text("grpc")),
    TableColumn("HTTP", _text("http")),
)

"""The columns of each kind's table. Every value comes from the JSON shape of the object; nothing is asked again."""

from __future__ import annotations

from typing import Any

from controlplane.aio.clock import SystemClock
from controlplane.cli import ages
from controlplane.cli.output import Column
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
    """`free/all` of every quantity that the target offers; nodes name many (hugepages) of which they have none."""
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
    """What the target says of its tasks, each sentence once."""
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


_AGE = Column("AGE", _age())
_NAME = Column("NAME", _text("name"))
_OWNER = Column("OWNER", _text("owner"), wide=True)
_ID = Column("ID", _text("id"), wide=True)
_LABELS = Column("LABELS", _text("labels"), wide=True)

ORDERS = (
    Column("ID", _text("id")),
    Column("PACKET", _packet),
    Column("PRIORITY", _text("priority")),
    Column("PHASE", _status("phase")),
    Column("DONE", _done),
    Column("PERCENT", _percent, wide=True),
    *(Column(name.upper(), _count(name), wide=True) for name in ("pending", "placed", "running", "failed")),
    Column("WAITS FOR", _why),
    _OWNER,
    Column("POLICY", _text("target_policy"), wide=True),
    Column("SCHEDULE", _schedule, wide=True),
    Column("NEXT", _status("next"), wide=True),
    Column("RUN OF", _text("template"), wide=True),
    _AGE,
)
JOBS = (
    _NAME,
    Column("COMMAND", lambda item: texts.cut(" ".join(item.get("command", [])), 60) or "-"),
    Column("REQUESTS", lambda item: quantities(item.get("requests"))),
    Column("RESOURCES", _text("resources")),
    Column("POLICY", _text("target_policy"), wide=True),
    Column("IMAGE", _text("image"), wide=True),
    _LABELS,
    _OWNER,
    _ID,
    _AGE,
)
PACKETS = (
    _NAME,
    Column("JOBS", _jobs),
    Column("RESOURCES", _text("resources")),
    Column("GANG", _text("gang"), wide=True),
    Column("PACK", _text("pack"), wide=True),
    _LABELS,
    _OWNER,
    _ID,
    _AGE,
)
RESOURCES = (
    _NAME,
    Column("KEY", _text("key")),
    Column("VALUE", lambda item: texts.cut(_show(item.get("value")), 40)),
    Column("UNIQUE", _text("unique")),
    Column("MOUNT", _text("mount"), wide=True),
    _LABELS,
    _OWNER,
    _ID,
    _AGE,
)
SECRETS = (
    _NAME,
    Column("TYPE", _text("type")),
    Column("SIZE", _text("size")),
    Column("DIGEST", lambda item: _show(item.get("digest"))[:12]),
    Column("KEY", _text("key"), wide=True),
    _LABELS,
    _OWNER,
    _ID,
    _AGE,
)
TARGETS = (
    _NAME,
    Column("DRIVER", _text("driver")),
    Column("PHASE", _status("phase")),
    Column("FREE", _room),
    Column("REGION", _text("region"), wide=True),
    Column("JOBLET", lambda item: (item.get("live") or {}).get("instance") or "-", wide=True),
    Column("REASON", _status("reason"), wide=True),
    _LABELS,
    _OWNER,
    _AGE,
)
FULFILMENTS = (
    Column("ID", _text("id")),
    Column("ORDER", _text("order")),
    Column("TARGET", _text("target")),
    Column("TASKS", _tasks),
    Column("OBSERVED", _observed),
    Column("WANT", _text("want")),
    Column("CYCLE", _text("cycle"), wide=True),
    Column("EPOCH", _text("epoch"), wide=True),
    Column("HOLDS", _text("holds"), wide=True),
    Column("REQUESTS", lambda item: quantities(item.get("requests")), wide=True),
    _AGE,
    Column("MESSAGE", _messages, wide=True),
)
RULES = (_NAME, Column("WHEN", _text("when")), Column("THEN", _text("then")), _LABELS, _OWNER, _ID, _AGE)
SCALE_POLICIES = (
    _NAME,
    Column("METRIC", _text("metric")),
    Column("THRESHOLD", _text("threshold")),
    Column("MIN", _text("min")),
    Column("MAX", _text("max")),
    Column("TARGETS", _status("targets")),
    Column("UP", _status("up")),
    Column("PROVIDER", _text("provider"), wide=True),
    Column("TEMPLATE", _text("template"), wide=True),
    Column("ACTED", _status("acted"), wide=True),
    _LABELS,
    _OWNER,
    _ID,
    _AGE,
)
MADE = (
    Column("TARGET", _text("target")),
    Column("PHASE", _text("phase")),
    Column("WANT", _text("want")),
    Column("CAPACITY", lambda item: quantities(item.get("capacity"))),
    Column("SINCE", _text("since")),
    Column("ERROR", _text("error")),
)
SCALING_STEPS = (
    Column("AT", _text("at")),
    Column("ACTION", _text("action")),
    Column("TARGET", _text("target")),
    Column("TARGETS", _text("targets")),
    Column("WHY", _text("why")),
)
CYCLES = (
    Column("N", _text("n")),
    Column("EPOCH", _text("epoch")),
    Column("REVISION", _text("revision")),
    Column("CONSIDERED", _text("considered")),
    Column("PLACED", _text("placed")),
    Column("REFUSED", _refused),
    Column("MS", lambda item: f"{item.get('seconds', 0) * 1000:.1f}"),
    Column("HASH", _text("hash"), wide=True),
    Column("ENGINE", _text("engine"), wide=True),
    Column("AGE", _age("now")),
)
TERMS = (
    Column("EPOCH", _text("epoch")),
    Column("LEADER", _text("id")),
    Column("SINCE", _text("since")),
    Column("TERM BEFORE", _ended),
    Column("GRPC", _text("grpc"), wide=True),
    Column("HTTP", _text("http"), wide=True),
    Column("AGE", _age("since")),
)
EVENTS = (
    Column("LAST", _age("last")),
    Column("TYPE", _text("type")),
    Column("REASON", _text("reason")),
    Column("ABOUT", lambda item: f"{item['about']['kind']}/{item['about']['name']}"),
    Column("COUNT", _text("count")),
    Column("BY", _text("by")),
    Column("MESSAGE", _text("message")),
    Column("FIRST", _text("first"), wide=True),
    _ID,
)
SETTINGS = (
    Column("DEFAULT REQUESTS", lambda item: quantities(item.get("default_requests"))),
    *(
        Column(name.replace("_", " ").upper(), _text(name))
        for name in ("clean_up", "target_grace", "joblet_lease", "heartbeat", "kill_grace", "cycle_budget", "placement")
    ),
    Column("RESERVATIONS", _text("reservations"), wide=True),
    Column("FAILURE MEMORY", _text("failure_memory"), wide=True),
    Column("HISTORY", _text("history"), wide=True),
    Column("EVENT TTL", _text("event_ttl"), wide=True),
    Column("STATS INTERVAL", _text("stats_interval"), wide=True),
    Column("WEIGHTS", _text("weights"), wide=True),
    Column("QUOTAS", lambda item: ",".join(item.get("quotas") or {}) or "-", wide=True),
)
TASKS = (
    Column("JOB", _text("job")),
    Column("INDEX", _text("index")),
    Column("PHASE", _text("phase")),
    Column("ATTEMPT", _text("attempt")),
    Column("TARGET", _text("target")),
    Column("EXIT", _text("exit_code")),
    Column("REASON", _text("reason")),
    Column("PERCENT", _text("percent"), wide=True),
    Column("DECIDED", _text("why"), wide=True),
    Column("FULFILMENT", _text("fulfilment"), wide=True),
    Column("ARTEFACTS", _text("artefacts"), wide=True),
    Column("MESSAGE", lambda item: texts.one_line(item.get("message") or "") or "-"),
)
APPLIED = (
    Column("KIND", _text("kind")),
    Column("NAME", lambda item: item.get("name") or "-"),
    Column("ID", _text("id")),
    Column("RESULT", _text("result")),
)
LEADER = (
    Column("LEADER", _text("id")),
    Column("EPOCH", _text("epoch")),
    Column("SINCE", _text("since")),
    Column("GRPC", _text("grpc")),
    Column("HTTP", _text("http")),
)

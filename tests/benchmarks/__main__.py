"""`scripts/bench [NAME...] [-o json]`: runs the named benchmarks, or all of them, and prints their rows."""

from __future__ import annotations

import argparse
import sys

from tests.benchmarks import engine, failover, flow, footprint, latency, packing, place, plans, rows, stats, submit

BENCHES = {
    "failover": failover.run,
    "submit": submit.run,
    "latency": latency.run,
    "engine": engine.run,
    "packing": packing.run,
    "place": place.run,
    "plans": plans.run,
    "flow": flow.run,
    "stats": stats.run,
    "footprint": footprint.run,
}
LATER = ("edges", "bids")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Measure this control plane beside bare baselines."
    )
    parser.add_argument("name", nargs="*", help=f"one or more of {', '.join(BENCHES)}; all of them when none is named")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    asked = parser.parse_args()
    for name in asked.name:
        if name in LATER:
            parser.error(f"{name} comes with the part of the system that it measures, which is not built yet")
        if name not in BENCHES:
            parser.error(f"{name} is none of {', '.join(BENCHES)}")
    found: list[rows.Row] = []
    for name in asked.name or BENCHES:
        sys.stderr.write(f"bench {name} ...\n")
        found += BENCHES[name]()
    if asked.output == "json":
        sys.stdout.write(rows.as_json(found) + "\n")
    else:
        rows.show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())

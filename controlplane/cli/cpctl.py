"""`cpctl`: asks and tells."""

from __future__ import annotations

import sys

from controlplane.cli import help_topics


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["help"] and len(arguments) <= 2 and not arguments[-1].startswith("-"):
        sys.exit(help_topics.main(arguments[1:]))
    # Imported only now: the manual needs none of the commands, and all that they import takes a while.
    from controlplane.cli import command_groups, shell

    shell.run(command_groups.application(), "cpctl")


if __name__ == "__main__":
    main()

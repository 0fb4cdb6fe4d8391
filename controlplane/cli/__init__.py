"""`cpctl` and `controlplane`: parse options, call, print. Decisions belong to other packages.

Each command or group of commands is a module `*_command` with a `register`; the other modules format answers.
"""

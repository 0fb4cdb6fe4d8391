"""What asyncio lacks: clock, supervision, keyed work queue, group commit, failpoints. No domain words here."""

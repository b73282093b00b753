"""Sends the dead letters of all groups again that died of one reason, after its cause is gone.

    python3 examples/dead_letters.py 127.0.0.1:8081 "connection refused" [MAX_PER_SECOND]

Without a reason it only lists the groups with dead letters, and the reasons.  You may stop it
and run it again at any time: the broker runs the jobs, and sends no letter twice.
"""

from __future__ import annotations

import sys
import time

from rmqlite.client import AdminClient, DeadLetterFilter, RedriveOutcome, RedriveSpec


def tell(admin: AdminClient) -> None:
    """Print the groups, how many open letters each has, and the reasons."""
    for group in admin.dead_letters.groups():
        print(f"{group.group}: {group.open} open")
        for each in group.reasons:
            # A consumer may write any text: escape it for the terminal.
            print(f"  {each.count} {each.reason!a}")


def send_again(admin: AdminClient, group: str, reason: str, max_per_second: int) -> None:
    """Preview, send the letters, and print those that could not be sent."""
    spec = RedriveSpec(group, DeadLetterFilter(reason=reason), max_per_second=max_per_second)
    preview = admin.redrives.preview(spec)
    if not preview.sent:
        return
    groups = ", ".join([name for each in preview.topics for name in each.groups])
    job = admin.redrives.start(spec)
    print(f"{group}: sending {preview.sent} back to {groups} as job {job.job_id}")
    while not job.is_over:
        time.sleep(0.2)
        job = admin.redrives.job(job.job_id)
    print(f"{group}: {job.sent} sent, {job.already} sent before, {job.refused} refused")
    for letter in admin.redrives.outcomes(job.job_id, RedriveOutcome.REFUSED):
        print(f"  letter {letter.queue_id}@{letter.queue_offset}: {letter.why!a}")


def main(endpoint: str, reason: str = "", max_per_second: str = "0") -> None:
    with AdminClient(endpoint) as admin:
        if not reason:
            tell(admin)
            return
        for group in admin.dead_letters.groups():
            send_again(admin, group.group, reason, int(max_per_second))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What died of one reason, in whichever group, sent again once the reason is gone.

    python3 examples/dead_letters.py 127.0.0.1:10911 "connection refused" [MAX_PER_SECOND]

Without a reason it only tells which groups have dead letters, and why.  It may be run again
at any time, and broken off at any time: the jobs are the broker's, and a letter that was
sent again is not sent twice.
"""

from __future__ import annotations

import sys
import time

from rmqlite.client import AdminClient, LetterFilter, RedriveOutcome, RedriveSpec


def tell(admin: AdminClient) -> None:
    """Groups, how many letters nobody has dealt with, and why they died."""
    for group in admin.letters.groups():
        print(f"{group.group}: {group.open} open")
        for each in group.reasons:
            # Whatever a consumer wrote: nothing that a terminal would interpret.
            print(f"  {each.count} {each.reason!a}")


def send_again(admin: AdminClient, group: str, reason: str, max_per_second: int) -> None:
    """Look first, then send, and say what could not be sent."""
    spec = RedriveSpec(group, LetterFilter(reason=reason), max_per_second=max_per_second)
    preview = admin.redrives.preview(spec)
    if not preview.sent:
        return
    topics = ", ".join([f"{each.count} to {each.topic}" for each in preview.topics])
    job = admin.redrives.start(spec)
    print(f"{group}: sending {topics} as job {job.job_id}")
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
        for group in admin.letters.groups():
            send_again(admin, group.group, reason, int(max_per_second))


if __name__ == "__main__":
    main(*sys.argv[1:])

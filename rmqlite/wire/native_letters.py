"""What is asked about letters and redrive jobs <-> rmqlite.v1, field by field."""

from __future__ import annotations

from rmqlite import letter_requests as letters
from rmqlite import redrive_requests as redrives
from rmqlite.wire.codec import flat, in_parts, nested
from rmqlite.wire.pb import rmqlite_pb2 as pb

letter_filter = flat(letters.LetterFilter, pb.LetterFilter)
letter = nested(letters.Letter, pb.Letter)
query = nested(letters.LettersQuery, pb.ListLettersRequest, filter=letter_filter)
page = in_parts(nested(letters.LetterPage, pb.ListLettersResponse, letters=letter), letters=letter)
reason_count = flat(letters.ReasonCount, pb.ReasonCount)
group = nested(letters.DeadLetterGroup, pb.DeadLetterGroup, reasons=reason_count)
purge = flat(letters.PurgeRequest, pb.PurgeDeadLettersRequest)
purged = flat(letters.Purged, pb.PurgeDeadLettersResponse)
hop = nested(letters.Hop, pb.Hop, kind=letters.HopKind)
life_query = flat(letters.LifeQuery, pb.GetLifeRequest)
life = nested(letters.Life, pb.GetLifeResponse, hops=hop)
group_change = flat(letters.GroupChange, pb.SetGroupRequest)

spec = nested(redrives.RedriveSpec, pb.RedriveSpec, filter=letter_filter)
redriven = nested(redrives.RedrivenLetter, pb.RedrivenLetter, outcome=redrives.RedriveOutcome)
job = nested(
    redrives.RedriveJob, pb.RedriveJob, spec=spec, state=redrives.JobState, samples=redriven
)
preview_request = nested(redrives.RedrivePreviewRequest, pb.PreviewRedriveRequest, spec=spec)
preview = nested(
    redrives.RedrivePreview,
    pb.PreviewRedriveResponse,
    topics=flat(redrives.TopicCount, pb.TopicCount),
    samples=redriven,
)
start = nested(redrives.RedriveRequest, pb.StartRedriveRequest, spec=spec)
change = nested(redrives.JobChange, pb.ChangeRedriveJobRequest, action=redrives.JobAction)
outcomes_query = nested(
    redrives.OutcomesQuery, pb.ListRedriveOutcomesRequest, outcomes=redrives.RedriveOutcome
)
outcomes = in_parts(
    nested(redrives.OutcomesPage, pb.ListRedriveOutcomesResponse, letters=redriven),
    letters=redriven,
)

"""requests/letters.py and requests/redrive.py <-> rmqlite.v1, field by field."""

from __future__ import annotations

from rmqlite.requests.groups import GroupChange
from rmqlite.requests.letters import (
    DeadLetterGroup,
    Hop,
    HopKind,
    Letter,
    LetterFilter,
    LetterPage,
    LettersQuery,
    Life,
    LifeQuery,
    Purged,
    PurgeRequest,
    ReasonCount,
)
from rmqlite.requests.redrive import (
    ImportAnswer,
    ImportedLetter,
    ImportRequest,
    JobAction,
    JobChange,
    JobState,
    OutcomesPage,
    OutcomesQuery,
    RedriveFates,
    RedriveJob,
    RedriveJobQuery,
    RedrivenLetter,
    RedriveOutcome,
    RedrivePreview,
    RedrivePreviewRequest,
    RedriveRequest,
    RedriveSpec,
    TopicCount,
)
from rmqlite.wire.codec import flat, in_parts, nested
from rmqlite.wire.pb import rmqlite_pb2 as pb

letter_filter = flat(LetterFilter, pb.LetterFilter)
letter = nested(Letter, pb.Letter)
query = nested(LettersQuery, pb.ListLettersRequest, filter=letter_filter)
page = in_parts(nested(LetterPage, pb.ListLettersResponse, letters=letter), letters=letter)
reason_count = flat(ReasonCount, pb.ReasonCount)
group = nested(DeadLetterGroup, pb.DeadLetterGroup, reasons=reason_count)
purge = nested(PurgeRequest, pb.PurgeDeadLettersRequest, filter=letter_filter)
purged = flat(Purged, pb.PurgeDeadLettersResponse)
hop = nested(Hop, pb.Hop, kind=HopKind)
life_query = flat(LifeQuery, pb.GetLifeRequest)
life = nested(Life, pb.GetLifeResponse, hops=hop)
group_change = flat(GroupChange, pb.SetGroupRequest)

spec = nested(RedriveSpec, pb.RedriveSpec, filter=letter_filter)
redriven = nested(RedrivenLetter, pb.RedrivenLetter, outcome=RedriveOutcome)
job_query = flat(RedriveJobQuery, pb.GetRedriveJobRequest)
fates = flat(RedriveFates, pb.RedriveFates)
job = nested(RedriveJob, pb.RedriveJob, spec=spec, state=JobState, samples=redriven, fates=fates)
preview_request = nested(RedrivePreviewRequest, pb.PreviewRedriveRequest, spec=spec)
preview = nested(
    RedrivePreview,
    pb.PreviewRedriveResponse,
    topics=flat(TopicCount, pb.TopicCount),
    samples=redriven,
)
start = nested(RedriveRequest, pb.StartRedriveRequest, spec=spec)
change = nested(JobChange, pb.ChangeRedriveJobRequest, action=JobAction)
import_request = nested(
    ImportRequest, pb.ImportLettersRequest, letters=flat(ImportedLetter, pb.ImportedLetter)
)
import_answer = nested(
    ImportAnswer,
    pb.ImportLettersResponse,
    letters=redriven,
    topics=flat(TopicCount, pb.TopicCount),
)
outcomes_query = nested(OutcomesQuery, pb.ListRedriveOutcomesRequest, outcomes=RedriveOutcome)
outcomes = in_parts(
    nested(OutcomesPage, pb.ListRedriveOutcomesResponse, letters=redriven),
    letters=redriven,
)

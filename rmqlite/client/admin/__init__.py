"""AdminClient: topics, groups, the schedule, dead letters and redrives."""

-- All data of some jobs.
-- ARGV: 1-3 clock, then ids
-- Returns: {now_ms, for each id its data, as in `whole_jobs`}
--@include whole_jobs
return { now_ms, unpack(read_jobs({ unpack(ARGV, 4) })) }

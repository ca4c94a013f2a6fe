-- The stored form of a job: a record has numbers, then texts, whose sizes are among the numbers. Fields
-- that a claim and a success change are at the beginning and at the end: these two rewrite a record
-- without decoding it. HAS_PROGRESS tells what `extra` has as p:id: nothing (0), progress (1), or why the job is
-- held as unroutable (2). An instant that is not set is -1; a text that is not set is empty.
local ATTEMPT, STARTS, STARTED_MS, HAS_PROGRESS = 1, 2, 3, 4
local SUSPECT, CANCEL_REQUESTED, DUE_MS, FINISHED_MS, RESULT_MS = 5, 6, 7, 8, 9
-- 10 to 16 are the sizes of the texts from LAST_EVENT on
local PRIORITY, CREATED_MS, ROW, PLACE, EXPIRES_MS, READY_MS = 17, 18, 19, 20, 21, 22
local CRASHES, LOSSES, INTERRUPTIONS, SNOOZES, STRAYS, FAILURES, AGE = 23, 24, 25, 26, 27, 28, 29
-- 30 to 32 are the sizes of the first three texts; UNIQUE is empty for most
local QUEUE, TASK, UNIQUE, LAST_EVENT, LAST_TOKEN, STATE, HOLD, REASON = 33, 34, 35, 36, 37, 38, 39, 40
local SESSION, TOKEN = 41, 42
local COUNTS, MARKS, SIZES = '>I4I4i6B', 'BBi6i6i6', 'BHBBBHH'
local NUMBERS = COUNTS .. MARKS .. SIZES .. 'bi6i6i6i6i6I4I4I4I4I4I4I4HHH'
-- The offsets of the texts.
local MARKS_AT, ASKED_AT, SIZES_AT, REST_AT, EXPIRES_AT = 16, 17, 36, 46, 65
local FAILURES_AT, QUEUE_SIZE_AT, QUEUE_AT = 97, 105, 111

local pack_numbers, unpack_numbers = struct.pack, struct.unpack

-- The stored form of a job. A record has numbers, then texts; the numbers include the sizes of the texts.
-- Fields that a claim or a success changes are at the beginning and at the end, so that a claim and a
-- success rewrite a record without decoding it. An unset instant is -1; an unset text is empty.
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
local QUEUE_SIZE_AT, QUEUE_AT = 105, 111

local pack_numbers, unpack_numbers = struct.pack, struct.unpack

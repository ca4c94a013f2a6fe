-- The stored form of a job. Numbers are big-endian.
--
--   head   flags, row, created_ms, priority, the sizes of queue and task, queue, task; then, if the flags
--          say so, expires_ms, and size and text of the unique key
--   call   unless it is stored apart, under `body`
--   tail   only once the job has changed: the groups of fields below that the flags name, and the size of
--          the tail
--
-- Fields of a missing group have their defaults: an instant that is not set is -1, a text is empty, and a
-- job without a RUN group is ready or, with a due time and no hold, scheduled. A job takes its place in
-- line at its row, when it is created. So a new job has no tail, and a claim only adds one.
local FLAG_EXPIRES, FLAG_UNIQUE, FLAG_APART = 1, 2, 4
local FLAG_RUN, FLAG_DUE, FLAG_PLACE, FLAG_BUDGETS, FLAG_MARKS, FLAG_RESULT = 16, 32, 64, 128, 256, 512
local FLAG_DEATH = 1024  -- the last group: size and text of the fingerprint
local FLAG_TAIL = 16  -- records with a lower number of flags have no tail
local HEAD = '>HI6I6bHH'
local PRIORITY_AT, QUEUE_SIZE_AT, QUEUE_AT = 15, 16, 20
-- The RUN group: attempt, starts and started_ms, which a success keeps; state, last event, finished_ms and
-- the sizes of session, last token, reason and token; then these texts.
local RUN, RUN_END, RUN_START_SIZE = '>I4I4i6BBi6HHBH', '>BBi6HHBH', 14
local PLACES = '>I6i6I4'  -- place, ready_ms, age
local BUDGETS = '>I4I4I4I4I4I4'  -- crashes, losses, interruptions, snoozes, strays, failures
local MARKS = '>BBBB'  -- hold, suspect, cancel_requested, has_progress
local RESULT_HEAD = '>i6H'  -- result_ms, size; the result follows
local MOST_INLINE_CALL = 1024  -- bytes of a call; a larger one is stored apart
local MOST_INLINE_RESULT = 255
local RESULT_APART = 65535  -- as the size of a result: it is in `extra`

-- `codec` lists the states, holds and events; their codes are the positions in these lists.
local READY, RUNNING, SUCCEEDED, SUCCEED = 3, 4, 6, 2

-- The fields of a record as a table. HAS_PROGRESS tells what `extra` has as p:id: nothing (0), progress
-- (1), or why the job is held as unroutable (2). CALL is false if it is stored apart; so is RESULT.
local ATTEMPT, STARTS, STARTED_MS, HAS_PROGRESS = 1, 2, 3, 4
local SUSPECT, CANCEL_REQUESTED, DUE_MS, FINISHED_MS, RESULT_MS = 5, 6, 7, 8, 9
local PRIORITY, CREATED_MS, ROW, PLACE, EXPIRES_MS, READY_MS = 10, 11, 12, 13, 14, 15
local CRASHES, LOSSES, INTERRUPTIONS, SNOOZES, STRAYS, FAILURES, AGE = 16, 17, 18, 19, 20, 21, 22
local QUEUE, TASK, UNIQUE, LAST_EVENT, LAST_TOKEN, STATE, HOLD, REASON = 23, 24, 25, 26, 27, 28, 29, 30
local SESSION, TOKEN, CALL, RESULT, FINGERPRINT = 31, 32, 33, 34, 35

local pack_numbers, unpack_numbers = struct.pack, struct.unpack

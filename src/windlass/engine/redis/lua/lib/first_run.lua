-- The first claim of a job: its record gets a tail, and is not changed otherwise.
--@include clock
--@include layout

-- The tail of jobs that a session claims now, for the first time.
local function first_run(session, nonce)
  local run = pack_numbers(RUN, 1, 1, now_ms, RUNNING, 1, -1, #session, 0, 0, #nonce)
    .. session .. nonce
  return run .. pack_numbers('>H', #run + 2)
end

-- The flags of such a job. One that has a tail was changed before, and nil is returned.
local function run_flags(bytes)
  local flags = unpack_numbers('>H', bytes)
  return flags < FLAG_TAIL and pack_numbers('>H', flags + FLAG_RUN) or nil
end

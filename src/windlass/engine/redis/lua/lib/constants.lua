-- Numbers of the contract and of the state machine. A test compares them with the Python ones.
local BITE = 200
local CHUNK = 500
local MAX_FAILURES = 50
local MIN_RECORD_MS = 600000
local IDEMPOTENCY_MS = 86400000
local UNKNOWN_NONCE_MS = 10000
local GONE_SESSION_MS = 3600000
local SUSPECT_AFTER_LOSSES = 2
local STRAY_BASE_MS = 1000
local STRAY_CAP_MS = 60000
local RENEWED_WITHIN_MS = 5000
local LATEST_MS = 95617583999999

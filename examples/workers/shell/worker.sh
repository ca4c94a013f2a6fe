#!/bin/sh
# A worker for windlass in sh and curl: runs a command for each job of one task, one job at a time.
#
#     export WINDLASS_API=http://127.0.0.1:8155     # where `windlass serve` listens
#     export WINDLASS_TOKEN=wl_...                  # if the API needs an access token
#     ./worker.sh text.reverse shell ./reverse.sh   # task, queue, command
#
# The command gets the job as JSON on its standard input, and its id in WINDLASS_JOB. Its standard
# output is the result, as JSON. A status other than 0 is a failed attempt, with the standard error
# as traceback; 65 (EX_DATAERR) makes a dead letter now.
#
# SIGTERM lets the running job end; a second one gives the job back at once.

set -u
[ $# -ge 3 ] || { echo "usage: $0 TASK QUEUE COMMAND [ARGUMENT]..." >&2; exit 2; }
task=$1 queue=$2
shift 2
api=${WINDLASS_API:-http://127.0.0.1:8155}
api=${api%/}
folder=$(mktemp -d)
main=$$ session='' beating='' job='' token='' status=''
stopping='' # set by SIGTERM: claim no more
firm=''     # set while a request must not be cut off

log() { echo "worker: $*" >&2; }

# ---------------------------------------------------------------------------------------- requests

# In a file: the arguments of a process are visible to others.
printf '%s' "${WINDLASS_TOKEN:+Authorization: Bearer $WINDLASS_TOKEN}" >"$folder/header"

# request NAME METHOD PATH BODY: print the status, 000 without an answer, and leave the answer in the
# file NAME. Only for subshells, whose process becomes curl.
request() {
    printf '%s' "$4" >"$folder/$1.body"
    exec curl --silent --max-time 40 --request "$2" --header @"$folder/header" \
        --header 'Content-Type: application/json' --data-binary @"$folder/$1.body" \
        --output "$folder/$1" --write-out '%{http_code}' "$api$3"
}

# insist NAME METHOD PATH BODY: set `status`. Repeat the request while the server is away.
insist() {
    pause=1
    while :; do
        : >"$folder/$1"
        request "$@" >"$folder/$1.status" &
        await $! && status=$(cat "$folder/$1.status") || status=stopped
        case $status in
        000 | 429 | 500 | 502 | 503 | 504) log "no answer ($status), trying again in $pause s" ;;
        401 | 403 | 422) refuse "$1" ;;
        *) return ;;
        esac
        sleep $pause &
        await $! || { status=stopped && return; }
        [ $pause -ge 8 ] || pause=$((pause * 2))
    done
}

# refuse NAME: end, because the same request would fail again.
refuse() {
    log "refused ($status) by $api: $(cat "$folder/$1")"
    exit 1
}

# await PROCESS: wait for its end. Unless it is firm, a stop or the loss of the session ends it.
await() {
    while kill -0 "$1" 2>/dev/null; do
        if [ -z "$firm" ] && { [ -n "$stopping" ] || [ -e "$folder/gone" ]; }; then
            kill "$1" 2>/dev/null
            return 1
        fi
        wait "$1" # a signal ends it
    done
    return 0
}

# text NAME FIELD: a text of an answer. These texts have no quotes, and come before nested lists.
text() { sed -n 's/^[^[]*\(\[{[^[]*\)\{0,1\}"'"$2"'":"\([^"]*\)".*/\2/p' "$folder/$1"; }

# The standard input as a text of JSON: its end, in ASCII.
quoted() {
    tail -c 8000 | LC_ALL=C tr -c '\11\12\40-\176' '?' |
        sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/	/\\t/g' | awk '{ printf "%s\\n", $0 }'
}

# ---------------------------------------------------------------------------------------- sessions

begin() {
    rm -f "$folder/gone" "$folder/job" "$folder/answered"
    # Sessions of one name are shown and commanded as one worker.
    name=$(echo "$(uname -n)-$task" | tr -cd 'A-Za-z0-9.-' | cut -c 1-64)
    insist began POST /v1/sessions \
        "{\"name\":\"$name\",\"tasks\":[\"$task\"],\"queues\":[\"$queue\"]}"
    session=$(text began session) number=0
    [ "$status" != stopped ] || return
    [ -n "$session" ] || refuse began # such as 404: WINDLASS_API is the address of something else
    log "session $session"
    beat "$(sed 's/.*"beat_s":\([0-9.]*\).*/\1/' "$folder/began")" &
    beating=$!
}

# Send heartbeats, and obey the answers. Runs in a process of its own.
beat() {
    while sleep "$1" && kill -0 "$main" 2>/dev/null; do
        answered=$(cat "$folder/answered" 2>/dev/null) # before the job, which is written first
        job=$(cat "$folder/job" 2>/dev/null)
        status=$(request beat POST "/v1/sessions/$session/beat" \
            "{\"running\":[${job:+\"$job\"}],\"answered\":${answered:-0}}")
        [ "$status" != 410 ] || { : >"$folder/gone" && drop lost && kill -USR1 "$main" && return; }
        [ "$status" = 200 ] || continue
        case $(cat "$folder/beat") in
        *'"cancel":["'"$job"'"]'*) drop cancelled ;;
        *'"lost":["'"$job"'"]'*) drop lost ;;
        *'"state":"ok"'*) ;;
        *) kill -TERM "$main" && return ;; # an operator wants the worker to end
        esac
    done
}

# drop WHY: end the command of the running job.
drop() {
    : >"$folder/$1"
    kill "$(cat "$folder/process" 2>/dev/null)" 2>/dev/null || :
}

end() {
    [ -z "$beating" ] || kill "$beating" 2>/dev/null
    [ -z "$session" ] || log "ended ($(request ended DELETE "/v1/sessions/$session" ''))"
    rm -rf "$folder"
}

# -------------------------------------------------------------------------------------------- jobs

# report VERB FIELDS: report on the job until the answer is known. A refused report is dropped.
report() {
    firm=1
    insist reported POST "/v1/claims/$job/$1" "{\"session\":\"$session\",\"token\":\"$token\"$2}"
    firm=''
    log "job $job: $1 ($status)"
}

fail() { report fail ",\"rejected\":$1,\"error\":{\"type\":\"$2\",\"traceback\":\"$3\"}"; }

run() {
    rm -f "$folder/cancelled" "$folder/lost"
    WINDLASS_JOB=$job "$@" <"$folder/claim" >"$folder/result" 2>"$folder/errors" &
    echo $! >"$folder/process"
    echo "$job" >"$folder/job"
    echo "$number" >"$folder/answered"
    while :; do # a signal ends only the wait
        wait $!
        code=$?
        kill -0 $! 2>/dev/null || break
    done
    rm -f "$folder/process"
    if [ -e "$folder/lost" ]; then
        log "job $job was given to another worker"
    elif [ -e "$folder/cancelled" ]; then
        report release ''
    elif [ $code -eq 0 ]; then
        report ack ",\"result\":$(cat "$folder/result")"
        [ "$status" != 400 ] || fail false NotJson 'the output of the command is not JSON'
    else
        [ $code -eq 65 ] && rejected=true || rejected=false
        fail $rejected "Status$code" "$(quoted <"$folder/errors")"
    fi
    rm -f "$folder/job"
}

trap '[ -z "$stopping" ] || exit 1; stopping=1' TERM INT
trap ':' USR1 # ends a wait
trap end EXIT

while [ -z "$stopping" ]; do
    [ -n "$session" ] || begin
    # A repeat of a request has the same number, so that a lost answer loses no job.
    number=$((number + 1))
    insist claim POST /v1/claims \
        "{\"session\":\"$session\",\"nonce\":$number,\"limit\":1,\"wait_s\":15}"
    if [ "$status" = 410 ] || [ -e "$folder/gone" ]; then
        log "session $session is gone"
        kill "$beating" 2>/dev/null
        session=''
        continue
    fi
    [ "$status" != stopped ] || continue
    [ "$status" = 200 ] || refuse claim
    job=$(text claim id) token=$(text claim token)
    [ -z "$job" ] || run "$@"
done

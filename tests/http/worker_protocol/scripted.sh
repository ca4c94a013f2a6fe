#!/bin/sh
# A task of the tests: does what its first argument says.
: >"$FOLDER/started-$WINDLASS_JOB"
script=$(sed 's/.*"args":\["\([^"]*\)"\].*/\1/')
case $script in
fail) echo 'it "went wrong"' >&2; exit 1 ;;
reject) exit 65 ;;
garbage) echo 'no JSON'; exit ;;
gate) while [ ! -e "$FOLDER/gate" ]; do sleep 0.05; done ;;
esac
echo "\"done $script\""

#!/bin/sh
# Reverse a text of plain letters: the job {"args":["abc"],...} has the result "cba".
sed 's/.*"args":\["\([^"]*\)"\].*/\1/' | rev | sed 's/.*/"&"/'

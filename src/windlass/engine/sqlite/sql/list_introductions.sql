-- The info of live sessions whose name begins with a text, a bounded number.
SELECT session, info FROM sessions
WHERE session > ?1 AND session >= ?2 AND session < ?2 || char(1114111) AND gone = 0 AND info <> x''
ORDER BY session LIMIT ?3

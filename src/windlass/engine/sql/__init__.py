"""What the SQL engines share: named statements, the moves of jobs, and verbs that are statements.

1. `statements` reads files of named statements and lists migrations.
2. `transaction` moves jobs by the state machine, and keeps the books of one write.
3. `verbs/` implements operations of the contract as calls of named statements. Each engine has the
   text of these statements in its own `sql/`, and the hot paths in its own `verbs/`.
"""

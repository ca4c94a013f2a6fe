"""Enqueues in the transaction of a caller: `task.using(connection=...)`.

1. `recognition` makes an adapter from what the caller gave, by the library of its type. No library
   is imported unless the caller's object comes from it.
2. `connection` runs the statements of an engine, or of the outbox, on an adapter; `parameters`
   gives them the parameter marks of the driver.
3. One module for each library: psycopg, asyncpg, SQLAlchemy, Django and sqlite3.
"""

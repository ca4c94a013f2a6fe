"""The transactional outbox: jobs that wait in the caller's database until a worker relays them.

1. `url` reads the setting `outbox`; `migrations` makes the tables.
2. A producer inserts a job in its own transaction (`producer`), as the bytes of `record`.
3. A relay takes rows, puts their jobs into the engine, then deletes the rows. `rows` has what both
   databases share, `postgresql` and `sqlite` the rest; `connect` opens the outbox of a url.
"""

"""windlass next to other task queues, measured in one run: `make bench-peers`.

1. `systems` lists what is measured, with its settings; `environments` installs it.
2. `adapters` has a producer and a worker definition per system, all of the same shape.
3. `stores` starts an empty store, `deployment` a producer and workers on it; `workloads` and
   `losses` measure them.
4. `session` alternates between the systems, round by round; `limits` measures the bare loop with
   `redis_recorder` and `sqlite_recorder`.
5. `targets`, `page`, `charts` and `summary` turn stored results into tables, pictures and text.
"""

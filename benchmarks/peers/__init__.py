"""windlass next to other task queues, measured in one run: `make bench-peers`.

1. `systems` lists what is measured, with its settings; `environments` installs it.
2. `adapters` has a producer and a worker definition per system, all of the same shape.
3. `stage` starts a store, a producer and workers; `workloads` measures on it.
4. `session` alternates between the systems, round by round; `limits` finds the bare loop's rate.
5. `targets`, `page`, `charts` and `summary` turn stored results into tables, pictures and text.
"""

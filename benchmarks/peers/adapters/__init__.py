"""One folder per system. The harness drives all of them by the protocol of `protocol.py`.

Python adapters run in the environment of their system: they import nothing of the harness except
`protocol`, which needs the standard library only.
"""

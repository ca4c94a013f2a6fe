"""An app that uses its engine while it is imported."""

from tests.worker.apps.scripted import app, script

app.engine.stats()

__all__ = ["app", "script"]

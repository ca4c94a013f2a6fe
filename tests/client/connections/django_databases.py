"""Connections of Django to any database, without a project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connections

ALIAS = "shop"


@contextmanager
def django_connection(url: str) -> Iterator[Any]:
    """The connection of an alias, as `django.db.connections` has it."""
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    parts = urlsplit(url)
    is_file = parts.scheme == "sqlite"
    connections.databases[ALIAS] = connections.configure_settings(
        {
            "default": {},
            ALIAS: {
                "ENGINE": f"django.db.backends.{'sqlite3' if is_file else 'postgresql'}",
                "NAME": parts.path[1:],
                "USER": parts.username or "",
                "HOST": parts.hostname or "",
                "PORT": str(parts.port or ""),
            },
        }
    )[ALIAS]
    connection = connections[ALIAS]
    try:
        yield connection
    finally:
        connection.close()
        del connections[ALIAS], connections.databases[ALIAS]

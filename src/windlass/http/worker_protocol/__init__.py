"""The worker protocol: sessions, claims and outcomes for workers in any language."""

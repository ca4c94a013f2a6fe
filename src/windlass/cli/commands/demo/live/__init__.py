"""The live demo, `windlass demo --serve`: a shop under load, and its dashboard."""

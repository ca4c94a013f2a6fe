"""Encode calls and results as bytes: codecs, the stored envelope, signatures and encryption."""

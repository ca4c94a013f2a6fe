"""Tests of the dashboard in a real browser.

This folder is a package for pytest, so that the browser ends with its last test."""

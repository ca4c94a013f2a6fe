"""Alerts: the rules that an app declares, and when an alert fires and clears."""

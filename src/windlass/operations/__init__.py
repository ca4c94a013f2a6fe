"""Bulk operations: their interface, their stored pages of jobs, and the thread that does them."""

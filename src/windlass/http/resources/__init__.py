"""The resources of the API: one module for each, with its routes, bodies and answers."""

"""A child: the process that runs jobs, assembled from `fetch` and `run`."""

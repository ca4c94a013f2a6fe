"""The code of producers: store a call as a job, and wait for the result of a job."""

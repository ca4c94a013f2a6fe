"""What other systems are told about jobs: metrics for Prometheus, and traces by OpenTelemetry."""

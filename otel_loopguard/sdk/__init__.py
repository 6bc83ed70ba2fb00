"""The faces to the OpenTelemetry SDK: processor, exporter, sampler, propagator, instrumentor."""

"""The parts behind the public facade `otel_loopguard.control`."""

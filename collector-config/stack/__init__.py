"""The programs behind otel-loopguard, built from source and run on loopback without Docker."""

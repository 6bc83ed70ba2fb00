"""The command line, as `python -m otel_loopguard`."""

from otel_loopguard.cli import main

if __name__ == "__main__":
    main()

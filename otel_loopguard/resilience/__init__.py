"""What helps after failures: retries, breakers, recovery, checks, checkpoints."""

"""The evaluation lab: `eval`, `calibrate`, `learn`."""

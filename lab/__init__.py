"""What judges the guard itself: scenarios, curves, other detectors. Not part of the package."""

"""Spans to steps: views, active spans, de-duplication, and a dialect for each convention."""

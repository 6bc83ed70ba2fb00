"""`watch --agents`: follows the transcripts of coding agents while they are written."""

"""Requests of people about the sessions of live guards, over a store or a Unix socket."""

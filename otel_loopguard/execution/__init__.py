"""How calls are best executed: latency, resources, plans, advice, admission."""

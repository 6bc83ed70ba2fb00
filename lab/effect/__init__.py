"""What the guard changes for an agent with a real model, on tasks with a known answer."""

"""How a joblet runs attempts: real processes, or none at all."""

"""What communication costs: bytes by method, parties, width, batch, type and TLS, and seconds by rate and distance."""

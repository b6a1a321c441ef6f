"""What a network is, and the ways in."""

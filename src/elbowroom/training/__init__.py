"""Training of the networks in the demo and in the paper's experiments."""

"""What the outputs can be, given a region of inputs: differentiable, batched."""

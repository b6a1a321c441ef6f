"""What users hand us, arrays, frames, names and labels, turned into tensors whose axes and columns are known."""

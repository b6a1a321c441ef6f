"""What a network is: operations, the graph, its hash and its file."""

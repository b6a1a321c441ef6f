"""What owners of a model ask: how far may one feature move, is this sensor good enough, how good must it be."""

"""The largest certified region: search proposes, proof decides."""

"""A counterexample that leaves its box in one feature alone counts for that face, too."""

import torch

from elbowroom.certify.reach import _with_points


def test_points_beyond_one_face_count_for_it() -> None:
    lower, upper = torch.zeros(5, 3), torch.ones(5, 3)
    seen = torch.tensor([
        [1.5, 0.5, 0.5],  # nearer than what was found beyond that face
        [1.5, 1.2, 0.5],  # beyond two
        [0.5, -0.7, 1.0],  # farther
        [0.5, 0.5, 0.5],  # none was found: x
        [0.5, 0.5, -0.1],
    ])  # fmt: skip
    below = torch.tensor([[-2.0, -2.0, -2.0], [-2, -2, -2], [-2, -0.5, -2], [-2, -2, -2], [-2, -2, -torch.inf]])
    above = torch.full((5, 3), 2.0)
    found = _with_points((below, above), seen, lower, upper)
    expected = below.clone(), above.clone()
    expected[1][0, 0], expected[0][4, 2] = 1.5, -0.1
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])

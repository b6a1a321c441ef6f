"""What kernels do on a GPU is what plain torch does; where they fail or err, plain torch does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.search.bounds import dense, fused
from elbowroom.search.bounds.coefficients import Coefficients, Columns, Geometry, Patch, Places, like, numbers
from elbowroom.search.bounds.planes import Lines


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_GOOD", {})


def one() -> tuple[Tensor, ...]:
    return (torch.ones(3),)


def test_a_kernel_is_compared_once() -> None:
    calls: list[str] = []

    def noted(name: str, way: fused.Way) -> fused.Way:
        def run() -> tuple[Tensor, ...]:
            calls.append(name)
            return way()

        return run

    for _ in range(3):
        assert torch.equal(fused._better(("k",), noted("plain", one), noted("fused", one))[0], torch.ones(3))
    assert calls == ["fused", "plain", "fused", "fused"]


@pytest.mark.parametrize("wrong", [2.0, torch.nan, torch.inf, 1.01])
def test_a_kernel_that_errs_is_not_used(wrong: float) -> None:
    for _ in range(3):
        found = fused._better(("k",), one, lambda: (torch.tensor([1.0, wrong, 1.0]),))
        assert torch.equal(found[0], torch.ones(3))
    assert fused._GOOD == {("k",): False}


def test_what_is_not_a_number_in_both_is_no_error() -> None:
    both = torch.tensor([1.0, torch.nan, torch.inf])
    assert fused._same(both.clone(), both) and not fused._same(torch.zeros(3), both)


def test_a_compiler_that_fails_is_done_without() -> None:
    def broken() -> tuple[Tensor, ...]:
        raise ValueError("no such architecture")

    assert torch.equal(fused._better(("k",), one, broken)[0], torch.ones(3)) and fused._GOOD == {("k",): False}

    def full() -> tuple[Tensor, ...]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):  # whoever asked makes it smaller
        fused._better(("other",), one, full)
    assert ("other",) not in fused._GOOD


def test_nothing_is_compared_while_a_pass_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "is_recording", lambda: True)
    assert torch.equal(fused._better(("k",), one, lambda: (torch.zeros(3),))[0], torch.ones(3))
    assert not fused._GOOD
    fused._GOOD["k",] = True
    assert torch.equal(fused._better(("k",), one, lambda: (torch.zeros(3),))[0], torch.zeros(3))


def test_matrices_of_convolutions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "_pays", lambda like: True)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 2, 3, 3, generator=generator)
    node = Network.chain((2, 9, 9), [ops.Conv(weight, None, (2, 2), (1, 1)), ops.Reshape((-1,))]).nodes[1]
    at, place = Geometry((1, 1), (-1, -1), (3, 3)), Places(torch.tensor([[[1, 2], [0, 4]]]))
    c = Patch(torch.randn(1, 2, 3, 3, 4, generator=generator), place, at, False)
    (found,) = dense.adjoint_at(node, c, [(2, 9, 9)])
    with monkeypatch.context() as patch:
        patch.setattr(dense, "_pays", lambda like: False)
        (expected,) = dense.adjoint_at(node, c, [(2, 9, 9)])
    torch.testing.assert_close(found, expected)
    matrix = dense._matrix(node, at, [(2, 9, 9)], c.a)
    assert matrix is not None and matrix.shape == (36, 98) and dense._matrix(node, at, [(2, 9, 9)], c.a) is matrix
    node.op.weight.mul_(2)  # weights that were changed are others
    torch.testing.assert_close(dense._matrix(node, at, [(2, 9, 9)], c.a), 2 * matrix)
    large = Geometry((1, 1), (-8, -8), (17, 17))  # nearly all of it would be zero
    assert dense._matrix(node, large, [(2, 9, 9)], c.a) is None


def rows(kind: str, random: Callable[..., Tensor]) -> tuple[Coefficients, Lines]:
    shape = (8, 16, 16) if kind in ("windows", "images") else (300,)
    batch = 24
    lines = Lines([random(batch, *shape) for _ in range(4)])
    if kind == "windows":  # some of them partly, or nearly all, outside
        place = (random(batch, 300, 2).abs() * 8).long().clamp_max(15)
        return Patch(random(batch, 300, 5, 6, 8), Places(place), Geometry((1, 1), (-2, -3), (5, 6)), False), lines
    if kind == "images":
        return random(batch, 40, *shape), lines
    if kind == "shared":
        return random(1, 400, *shape), lines
    index = random(batch, 300).argsort(1)[:, :200].sort(1).values
    index[:, 190:] = -1
    a = random(batch, 500, 200)
    a[..., 190:] = 0
    return Columns(a, index), lines


KINDS = ["windows", "images", "shared", "columns"]


def both_ways(work: Callable[[], Any]) -> tuple[list[Tensor], list[Tensor]]:
    """By the kernels, and by plain torch."""
    work()  # the first time gives what plain torch gives
    assert fused._GOOD and all(fused._GOOD.values())
    found = work()
    fused._GOOD.update(dict.fromkeys(fused._GOOD, False))
    expected = work()
    fused._GOOD.clear()
    return flat(found), flat(expected)


def flat(found: Any) -> list[Tensor]:
    return [found] if isinstance(found, Tensor) else [t for one in found for t in flat(one)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*((kind, torch.float32) for kind in KINDS), ("columns", torch.float16), ("shared", torch.float16)],
)
def test_kernels_on_a_gpu(kind: str, dtype: torch.dtype) -> None:
    generator = torch.Generator("cuda").manual_seed(0)

    def random(*size: int) -> Tensor:
        return torch.randn(*size, device="cuda", generator=generator)

    c, pairs = rows(kind, random)
    c = c if dtype == torch.float32 else like(c, numbers(c).to(dtype))
    gaps = Lines([pairs.every[0], pairs.every[1].abs()])
    below = random(*numbers(c).shape).to(dtype)
    near = 1e-5 if dtype == torch.float32 else 2e-3
    jobs: list[Callable[[], Any]] = [lambda: fused.support(c, gaps.every[1])]
    for parallel, lines in ((False, pairs), (True, gaps)):

        def look(lines: Lines = lines) -> list[Tensor]:
            return fused.lines_at(c, lines)

        jobs.append(lambda lines=lines, parallel=parallel, look=look: fused.past_lines(c, lines, parallel, look))
        if kind != "shared":
            jobs.append(
                lambda lines=lines, parallel=parallel, look=look: fused.past_planes(c, [below], lines, parallel, look)
            )
    if kind != "shared":
        jobs.append(lambda: fused.attained(c, gaps.every[1]))
    if isinstance(c, Patch):
        weight = random(24, 9, 300)
        jobs += [lambda: fused.whole(c, (8, 16, 16)), lambda: fused.collected(weight, c, (8, 16, 16))]
    for job in jobs:
        for found, expected in zip(*both_ways(job)):
            torch.testing.assert_close(found, expected, rtol=near, atol=near * float(expected.abs().max()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_parts_of_matrices_on_a_gpu(dtype: torch.dtype) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    matrix = torch.randn(300, 784, device="cuda", generator=generator).to(dtype)
    index = torch.randint(0, 300, (24, 200), device="cuda", generator=generator)
    columns = torch.randint(-1, 784, (24, 500), device="cuda", generator=generator)
    signed = torch.randint(0, 600, (24, 200), device="cuda", generator=generator)
    scale = torch.rand(24, 784, device="cuda", generator=generator)
    for job in (
        lambda: fused.rows_of(matrix, index), lambda: fused.rows_of(matrix, index, columns),
        lambda: fused.rows_of(matrix, None, columns), lambda: fused.rows_of(matrix, index, None, scale),
        lambda: fused.rows_of(matrix, None, None, scale), lambda: fused.rows_of(matrix, signed, columns, None, True),
    ):  # fmt: skip
        for found, expected in zip(*both_ways(job)):
            assert torch.equal(found, expected)

"""Effort: what `certify` promises of regions that it cut into parts. Nobody here believes a tree."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import elbowroom as er
from commands import good, refused, run
from elbowroom.certificates.result import Certificates
from elbowroom.certify.columns import keep_better
from elbowroom.claim.space import Space
from elbowroom.claim.specification import Specification, label_stays
from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import EMPTY, STEPS, Tree
from elbowroom.claim.tree_bytes import as_bytes, as_words, unpack
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.proof.kernel.prove import prove
from elbowroom.search.find import Inputs
from elbowroom.search.regions.objective import Volume
from elbowroom.vnnlib import export
from forgery import sized
from support import mlp, normal
from vnnlib.complete import Verifier

N = 4
BASIS = torch.linalg.qr(torch.tensor(np.random.default_rng(1).normal(size=(N, N)))).Q
SHAPES: dict[str, er.Region] = {
    "uniform": er.Uniform(),
    "box": er.Box(),
    "asymmetric": er.Box(asymmetric=True),
    "ellipsoid": er.Ellipsoid(),
    "l1": er.L1(),
    "ball": er.Ball(3),
    "oblique": er.Oblique(BASIS),
    "oblique asymmetric": er.Oblique(BASIS, er.Box(asymmetric=True)),
    "oblique ellipsoid": er.Oblique(BASIS, er.Ellipsoid()),
}


def chain(seed: int, sizes: tuple[int, ...] = (N, 6, 6, 3), op: ops.Activation | None = None) -> Network:
    return mlp(np.random.default_rng(seed), list(sizes), op).cast(torch.float32)


def points(seed: int, count: int = 2, n: int = N) -> Tensor:
    return normal(np.random.default_rng(seed), count, n).clamp(-1, 1)


def images() -> tuple[Network, Tensor]:
    """A convolution and max-pooling."""
    rng = np.random.default_rng(5)
    layers = [
        ops.Conv(normal(rng, 3, 1, 2, 2), normal(rng, 3)), ops.ReLU(), ops.MaxPool((2, 2), (1,)), ops.Reshape((-1,)),
        ops.Linear(0.5 * normal(rng, 3, 6), normal(rng, 3)),
    ]  # fmt: skip
    return Network.chain((1, 3, 4), layers), normal(rng, 1, 1, 3, 4)


def residual() -> tuple[Network, Tensor]:
    rng = np.random.default_rng(6)
    graph = Graph((N,))
    first = graph.add(ops.Linear(normal(rng, 6, N), normal(rng, 6)), graph.input)
    second = graph.add(ops.Linear(0.5 * normal(rng, 6, 6), normal(rng, 6)), graph.add(ops.ReLU(), first))
    both = graph.add(ops.ReLU(), graph.add(ops.Add((1.0, -1.0)), first, second))
    return graph.network(graph.add(ops.Linear(normal(rng, 2, 6), normal(rng, 2)), both)), normal(rng, 2, N)


# --- what is claimed, and points that would show it to be false


def specification(certs: Certificates, rows: Tensor) -> Specification:
    if certs.spec_rows is None or certs.spec_offset is None or certs.spec_group is None:
        assert certs.network is not None
        return er.label_stays(certs.labels[rows], certs.network.n_outputs, certs.network.decision)
    own = [t if len(t) == 1 else t[rows] for t in (certs.spec_rows, certs.spec_offset)]
    return Specification(own[0], own[1], certs.spec_group)


def placed(certs: Certificates, rows: Tensor, p: float) -> Callable[[Tensor], Tensor]:
    """From numbers, `b x m x n`, to points of the regions."""

    def place(v: Tensor) -> Tensor:
        if certs.lower is not None and certs.upper is not None:
            low, high = (t[rows].flatten(1)[:, None] for t in (certs.lower, certs.upper))
            share = (v.clamp(-1, 1) + 1) / 2
            return torch.minimum(torch.maximum(low + share * (high - low), low), high)
        v = v / torch.linalg.vector_norm(v, ord=p, dim=-1, keepdim=True).clamp_min(1)
        moved = v * certs.eps[rows].flatten(1)[:, None]
        return certs.center[rows].flatten(1)[:, None] + (moved if certs.basis is None else moved @ certs.basis.T)

    return place


def least_margins(certs: Certificates, count: int = 200, steps: int = 12) -> Tensor:
    """The least margin that samples, corners (of few features) and steps downhill find in each certified region."""
    net, rows = certs.network, certs.certified.nonzero().squeeze(1)
    assert net is not None
    net, n = net.cast(torch.float64), net.n_inputs
    spec = specification(certs, rows)
    place = placed(certs, rows, {"inf": math.inf}.get(certs.settings["p"], certs.settings["p"]))

    def margins(v: Tensor) -> Tensor:
        outputs = net(place(v).reshape(-1, *net.input_shape)).reshape(len(rows), v.shape[1], -1)
        values = torch.einsum("btk,bmk->bmt", spec.rows.expand(len(rows), -1, -1), outputs) + spec.offset[:, None]
        groups = values.new_full((*values.shape[:2], spec.n_groups), -math.inf)
        return groups.scatter_reduce(2, spec.group.expand_as(values), values, "amax").amin(2)

    v = 2 * torch.rand(len(rows), count, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 1
    if n <= 7:
        corners = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0]).double()] * n).reshape(-1, n)
        v = torch.cat([v, corners.expand(len(rows), -1, -1)], 1)
    found = margins(v).detach()
    for step in range(steps):
        v = v.detach().requires_grad_()
        (slope,) = torch.autograd.grad(margins(v).sum(), v)
        v = (v.detach() - 0.8**step * slope / slope.abs().amax(-1, keepdim=True).clamp_min(1e-30)).clamp(-1, 1)
        found = torch.minimum(found, margins(v).detach())
    return found.amin(1)


def assert_true_and_larger(certs: Certificates, fast: Certificates, delta: float = 0.0) -> None:
    """Everything that is claimed is proved again and not refuted, and nothing is worse than without effort."""
    assert certs.status == fast.status and certs.certified.any()
    assert (certs.geomean >= fast.geomean * (1 - 1e-12)).all()
    assert certs.trees is not None and fast.trees is None
    assert all(len(trees) == 0 for trees, ok in zip(certs.trees, certs.certified.tolist()) if not ok)
    report = er.check(certs)
    assert report, report
    least = least_margins(certs)
    assert (least > delta).all() and (least >= certs.margins[certs.certified].amin(1) - 1e-9).all()


@pytest.mark.parametrize("name", SHAPES)
def test_no_point_of_a_larger_region_is_a_counterexample(name: str) -> None:
    net, x = chain(1), points(1)
    fast, certs = (er.certify(net, x, region=SHAPES[name], effort=effort) for effort in ("fast", 8))
    assert_true_and_larger(certs, fast)
    assert (certs.geomean > 1.05 * fast.geomean).any() and any(len(trees) for trees in certs.trees)
    if name in ("box", "oblique ellipsoid"):
        k = next(k for k, trees in enumerate(certs.trees) if len(trees))
        assert er.check(certs.rows(k, k + 1), arithmetic="arb")


NETWORKS: dict[str, Callable[[], tuple[Network, Tensor]]] = {
    "leaky": lambda: (chain(2, op=ops.LeakyReLU(0.1)), points(2)),
    "folded": lambda: (chain(2, op=ops.LeakyReLU(-0.2)), points(2)),
    "tanh": lambda: (chain(3, (N, 4, 3), ops.Tanh()), points(3, 1)),
    "gelu": lambda: (chain(3, (N, 3, 3), ops.GELU()), points(3, 1)),
    "two classes": lambda: (chain(4, (N, 8, 2)), points(4)),
    "many features": lambda: (chain(4, (20, 6, 6, 3)), points(4, 1, 20)),
    "images": images,
    "residual": residual,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_no_counterexample_in_other_networks(name: str) -> None:
    net, x = NETWORKS[name]()
    fast, certs = (er.certify(net, x, effort=effort) for effort in ("fast", 6))
    assert_true_and_larger(certs, fast)


def several_rows(x: Tensor, net: Network) -> Specification:
    """Two groups, of two and three rows, some of them positive at the inputs."""
    rows = normal(np.random.default_rng(8), len(x), 5, net.n_outputs)
    offset = torch.linspace(0.05, 0.3, 5).double() - torch.einsum("btk,bk->bt", rows, net.cast(torch.float64)(x))
    return Specification(rows, offset, torch.tensor([0, 0, 1, 1, 1]))


OPTIONS: dict[str, Callable[[Tensor, Network], dict[str, Any]]] = {
    "domain": lambda x, net: {"domain": (-1, 1), "region": er.Box(asymmetric=True)},
    "frozen": lambda x, net: {"frozen": torch.tensor([True, False, False, True])},
    "importance": lambda x, net: {"importance": torch.tensor([0.1, 1.0, 3.0, 10.0])},
    "max_eps": lambda x, net: {"max_eps": 0.1},
    "delta": lambda x, net: {"delta": 0.05},
    "float64": lambda x, net: {"precision": "float64"},
    "deployed": lambda x, net: {"deployed": "float32"},
    "one by one": lambda x, net: {"batch": 1},
    "a set of labels": lambda x, net: {"spec": er.label_in([0, 1], 3)},
    "outputs within": lambda x, net: {"spec": er.outputs_within(net.cast(torch.float64)(x), 0.3)},
    "several rows per group": lambda x, net: {"spec": several_rows(x, net)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_kept(name: str) -> None:
    net, x = chain(1), points(1, 2)
    options = OPTIONS[name](x, net)
    fast, certs = (er.certify(net, x, effort=effort, **options) for effort in ("fast", 4))
    assert_true_and_larger(certs, fast, options.get("delta", 0.0))
    ok = certs.certified
    assert certs.lower is not None and certs.upper is not None
    reach = torch.maximum(certs.upper - certs.x, certs.x - certs.lower)[ok]
    if name == "domain":
        assert (certs.lower[ok] >= -1).all() and (certs.upper[ok] <= 1).all()
    if name == "frozen":
        assert (reach[:, options["frozen"]] == 0).all() and (reach[:, ~options["frozen"]] > 0).all()
    if name == "max_eps":
        assert (reach <= 0.1 * (1 + 1e-12)).all()


def test_a_fine_grid_finds_no_counterexample_in_boxes_that_fill_most_of_the_room() -> None:
    """In two dimensions: 200 points a side, and as many of the box made larger, where some are counterexamples."""
    net, x = chain(2, (2, 8, 8, 3)), points(2, 2, 2)
    certs = er.certify(net, x, region=er.Box(asymmetric=True), domain=(-2, 2), effort=200)
    assert certs.certified.all() and certs.lower is not None and certs.upper is not None
    share = torch.cartesian_prod(*[torch.linspace(0, 1, 200).double()] * 2)
    for factor in (1.0, 1.3):
        low, high = (certs.x + factor * (t - certs.x) for t in (certs.lower, certs.upper))
        grid = (low[:, None] + share * (high - low)[:, None]).clamp(-2, 2)
        stays = net.decide(net.cast(torch.float64)(grid.flatten(0, 1))).reshape(2, -1) == certs.labels[:, None]
        assert stays.all() if factor == 1 else not stays.all(1).any()


def test_a_complete_verifier_finds_none(marabou: Any, tmp_path: Path) -> None:
    """On the boxes as `export` writes them, for which no tree is needed."""
    net, x = chain(7), points(7)
    certs = er.certify(net, x, effort=10, delta=1e-3)
    verifier = Verifier(marabou, tmp_path / "network.onnx")
    paths = export(certs, net, tmp_path)
    texts = [path.read_text() for path in paths]
    answers = [verifier.whole(path)[0] for path in paths]
    assert "sat" not in answers and "unsat" in answers
    export(dataclasses.replace(certs, trees=None), net, tmp_path)
    assert [path.read_text() for path in paths] == texts


# --- limits


def test_trees_keep_to_their_bytes() -> None:
    net, x = chain(4, (8, 12, 12, 3)), points(4, 1, 8)
    certs = er.certify(net, x, effort=50, proof_bytes=1000)
    assert certs.trees is not None and all(len(as_bytes(trees)) <= 1000 + 7 for trees in certs.trees)
    assert er.check(certs)


def test_seconds_are_kept_to() -> None:
    net, x = chain(4, (12, 40, 40, 40, 4)), points(4, 1, 12)
    started = time.perf_counter()
    fast = er.certify(net, x)
    alone = time.perf_counter() - started
    started = time.perf_counter()
    certs = er.certify(net, x, effort="0.5s")
    assert time.perf_counter() - started < 5 * alone + 10
    assert (certs.geomean >= fast.geomean).all() and er.check(certs)


def test_two_leaves_and_little_memory_will_do() -> None:
    net, x = chain(1), points(1)
    fast, certs = (er.certify(net, x, effort=effort, memory="1MiB") for effort in ("fast", 2))
    assert_true_and_larger(certs, fast)
    assert certs.trees is not None
    assert max(tree.n_leaves for trees in certs.trees for _, tree in unpack(as_bytes(trees))) == 2


NONSENSE = ["lots", "", "0s", "-1s", "nans", "1e3s", "1.5", "0", "1", "9" * 400, "\u0663", -1, 0, 1, True, None, 2.5]


@pytest.mark.parametrize("effort", [*NONSENSE, 10**30, [3]], ids=lambda e: str(e)[:6])
def test_nonsense_is_refused_in_words(effort: Any) -> None:
    with pytest.raises(InputError, match="effort must be 'fast', 'medium', 'high', a number of leaves"):
        er.certify(chain(1), points(1), effort=effort)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"proof_bytes": 5}, "proof_bytes must be between 1,000 and 1,000,000, got 5"),
        ({"proof_bytes": True}, "proof_bytes must be"),
        ({"proof_bytes": 1e5}, "proof_bytes must be"),
        ({"effort": 5, "bounds": "combined"}, 'is done with bounds="adaptive" and margin="direct" only'),
        ({"effort": "high", "margin": "logits"}, "these are bounds=adaptive, margin='logits'"),
        ({"effort": 5, "memory": "1KiB"}, "memory must be at least a megabyte"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        er.certify(chain(1), points(1), **options)


# --- forgeries: regions that do hold a counterexample, and trees that were good for smaller ones


@functools.cache
def larger() -> tuple[Certificates, dict[int, Tensor]]:
    """Certificates with trees, and of some a counterexample not far from the box."""
    net, x = chain(1), points(1, 4)
    certs, found = er.certify(net, x, effort=10), {}
    assert certs.trees is not None and certs.certified.any()
    for k, trees in enumerate(certs.trees):
        v = 2 * torch.rand(20_000, N, dtype=torch.float64, generator=torch.Generator().manual_seed(k)) - 1
        near = certs.center[k] + 2 * certs.eps[k] * v
        beyond = near[net.decide(net.cast(torch.float64)(near)) != certs.labels[k]]
        if len(beyond) and len(trees):
            found[k] = beyond[((beyond - certs.center[k]) / certs.eps[k]).abs().amax(1).argmin()]
    assert len(found) >= 2
    return certs, found


def with_point(certs: Certificates, k: int, point: Tensor) -> Certificates:
    """Certificate k alone, of a box that holds the point as well: made by a forger who forgets nothing."""
    assert certs.lower is not None and certs.upper is not None
    lower, upper = torch.minimum(certs.lower[k], point), torch.maximum(certs.upper[k], point)
    half = torch.nextafter(upper / 2 - lower / 2, torch.zeros(()).double())
    alone = certs.rows(k, k + 1)
    middle = lower / 2 + upper / 2
    return sized(dataclasses.replace(alone, lower=lower[None], upper=upper[None], eps=half[None], center=middle[None]))


def forged(tree: Tree, net: Network, rng: np.random.Generator) -> Tree:
    """The tree after some changes that leave it well-formed."""
    node, entry, value, multipliers, slopes = (
        t.clone() for t in (tree.node, tree.entry, tree.value, tree.multipliers, tree.slopes)
    )
    again, leaf, inner = tree.again, node < 0, (node >= 0).nonzero().squeeze(1).tolist()
    for kind in rng.integers(0, 8, size=rng.integers(1, 4)).tolist() if inner else ():
        i = int(rng.choice(inner))
        match kind:
            case 0:  # another split
                node[i] = int(rng.integers(len(net.nodes)))
                entry[i] = int(rng.integers(net.nodes[int(node[i])].size))
                value[i] = float(rng.normal())
            case 1:
                multipliers = multipliers * 10 ** rng.uniform(-3, 6)
            case 2:
                multipliers = torch.from_numpy(rng.exponential(size=len(multipliers)))
            case 3:
                slopes = torch.from_numpy(rng.integers(0, STEPS + 1, tuple(slopes.shape)).astype(np.uint8))
            case 4:
                again = not again
            case 5:  # leaves that are not empty
                entry = torch.where(leaf & torch.from_numpy(rng.random(len(entry)) < 0.5), EMPTY, entry)
            case 6:  # splits elsewhere
                value[i] = float(rng.choice([1e300, -1e300, 5e-324, 0.0, 1e-9, value[i] * 1.01]))
            case _:  # the same split once more
                j = int(rng.choice(inner))
                node[i], entry[i], value[i] = int(node[j]), int(entry[j]), float(value[j])
    return Tree(node, entry, value, multipliers, tree.neurons, slopes, again)


def test_no_tree_proves_what_is_false() -> None:
    certs, found = larger()
    net, rng = certs.network, np.random.default_rng(0)
    assert net is not None and certs.trees is not None
    for k, point in found.items():
        trees, box = unpack(as_bytes(certs.trees[k])), with_point(certs, k, point)
        assert box.lower is not None and box.upper is not None
        spec = specification(box, torch.tensor([0]))
        truth = spec.margins(net.cast(torch.float64)(point[None]))
        assert truth.amin() <= 0
        for other in [trees, *([(g, forged(tree, net, rng)) for g, tree in trees] for _ in range(10))]:
            margins = prove(net, Stated(box.lower, box.upper), spec.rows, spec.offset, spec.group, trees=[other])
            assert (margins <= truth).all() and not (margins > 0).all()


@pytest.mark.parametrize("arithmetic", ["float64", "arb"])
def test_boxes_larger_than_their_trees_prove_and_trees_of_others_fail(arithmetic: str, tmp_path: Path) -> None:
    certs, found = larger()
    k, other = list(found)[:2]
    assert certs.trees is not None
    wider = Certificates.load(with_point(certs, k, found[k]).save(tmp_path / "wider"))
    report = er.check(wider, arithmetic=arithmetic)
    assert not report and "could only be bounded by" in report.message[0]
    swapped = dataclasses.replace(certs.rows(k, k + 1), trees=(certs.trees[other],))
    assert not er.check(Certificates.load(swapped.save(tmp_path / "swapped")), arithmetic=arithmetic)
    # Nothing of another network is proved, either.
    assert certs.network is not None
    with pytest.raises(InputError, match="about the network with hash"):
        er.check(certs, chain(2), arithmetic=arithmetic)


@pytest.mark.parametrize("place", [0, 5, 9, -20, -9])
def test_damaged_trees_never_prove_more(place: int) -> None:
    """A byte that is changed: the trees are refused, or prove nothing that they did not prove before."""
    certs, found = larger()
    assert certs.trees is not None
    k = next(iter(found))
    data = bytearray(as_bytes(certs.trees[k]))
    data[place] ^= 0x41
    words = as_words(bytes(data))
    report = er.check(dataclasses.replace(certs.rows(k, k + 1), trees=(words,)))
    assert not report and "damaged" in report.message[0]
    assert not er.check(dataclasses.replace(with_point(certs, k, found[k]), trees=(words,)))


# --- runs


def test_a_run_is_resumed_shown_exported_and_proved(tmp_path: Path) -> None:
    net, x = chain(1, (N, 6, 3)), points(1, 4)
    er.save_network(net, tmp_path / "net.elbowroom")
    np.savez(tmp_path / "data.npz", x=x.numpy(), y=net.decide(net.cast(torch.float64)(x)).numpy())
    given = ("certify", tmp_path / "net.elbowroom", tmp_path / "data.npz", "--device", "cpu")
    folder = tmp_path / "run"
    for wrong in ("lots", "", "-1", "2.5", "1s1"):
        assert "--effort must be fast, medium, high, a number" in refused(*given, "--out", folder, f"--effort={wrong}")
    for wrong in ("0", "1", "0s", "9" * 15):
        assert "effort must be 'fast', 'medium', 'high'" in refused_later(*given, "--out", folder, "--effort", wrong)
    for flags in (("--bounds", "simple"), ("--proof-bytes", 5)):
        refused_later(*given, "--out", folder, "--effort", 10, *flags)
    assert not folder.exists()
    good(*given, "--out", folder, "--effort", 6, "--part-rows", 2)
    first = Certificates.load(folder)
    part = folder / "parts" / "part-00001.parquet"
    part.unlink()
    said = run("certify", "--resume", "--out", folder, "--effort", "high")
    assert said.exit_code == 2 and "effort (then 6, now high)" in said.stderr
    good("certify", "--resume", "--out", folder, "--device", "cpu")
    certs = Certificates.load(folder)
    assert certs.trees is not None and first.trees is not None and any(len(trees) for trees in certs.trees)
    assert all(torch.equal(a, b) for a, b in zip(certs.trees, first.trees)) and torch.equal(certs.eps, first.eps)
    assert_true_and_larger(certs, er.certify(net, x))
    assert "all proved: 4 of 4" in good("check", folder).stdout
    assert "all proved: 4 of 4" in good("check", folder, "--arithmetic", "arb").stdout
    assert json.loads(good("show", folder, "--index", 1, "--json").stdout)
    good("export-vnnlib", folder, "--out", tmp_path / "queries")
    assert len(list((tmp_path / "queries").glob("*.vnnlib"))) == 4


def refused_later(*arguments: Any) -> str:
    """What is said last: by then the model and the data were read."""
    result = run(*arguments)
    assert result.exit_code == 2 and not result.stdout
    assert result.stderr.splitlines()[-1].startswith("elbowroom: "), result.stderr
    return result.stderr.splitlines()[-1]


# --- what a region is called


@pytest.mark.parametrize("scale", [None, torch.tensor([1.0, 2.0, 0.5, 4.0])])
def test_a_uniform_region_stays_uniform(scale: Tensor | None) -> None:
    """Its faces are moved together or not at all, however few there are."""
    net, region = chain(3), er.Uniform(scale)
    fast = er.certify(net, points(3), region=region)
    certs = er.certify(net, points(3), region=region, effort=50)
    assert bool((certs.geomean > 1.01 * fast.geomean).any())
    extents = certs.eps if scale is None else certs.eps / scale
    torch.testing.assert_close(extents, extents[:, :1].expand_as(extents), rtol=1e-6, atol=0)
    assert bool(er.check(certs, net))


def test_weights_say_which_region_is_larger() -> None:
    """A first feature three times as wide is worth a second one a quarter as wide, if it weighs three times as much."""
    some = torch.tensor([0])
    for weight, larger in ((3.0, True), (1.0, False)):
        importance = torch.tensor([[weight, 1.0]], dtype=torch.float64)
        ends = torch.full((1, 2), torch.inf, dtype=torch.float64)
        space = Space(-ends, ends, ends, torch.ones(1, 2, dtype=torch.bool), importance)
        result: dict[str, Any] = {"eps": torch.ones(1, 2, dtype=torch.float64)}
        found = {"eps": torch.tensor([[3.0, 0.25]], dtype=torch.float64), "certified": torch.tensor([True])}
        passed = torch.tensor([False])
        at, spec = torch.zeros(1, 2, dtype=torch.float64), label_stays(torch.tensor([0]), 2)
        keep_better(result, passed, Inputs(at, at, spec, space, some), some, found, Volume())
        assert bool(passed) is larger
        assert float(result["eps"][0, 0]) == (3.0 if larger else 1.0)

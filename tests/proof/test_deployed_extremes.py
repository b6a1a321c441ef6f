"""The claim about execution in float32 for networks made to break it: subnormal and huge parameters everywhere."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elbowroom.certify.api import certify
from elbowroom.claim.hints import Hints
from elbowroom.claim.specification import label_stays
from elbowroom.claim.stated import Stated
from elbowroom.errors import UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.proof.kernel.float32 import ANALYSES, Float32Noise, refuse_unfit
from elbowroom.proof.kernel.prove import prove
from elbowroom.proof.kernel.walk import StrictBounds
from elbowroom.proof.recheck import check
from elbowroom.verify.box import verify
from proof.executed import FLUSHING, Machine, flushing, in_onnxruntime
from support import ACTIVATIONS, BLOCKS, SHAPES, Builder, cases, mlp, normal

F32, F64 = torch.float32, torch.float64
LARGEST = torch.finfo(F32).max
LEVELS = (1e-44, 1e-40, 1e-38, 3e-38, 1e-30, 1e-10, 1e-2, 1.0, 1.0, 1.0, 1.0, 1e2, 1e10, 1e30, 1e37, 1e38, 3e38)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F32)


class Extremes(Builder):
    """Random graphs that lead the values at one point up and down through all that float32 can hold, and beyond."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, ...], wildness: float) -> None:
        super().__init__(rng, shape, "plain")
        self.wildness = wildness
        self.points = [normal(rng, 1, *shape) * self.level()]
        self.points[0] = self.points[0].clamp(-LARGEST, LARGEST).float().double()
        self.last = False

    def level(self) -> float:
        return float(self.rng.choice(LEVELS)) if self.rng.random() < self.wildness else 1.0

    @property
    def size(self) -> float:
        """The largest magnitude at the current node."""
        found = float(self.points[self.at].abs().max())
        return found if 0 < found < math.inf else 1.0

    def add(self, op: ops.Operation, *inputs: int) -> int:
        wide = op.map_tensors(lambda t: t.double())
        self.points.append(wide(*(self.points[j] for j in inputs or (self.at,))))
        return super().add(op, *inputs)

    def numbers(self, *shape: int, size: float | None = None) -> Tensor:
        """Float32 numbers around `size`, some of them subnormal or huge, none zero, as float64."""
        found = normal(self.rng, *shape) * (self.level() if size is None else size)
        if self.rng.random() < 0.5 * self.wildness and not self.last:
            odd = torch.from_numpy(10.0 ** self.rng.uniform(-45, -37, shape) * self.rng.choice([-1, 1], shape))
            found = torch.where(torch.from_numpy(self.rng.random(shape) < 0.3), odd, found)
        if self.rng.random() < 0.1 * self.wildness and not self.last:
            odd = torch.from_numpy(10.0 ** self.rng.uniform(25, 38.5, shape) * self.rng.choice([-1, 1], shape))
            found = torch.where(torch.from_numpy(self.rng.random(shape) < 0.2), odd, found)
        found = found.clamp(-LARGEST, LARGEST).float().double()
        return torch.where(found == 0, 2.0**-149, found)

    def weight(self, *shape: int) -> Tensor:
        aim = 0.5 if self.last else self.level()
        return self.numbers(*shape, size=aim / (self.size * math.sqrt(math.prod(shape[1:]))))

    def bias(self, n: int) -> Tensor | None:
        if self.last:
            return normal(self.rng, n)
        return None if self.rng.random() < 0.4 else self.numbers(n)

    def batch_norm(self) -> None:
        c = self.shape[0]
        var = self.numbers(c).abs() if self.rng.random() < 0.7 else torch.zeros(c, dtype=F64)
        eps = float(self.rng.choice([1e-5, 1e-5, 1e-12, 1e-20, 1e-29, 1e-40]))
        mean = self.numbers(c, size=self.size if self.rng.random() < 0.5 else None)
        if self.rng.random() < 0.2:
            self.add(ops.BatchNorm(mean, var, eps=eps))
            return
        deviation = float((var + eps).min().sqrt())
        weight = self.numbers(c, size=self.level() / self.size * deviation)
        self.add(ops.BatchNorm(mean, var, weight, self.bias(c), eps))

    def divide(self) -> None:
        self.add(ops.Divide(self.numbers(*self.shape, size=self.size / self.level())))

    def shift(self) -> None:
        self.add(ops.Shift(self.numbers(*self.shape)))

    def pad(self) -> None:
        self.add(ops.Pad((self.integer(0, 1), self.integer(0, 2)), float(self.rng.choice([0.0, 0.1, self.level()]))))

    def average_pool(self) -> None:
        self._to_the_top()
        super().average_pool()

    def mean(self) -> None:
        self._to_the_top()
        super().mean()

    def _to_the_top(self) -> None:
        """Now and then, numbers whose average float32 can hold and whose sum it can not."""
        if self.rng.random() < 0.5 * self.wildness:
            self.add(ops.Scale(self.numbers(1, size=1.5e38 / self.size)))

    def twice(self) -> None:
        signs = [1.0, 0.5]
        if self.rng.random() < self.wildness:
            signs = [min(self.level() / self.size, LARGEST), -min(self.level() / self.size / 3, LARGEST)]
        self.add(ops.Add(tuple(signs)), self.at, self.at)

    def activation(self, name: str) -> None:
        op = ACTIVATIONS[name]
        wild = bool(self.rng.random() < self.wildness)
        if isinstance(op, ops.LeakyReLU) and wild:
            shape = (self.shape[0], *[1] * (len(self.shape) - 1))
            aim = self.level() / self.size
            slopes = self.numbers(*shape, size=aim)
            op = ops.LeakyReLU(slopes if self.rng.random() < 0.5 else float(np.clip(-0.1 * aim, -LARGEST, LARGEST)))
        if isinstance(op, ops.Clip) and wild:
            ends = sorted([-self.level(), float(self.rng.choice([-1, 1])) * self.level() / 3])
            op = ops.Clip(*ends) if ends[0] < ends[1] else op
        if isinstance(op, ops.ELU) and wild:
            op = ops.ELU(self.level())
        if isinstance(op, ops.Softplus) and wild:
            op = ops.Softplus(self.level())
        self.add(op)

    def network(self, outputs: int | None) -> Network:
        self.flatten()
        self.last = True
        self.linear(outputs or 3)
        return self.graph.network(self.at, decision=str(self.rng.choice(["max", "min"])))


@dataclass(frozen=True)
class Case:
    net: Network
    lower: Tensor  # `n`, float64
    upper: Tensor
    rng: np.random.Generator


@st.composite
def extreme_cases(draw: Callable) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed of the numbers"))
    builder = Extremes(rng, draw(st.sampled_from(SHAPES)), draw(st.sampled_from([0.1, 0.3, 0.3, 1.0])))
    activation = st.sampled_from([None, "relu", *ACTIVATIONS])
    for kind, name in draw(st.lists(st.tuples(st.sampled_from(BLOCKS), activation), min_size=1, max_size=4)):
        builder.block(kind)
        if name is not None:
            builder.activation(name)
    net = builder.network(draw(st.integers(2, 4)))
    centre = builder.points[0].flatten()
    reach = draw(st.sampled_from([0.0, 1e-7, 1e-4, 1e-2])) * centre.abs()
    return Case(net, centre - reach, centre + reach, rng)


def float32_points(case: Case, count: int) -> Tensor:
    """Float32 numbers of the region: corners, the centre and points in between."""
    low, high = case.lower.float(), case.upper.float()
    low = torch.where(low.double() < case.lower, torch.nextafter(low, torch.full_like(low, torch.inf)), low)
    high = torch.where(high.double() > case.upper, torch.nextafter(high, torch.full_like(high, -torch.inf)), high)
    high = torch.maximum(low, high)
    share = torch.from_numpy(case.rng.random((count, len(low))))
    share[: count // 2] = share[: count // 2].round()
    inside = (low.double() + share * (high.double() - low.double())).float()
    return torch.minimum(torch.maximum(inside, low), high).reshape(-1, *case.net.input_shape)


def runs(case: Case, x: Tensor) -> list[tuple[str, list[Tensor]]]:
    """All nodes' values in float32, as torch runs them with and without flushing and as other machines might."""
    net = case.net.cast(F32)
    found = []
    with torch.backends.nnpack.flags(enabled=False):  # which would take Winograd
        for flush in (False, True):
            with flushing(flush):
                found.append((f"torch, flushing {flush}", net.values(x)))
    found += [(f"machine, {flush}", Machine(case.rng, flush).values(net, x)) for flush in FLUSHING]
    return found


def test_this_processor_flushes() -> None:
    small = numbers(1e-39)
    with flushing():
        assert float(small * 1e30) == 0 and float(numbers(1e-30) * 1e-9) == 0
    assert float(small * 1e30) > 0


def outcome(case: Case, parallel: bool, in_onnx: bool = True) -> str:
    """What is claimed of the case; asserts that every run in float32 keeps to it."""
    net64, area = case.net.cast(F64), Stated(case.lower[None], case.upper[None])
    label = net64.decide(net64(((case.lower + case.upper) / 2).reshape(1, *net64.input_shape)))
    task = label_stays(label, net64.n_outputs, net64.decision).cast(F64, "cpu")
    hints = Hints(parallel)
    try:
        proved = prove(case.net, area, task.rows, task.offset, task.group, hints, deployed="float32")[0]
    except UnsupportedError:
        return "refused"
    bounds = StrictBounds(net64, area, parallel, Float32Noise(net64))
    if bool(bounds.overflowed):
        assert bool((proved == -torch.inf).all())
        return "may overflow"
    x = float32_points(case, 12)
    for name, values in runs(case, x):
        for node, value, low, high in zip(case.net.nodes, values, bounds.lower, bounds.upper):
            wide = value.double()
            assert bool(torch.isfinite(wide).all()), (name, node.name, node.op)
            assert bool(((wide >= low) & (wide <= high)).all()), (name, node.name, node.op)
        assert bool((task.margins(values[-1].double()) >= proved).all()), name
        if bool((proved > 0).all()):
            assert bool((net64.decide(values[-1]) == label).all()), name
    if not bool((proved > 0).all()):
        return "bounded"
    for flush in (False, True) if in_onnx else ():
        z = in_onnxruntime(case.net, x, flush)
        assert bool(torch.isfinite(z).all()) and bool((net64.decide(z) == label).all()), flush
    return "proved"


def test_no_run_in_float32_leaves_its_bounds_or_the_proved_label() -> None:
    """Every value of every node is a number within its bounds, unless nothing is claimed of that input."""
    seen: Counter[str] = Counter()

    @cases(4.0)
    @given(extreme_cases(), st.booleans(), st.sampled_from([True, False, False]))
    def look(case: Case, parallel: bool, in_onnx: bool) -> None:
        seen[outcome(case, parallel, in_onnx)] += 1

    look()
    print(dict(seen))
    assert seen["proved"] > 0.4 * seen.total() and seen["may overflow"] > 0.02 * seen.total()


# ---------------------------------------------------------------------------------------------------------------
# Small networks that are right in real arithmetic, and wrong as executed


def row(*values: float) -> Tensor:
    return numbers(*values)[None]


def above(factor: float, threshold: float) -> ops.Linear:
    """Class 0 as long as `factor * x` is above the threshold."""
    return ops.Linear(numbers(factor, 0.0)[:, None], numbers(0.0, threshold))


STEADY = ops.Linear(numbers(0.1, 0.0)[:, None], numbers(1.0, 0.0))  # class 0 for all numbers above -10
CANCELLING = [ops.Linear(numbers(3e38, 3e38)[:, None], None), ops.Linear(row(1.0, -1.0))]  # inf - inf beyond 1.13
PADDED = [ops.Reshape((1, 1)), ops.Pad((1, 1), 1.5e38)]
SATURATING = {name: ACTIVATIONS[name] for name in ("tanh", "sigmoid", "hardtanh", "arctan", "relu", "elu", "softplus")}
SATURATING["max pool"] = ops.MaxPool((1,), (1,))

FOOLED: dict[str, tuple[list[ops.Operation], list[float]]] = {
    "scale": ([ops.Scale(numbers(1e-39)), above(1e38, 0.05)], [1.0]),
    "weight": ([ops.Linear(row(1e-39)), above(1e38, 0.05)], [1.0]),
    "bias": ([ops.Linear(row(0.0), numbers(1e-39)), above(1e38, 0.05)], [1.0]),
    "shift": ([ops.Shift(numbers(1e-39)), above(1e38, 0.05)], [0.0]),
    "kernel": (
        [ops.Reshape((1, 1)), ops.Conv(numbers(1e-39)[None, None]), ops.Reshape((1,)), above(1e38, 0.05)],
        [1.0],
    ),
    "input": ([above(1e38, 0.05)], [1e-39]),
    "input divided": ([ops.Divide(numbers(1e-25)), above(1e13, 0.05)], [1e-39]),
    "batch norm's weight": (
        [ops.BatchNorm(numbers(-0.4), numbers(0.0), numbers(1e-39), numbers(0.0), 1e-20), above(1e30, 0.5)],
        [1.0],
    ),
    "batch norm's mean": (
        [ops.BatchNorm(numbers(-1e-39), numbers(0.0), numbers(1e28), eps=1e-20), above(1, 0.05)],
        [0],
    ),
    "batch norm's product": (
        [ops.BatchNorm(numbers(0.0), numbers(1e20), numbers(1e38), eps=1e-5), above(1, 0.005)],
        [1e-30],
    ),
    "batch norm's factor": ([ops.BatchNorm(numbers(0.0), numbers(0.0), numbers(1e30), eps=1e-20), STEADY], [0.0]),
    "slope": ([ops.LeakyReLU(1e-40), above(-100, 0.5)], [-1e38]),
    "slopes": ([ops.LeakyReLU(numbers(1e-40)), above(-100, 0.5)], [-1e38]),
    "sign": ([ops.Add((1e-40,)), above(1, 0.005)], [1e38]),
    "sign that float32 does not have": ([ops.Add((1e-46,)), ops.Scale(numbers(1e10)), above(1, 0.005)], [1e36]),
    "average": (
        [*PADDED, ops.AvgPool((3,), (3,)), ops.Reshape((1,)), ops.Scale(numbers(1e-38)), above(-1.0, -2.0)],
        [1.5e38],
    ),
    "clip": ([ops.Clip(1e-39, 1.0), above(1e38, 0.05)], [0.0]),
    "alpha": ([ops.ELU(1e-39), above(-1e38, 0.05)], [-5.0]),
    "max pool": ([ops.Reshape((1, 2)), ops.MaxPool((2,), (2,)), ops.Reshape((1,)), above(1e38, 0.5)], [-1e-38, 1e-38]),
    "outputs": ([ops.Linear(numbers(0.0, 1e-40)[:, None])], [1.0]),
    "outputs read": ([ops.Reshape((2,))], [0.0, 1e-40]),
    "divisor": ([ops.Divide(numbers(1e-39)), ops.Sigmoid(), STEADY], [1e-39]),
    "huge divisor": ([ops.Divide(numbers(3e38)), above(1, 0.2)], [1e38]),
    "variance": ([ops.BatchNorm(numbers(0.0), numbers(1e-39), numbers(1e-20), eps=0.0), ops.Tanh(), STEADY], [0.0]),
    **{
        f"cancelling, {name}": ([*CANCELLING, ops.Reshape((1, 1)), op, ops.Reshape((1,)), ops.Clip(), STEADY], [2.0])
        for name, op in SATURATING.items()
    },
}


def margins_at(net: Network, x: Tensor, deployed: str | None) -> Tensor:
    """Of the label in real arithmetic, at the point alone; minus infinity where the network is refused."""
    net64, wide = net.cast(F64), x.double()
    label = net64.decide(net64(wide))
    task = label_stays(label, net.n_outputs).cast(F64, "cpu")
    try:
        area = Stated(wide.flatten(1), wide.flatten(1))
        return prove(net, area, task.rows, task.offset, task.group, deployed=deployed).amin(1)
    except UnsupportedError:
        return torch.full((len(x),), -torch.inf, dtype=F64)


@pytest.mark.parametrize("name", FOOLED)
def test_what_float32_gets_wrong_is_not_proved(name: str) -> None:
    operations, point = FOOLED[name]
    net, x = Network.chain((len(point),), operations), row(*point)
    assert float(margins_at(net, x, None)) > 0
    assert float(margins_at(net, x, "float32")) <= 0
    case = Case(net, x[0].double(), x[0].double(), np.random.default_rng(0))
    label = net.decide(net(x.double()))
    outputs = torch.cat([values[-1] for _ in range(20) for _, values in runs(case, x)])
    with flushing():
        decided = outputs.argmax(1)
    assert bool(((decided != label) | outputs.isnan().any(1)).any()), "float32 gets it right: this shows nothing"


@pytest.mark.parametrize("name", SATURATING)
def test_nothing_is_certified_behind_an_overflow(name: str) -> None:
    operations, point = FOOLED[f"cancelling, {name}"]
    net, x = Network.chain((1,), operations), row(*point)
    assert bool(net(x).isnan().any())
    assert bool(in_onnxruntime(net, x).isnan().any()) or name == "max pool"  # which gives float32's lowest number there
    certs = certify(net, x, deployed="float32", max_eps=0.1, precision="float64")
    assert certs.status == ("not_certified",)
    found = verify(net, x, x, deployed="float32")
    assert not found and bool((found.margins == -torch.inf).all())
    real = certify(net, x, max_eps=0.1, precision="float64")
    assert real.status == ("certified",) and check(real)
    assert not check(real, deployed="float32")  # proved in real arithmetic, it cannot be passed off as more


def test_a_flushed_batch_norm_is_not_certified_and_a_flushed_divisor_is_refused() -> None:
    operations, point = FOOLED["batch norm's weight"]
    net = Network.chain((1,), operations)
    with flushing():
        assert int(net.cast(F32).values(row(*point))[-1].argmax()) == 1
    assert certify(net, row(*point), max_eps=0.01).labels.tolist() == [0]
    assert certify(net, row(*point), deployed="float32", max_eps=0.01).status == ("not_certified",)
    operations, point = FOOLED["divisor"]
    net = Network.chain((1,), operations)
    with pytest.raises(UnsupportedError, match="divide_1: divisor"):
        certify(net, row(*point), deployed="float32", max_eps=1e-40)
    with pytest.raises(UnsupportedError, match="divide_1: divisor"):
        verify(net, row(*point), row(*point), deployed="float32")


CLOSED: dict[str, tuple[list[ops.Operation], list[float]]] = {
    "input": ([ops.Scale(numbers(1e-38)), STEADY], [2e38]),
    "cube": ([ops.GELU(tanh=True), ops.Clip(), STEADY], [1e13]),
    "product with beta": ([ops.Softplus(1e20), ops.Clip(), STEADY], [1e20]),
    "slope not taken": ([ops.LeakyReLU(1e30), ops.Clip(), STEADY], [1e10]),
    "weight before the deviation": (
        [ops.BatchNorm(numbers(0.0), numbers(1e20), numbers(1e10)), ops.Clip(), STEADY],
        [1e30],
    ),
    "padding": ([ops.Pad((0, 1), 3e38), ops.Slice(0, 0, 1), STEADY], [1.0]),
}


@pytest.mark.parametrize("name", CLOSED)
def test_what_may_overflow_in_one_formula_is_not_proved(name: str) -> None:
    operations, point = CLOSED[name]
    net = Network.chain((len(point),), operations)
    assert float(margins_at(net, row(*point), None)) > 0
    assert float(margins_at(net, row(*point), "float32")) == -torch.inf


def test_an_overflow_on_one_path_is_not_forgotten_where_paths_meet() -> None:
    graph = Graph((1,))
    wild = graph.add(ops.Tanh(), graph.add(CANCELLING[1], graph.add(CANCELLING[0], 0)))
    calm = graph.add(ops.ReLU(), 0)
    ends = {
        "concat": graph.add(ops.Linear(row(0.0, 1.0)), graph.add(ops.Concat(), wild, calm)),
        "add": graph.add(ops.Add((0.0, 1.0)), wild, calm),
    }
    for end in ends.values():
        net = graph.network(graph.add(STEADY, end))
        assert bool(net(row(2.0)).isnan().any())
        assert float(margins_at(net, row(2.0), None)) > 0
        assert float(margins_at(net, row(2.0), "float32")) == -torch.inf


def test_one_input_that_overflows_takes_nothing_from_the_others() -> None:
    rng = np.random.default_rng(0)
    net = mlp(rng, [3, 8, 8, 3]).cast(F32)
    x = torch.from_numpy(rng.standard_normal((3, 3))).float()
    x[1] = 1.5e38
    alone = torch.cat([margins_at(net, x[b : b + 1], "float32") for b in range(3)])
    together = margins_at(net, x, "float32")
    assert together[1] == -torch.inf == alone[1]
    assert torch.allclose(alone[[0, 2]], together[[0, 2]], rtol=1e-12) and bool((together[[0, 2]] > 0).all())


# ---------------------------------------------------------------------------------------------------------------
# What is refused

EXAMPLES: list[tuple[ops.Operation, tuple[int, ...]]] = [
    (ops.Linear(torch.ones(2, 3), torch.ones(2)), (3,)),
    (ops.Conv(torch.ones(1, 1, 2), torch.ones(1)), (1, 3)),
    (ops.BatchNorm(*(torch.ones(2) for _ in range(4))), (2, 3)),
    (ops.Scale(torch.ones(2)), (2,)),
    (ops.Divide(torch.ones(2)), (2,)),
    (ops.Shift(torch.ones(2)), (2,)),
    (ops.Add((1.0,)), (2,)),
    (ops.Concat(0), (2,)),
    (ops.Reshape((2, 1)), (2,)),
    (ops.Transpose((1, 0)), (2, 3)),
    (ops.Slice(0, 0, 1), (2,)),
    (ops.Pad((1, 1)), (2,)),
    (ops.Mean((0,)), (2, 3)),
    (ops.AvgPool((2,), (2,)), (1, 4)),
    (ops.MaxPool((2,), (2,)), (1, 4)),
    *((ACTIVATIONS[name], (2,)) for name in ACTIVATIONS),
]


def numeric_fields(op: ops.Operation) -> list[str]:
    values = {f.name: getattr(op, f.name) for f in fields(op)}
    return [k for k, v in values.items() if v is not None and not isinstance(v, bool)]


def with_field(op: ops.Operation, field: str, bad: float) -> ops.Operation:
    """A copy with one number in one field changed behind the back of its validation."""
    value = getattr(op, field)
    if isinstance(value, Tensor):
        value = value.double()
        value.view(-1)[-1] = bad
    else:
        value = (*value[:-1], bad) if isinstance(value, tuple) else bad
    changed = replace(op)
    object.__setattr__(changed, field, value)
    return changed


def network_of(op: ops.Operation, shape: tuple[int, ...]) -> Network:
    """A network with this very operation, whatever its fields."""
    good = next(example for example, _ in EXAMPLES if type(example) is type(op))
    net = Network.chain(shape, [good])
    object.__setattr__(net.nodes[1], "op", op)
    return net


def test_every_number_of_every_operation_is_looked_at() -> None:
    assert {type(op) for op, _ in EXAMPLES} == set(ANALYSES)

    @cases(8.0)
    @given(st.sampled_from(EXAMPLES), st.sampled_from([1e39, -1e39, 1e300, math.nan, math.inf, -math.inf]), st.data())
    def look(example: tuple[ops.Operation, tuple[int, ...]], bad: float, data: st.DataObject) -> None:
        op, shape = example
        refuse_unfit(network_of(op, shape))
        if not numeric_fields(op):
            return
        field = data.draw(st.sampled_from(numeric_fields(op)))
        net = network_of(with_field(op, field, bad), shape)
        if isinstance(op, ops.Clip) and math.isinf(bad):
            refuse_unfit(net)  # either end of a clip may be open
            return
        with pytest.raises(UnsupportedError, match=f"{net.nodes[1].name}: {field}"):
            refuse_unfit(net)

    look()


@pytest.mark.parametrize("bad", [1e-39, 1e-45, 1e-32, 1e31, 3e38])
def test_what_divides_is_far_from_the_ends_of_the_range(bad: float) -> None:
    for op, field, words in (
        (ops.Divide(torch.ones(2)), "divisor", "divisor"),
        (ops.Softplus(1.0), "beta", "beta"),
        (ops.BatchNorm(torch.zeros(2), torch.ones(2), eps=0.0), "var", "the variance plus eps"),
    ):
        with pytest.raises(UnsupportedError, match=f"_1: {words} .* divides"):
            refuse_unfit(network_of(with_field(op, field, bad), (2, 3)[: 1 + (field == "var")]))


def test_a_negative_eps_which_may_cancel_the_variance_is_refused() -> None:
    op = with_field(ops.BatchNorm(torch.zeros(2), torch.full((2,), 1e-5)), "eps", -9.99999e-6)
    with pytest.raises(UnsupportedError, match="batchnorm_1: eps"):
        refuse_unfit(network_of(op, (2, 3)))


def test_subclasses_and_what_executes_nothing_are_refused() -> None:
    for op, shape in EXAMPLES:
        own = type("Own", (type(op),), {})
        changed = object.__new__(own)
        for field in fields(op):
            object.__setattr__(changed, field.name, getattr(op, field.name))
        net = network_of(op, shape)
        object.__setattr__(net.nodes[1], "op", changed)
        with pytest.raises(UnsupportedError, match="Own has no analysis"):
            refuse_unfit(net)
    with pytest.raises(UnsupportedError, match="no operations"):
        refuse_unfit(Network.chain((2,), []))


# ---------------------------------------------------------------------------------------------------------------
# What it costs


def ordinary() -> dict[str, tuple[Network, tuple[int, ...]]]:
    rng = np.random.default_rng(1)
    conv = [
        ops.Conv(normal(rng, 4, 1, 3, 3) / 3, normal(rng, 4) * 0.1, (1,), (1,)),
        ops.BatchNorm(normal(rng, 4) * 0.1, normal(rng, 4).abs() + 0.5, normal(rng, 4), normal(rng, 4) * 0.1),
        ops.ReLU(),
        ops.MaxPool((2, 2), (2, 2)),
        ops.Conv(normal(rng, 6, 4, 3, 3) / 6, normal(rng, 6) * 0.1),
        ops.LeakyReLU(0.1),
        ops.Reshape((-1,)),
        ops.Linear(normal(rng, 5, 24) / 3, normal(rng, 5)),
    ]
    return {
        "relu": (mlp(rng, [12, 40, 40, 5]), (12,)),
        "tanh": (mlp(rng, [12, 40, 5], ops.Tanh()), (12,)),
        "gelu": (mlp(rng, [12, 40, 5], ops.GELU()), (12,)),
        "conv": (Network.chain((1, 8, 8), conv), (1, 8, 8)),
    }


@pytest.mark.parametrize("name", ["relu", "tanh", "gelu", "conv"])
def test_ordinary_networks_lose_less_than_one_percent(name: str) -> None:
    net, shape = ordinary()[name]
    net = net.cast(F32)
    x = torch.from_numpy(np.random.default_rng(2).standard_normal((8, *shape))).float()
    plain, executed = certify(net, x, delta=0.0), certify(net, x, delta=0.0, deployed="float32")
    assert set(plain.status) == {"certified"} == set(executed.status)
    assert bool((executed.geomean >= 0.99 * plain.geomean).all()), (executed.geomean / plain.geomean).min()

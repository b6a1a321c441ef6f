"""The same answers wherever we are called from, however the numbers lie in memory, and torch left as it was."""

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import elbowroom as er
from elbowroom.certificates.result import Certificates
from elbowroom.machine.torch_modes import CUDNN_OFF, DEFAULT_DTYPE, Held, own_modes
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.proof.kernel import prove as proof
from elbowroom.search.bounds.propagate import margins_of
from support import cases

# --- where we are called from


@contextlib.contextmanager
def setting(read: Any, write: Any, value: Any) -> Iterator[Any]:
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


def default_dtype(dtype: torch.dtype) -> Any:
    return setting(torch.get_default_dtype, torch.set_default_dtype, dtype)


def product_precision(value: Any) -> Any:
    return setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, value)


CONTEXTS = {
    "plain": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "float64": lambda: default_dtype(torch.float64),
    "float16": lambda: default_dtype(torch.float16),
    "bfloat16": lambda: default_dtype(torch.bfloat16),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "meta device": lambda: torch.device("meta"),
    "medium products": lambda: product_precision("medium"),
}


def state() -> Any:
    """Torch's settings that are anybody's business."""
    return (
        torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), torch.get_float32_matmul_precision(),
        torch.backends.cudnn.enabled, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
    )  # fmt: skip


# --- how numbers lie in memory


def read_only(a: Any) -> Any:
    a = a.copy()
    a.flags.writeable = False
    return a


def made_in_inference_mode(a: Any) -> Any:
    with torch.inference_mode():
        return torch.from_numpy(a.copy())


LAYOUTS = {
    "plain": lambda a: a,
    "backwards": lambda a: np.flip(np.flip(a).copy()),
    "read-only": read_only,
    "Fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "tensor": torch.from_numpy,
    "transposed tensor": lambda a: torch.from_numpy(np.ascontiguousarray(a.T)).permute(*range(a.ndim)[::-1]),
    "with gradient": lambda a: torch.from_numpy(a).requires_grad_(a.dtype.kind == "f"),
    "inference tensor": made_in_inference_mode,
    "list": lambda a: a.tolist(),
}
DTYPES = [np.float64, np.float32, np.float16, np.int64, np.int32, np.uint16, np.int8]


def module() -> Any:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).float()


MODULE, SHAPE = module(), (1, 4, 4)
NET = er.load(MODULE, input_shape=SHAPE)
X = np.random.default_rng(0).integers(0, 4, size=(2, *SHAPE)).astype(np.float64)  # every type holds these
LABELS = NET(X).argmax(1).numpy()
OPTIONS = {
    "frozen": np.arange(16).reshape(SHAPE) == 3,
    "max_eps": np.full(SHAPE, 2.0),
    "importance": np.full(SHAPE, 1.0),
}


def numbers(certs: Certificates) -> Any:
    return [certs.lower, certs.upper, certs.eps, certs.margins, certs.uniform, certs.ratio]


def by_certify(net: Network, x: Tensor, given: Any) -> Any:
    options = {name: given(value) for name, value in OPTIONS.items()}
    domain = (given(np.full(SHAPE, -8.0)), given(np.full(SHAPE, 8.0)))
    certs = er.certify(net, x, given(LABELS), domain=domain, **options)
    assert set(certs.status) == {"certified"}
    return numbers(certs)


def by_ellipsoid(net: Network, x: Tensor, given: Any) -> Any:
    """In float64, which needs no copy of what was given, and with tensors in the region and the specification."""
    basis = given(np.eye(16)[::-1].copy())
    spec = er.linear_specification(given(np.array([[1.0, -1.0, 0.0]])), given(np.array([50.0])))
    certs = er.certify(net, x, region=er.Oblique(basis, er.Ellipsoid()), spec=spec, precision="float64")
    assert set(certs.status) == {"certified"}
    return [certs.eps, certs.margins]


def by_lagrangian(net: Network, x: Tensor, given: Any) -> Any:
    certs = er.certify(net, x, solver=er.AugmentedLagrangian(steps=3), max_eps=given(np.full(SHAPE, 2.0)))
    assert set(certs.status) == {"certified"}
    return numbers(certs)


def by_check(net: Network, x: Tensor, given: Any) -> Any:
    report = er.check(er.certify(net, x), net)
    assert bool(report)
    return [report.passed, report.margins]


def by_verify(net: Network, x: Tensor, given: Any) -> Any:
    found = er.verify(net, x, x, given(LABELS))
    assert found
    return [found.margins]


def by_bounds(net: Network, x: Tensor, given: Any) -> Any:
    """In float64: others are computed in their own precision."""
    low = x.double() if isinstance(x, torch.Tensor) else x if np.asarray(x).itemsize == 8 else np.asarray(x, np.float64)
    found = er.bounds(net, low, given(X + 0.25))
    return [found.lower.detach(), found.upper.detach()]


def by_load(net: Network, x: Tensor, given: Any) -> Any:
    again = er.load(MODULE, input_shape=SHAPE, mean=given(np.zeros(1)), std=given(np.ones(1)))
    return [er.verify(again, x, x).margins]


ENTRIES = [by_certify, by_ellipsoid, by_lagrangian, by_check, by_verify, by_bounds, by_load]


@functools.cache
def plainly(entry: Any) -> Any:
    return entry(NET, X, lambda a: a)


@given(
    entry=st.sampled_from(ENTRIES), context=st.sampled_from(list(CONTEXTS)), layout=st.sampled_from(list(LAYOUTS)),
    dtype=st.sampled_from(DTYPES), fresh=st.booleans(),
)  # fmt: skip
@cases(2)
def test_answers_do_not_depend_on_the_callers_surroundings(
    entry: Any, context: str, layout: str, dtype: torch.dtype, fresh: bool
) -> None:
    def lay(a: Any) -> Any:
        return LAYOUTS[layout](a if a.dtype.kind == "b" or a.dtype == np.int64 else np.array(a, np.float64))

    net = er.load(NET) if fresh else NET
    x = LAYOUTS[layout](X.astype(dtype))
    expected, before = plainly(entry), state()
    with CONTEXTS[context]():
        inside = state()
        found = entry(net, x, lay)
        assert state() == inside
    assert state() == before
    for one, other in zip(found, expected):
        assert not one.is_inference() and not one.requires_grad
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("first", ["verify", "call", "bounds"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_what_a_network_keeps_serves_later_callers(first: str, precision: str) -> None:
    """Parameters cast in inference mode are no inference tensors, or certify would fail ever after."""
    net, x = er.load(MODULE, input_shape=SHAPE), torch.from_numpy(X).to(getattr(torch, precision))
    with torch.inference_mode():
        er.verify(net, x, x) if first == "verify" else net(x) if first == "call" else er.bounds(net, x, x)
    certs = er.certify(net, x, precision=precision)
    assert set(certs.status) == {"certified"}


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_network_made_in_inference_mode(precision: str) -> None:
    with torch.inference_mode():
        net = er.load(module(), input_shape=SHAPE)
        by_hand = er.Network.chain((2,), [ops.Linear(torch.eye(2, dtype=getattr(torch, precision))), ops.ReLU()])
    torch.testing.assert_close(er.certify(net, X).eps, er.certify(NET, X).eps, rtol=0, atol=0)
    assert er.certify(by_hand, [[2.0, 1.0]], precision=precision).status == ("certified",)


def test_bounds_follow_the_callers_wish_for_gradients() -> None:
    x = torch.from_numpy(X).requires_grad_()
    assert er.bounds(NET, x, x + 1).lower.requires_grad
    with torch.no_grad():
        assert not er.bounds(NET, x, x + 1).lower.requires_grad
    with torch.inference_mode():
        assert not er.bounds(NET, x, x + 1).lower.requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_bounds_of_half_precision_inputs_are_computed_in_float32(dtype: torch.dtype) -> None:
    low, high = (torch.from_numpy(X + d).to(dtype) for d in (0, 1))
    short, plain = er.bounds(NET, low, high), er.bounds(NET, low.float(), high.float())
    sets = er.bounds(NET, er.InputSet.box(low, high))
    assert short.lower.dtype == sets.lower.dtype == torch.float32
    for found in (short, sets):
        assert torch.equal(found.lower, plain.lower) and torch.equal(found.upper, plain.upper)


class MakesItsOwn(nn.Module):
    """What it computes depends on the caller's default type."""

    def forward(self, x: Tensor) -> Any:
        return x * torch.tensor([0.1, 0.2])


def test_a_module_is_read_as_it_runs_for_its_user() -> None:
    with default_dtype(torch.float64):
        net = er.load(MakesItsOwn(), input_shape=(2,))
        x = torch.tensor([[1.0, 1.0]])
        assert torch.equal(net(x), MakesItsOwn()(x)) and float(net(x)[0, 0]) == 0.1
    assert float(er.load(MakesItsOwn(), input_shape=(2,))(torch.ones(1, 2).double())[0, 0]) == float(np.float32(0.1))


# --- float32 is float32, and cuDNN is for the search alone


def recorded() -> Any:
    return {
        "enabled": torch.backends.cudnn.enabled, "allow_tf32": torch.backends.cudnn.allow_tf32,
        "benchmark": torch.backends.cudnn.benchmark, "deterministic": torch.backends.cudnn.deterministic,
        "products": torch.get_float32_matmul_precision(), "matmul": torch.backends.cuda.matmul.allow_tf32,
    }  # fmt: skip


@pytest.mark.parametrize("flags", [(True, True, False), (False, False, True)])
def test_cudnn_is_on_in_the_search_and_off_in_the_proof_and_tf32_is_off(
    monkeypatch: pytest.MonkeyPatch, flags: tuple[bool, bool, bool]
) -> None:
    """Nothing else of the caller's flags changes, not even inside; afterwards nothing at all has."""
    seen: dict[str, list] = {"search": [], "proof": [], "bounds": []}
    cudnn, plain = torch.backends.cudnn, margins_of("adaptive")

    def bound(*given: Any) -> Any:
        seen["search"].append(recorded())
        return plain(*given)

    class Strict(proof.StrictBounds):  # type: ignore[name-defined]
        def margins(self, *given: Any, **more: Any) -> Any:
            seen["proof"].append(recorded())
            return super().margins(*given, **more)

    class Spy(sys.modules["elbowroom.search.bounds.api"].Propagation):
        def __init__(self, *given: Any, **more: Any) -> None:
            seen["bounds"].append(recorded())
            super().__init__(*given, **more)

    monkeypatch.setattr(proof, "StrictBounds", Strict)
    monkeypatch.setattr(sys.modules["elbowroom.search.bounds.api"], "Propagation", Spy)
    names = ("enabled", "benchmark", "deterministic")
    before = state()
    with contextlib.ExitStack() as stack:
        for name, value in zip(names, (True, *flags[1:])):
            stack.enter_context(
                setting(lambda name=name: getattr(cudnn, name), lambda v, name=name: setattr(cudnn, name, v), value)
            )
        if flags[0]:
            stack.enter_context(product_precision("high"))
        inside = state()
        er.certify(NET, X, bounds=bound)
        er.verify(NET, X, X)
        er.bounds(NET, X, X)
        assert state() == inside
    assert state() == before
    for kind, enabled in (("search", True), ("proof", False), ("bounds", True)):
        exact = {"allow_tf32": False, "products": "highest", "matmul": False}
        expected = {"enabled": enabled, "benchmark": flags[1], "deterministic": flags[2], **exact}
        assert seen[kind] and all(one == expected for one in seen[kind])


NEWER = {
    "all": ("", "tf32"), "products": ("cuda.matmul", "tf32"), "convolutions": ("cudnn.conv", "ieee"),
    "products on the CPU": ("mkldnn.matmul", "bf16"), "convolutions on the CPU": ("mkldnn.conv", "bf16"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(NEWER))
def test_newer_settings_of_precision(name: str) -> None:
    """After which torch refuses to read the older ones."""
    if not hasattr(torch.backends, "fp32_precision"):
        pytest.skip("this torch does not have them")
    place, value = NEWER[name]
    parts = ("cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv")

    def owner(place: str) -> Any:
        found = torch.backends
        for part in place.split(".") if place else ():
            found = getattr(found, part)
        return found

    def read() -> Any:
        return {part: owner(part).fp32_precision for part in parts}

    before = read()
    with setting(lambda: owner(place).fp32_precision, lambda v: setattr(owner(place), "fp32_precision", v), value):
        inside = read()
        with own_modes():
            assert set(read().values()) <= {"ieee", "none"}
        certs = er.certify(NET, X)
        assert read() == inside
    for part, then in before.items():  # (where the general one was followed, its value has been written out)
        if owner(part).fp32_precision != then:
            owner(part).fp32_precision = then
    torch.testing.assert_close(certs.eps, er.certify(NET, X).eps, rtol=0, atol=0)


def test_a_setting_is_held_while_any_thread_needs_it() -> None:
    """Also where the first to come is the first to leave."""
    value = ["caller's"]
    held = Held(lambda: value[0], lambda v: value.__setitem__(0, v), "ours")
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with held.hold():
            entered.set()
            leave.wait(10)
            assert value == ["ours"]

    thread = threading.Thread(target=other)
    with held.hold():
        thread.start()
        assert entered.wait(10)
        with held.released():
            assert value == ["caller's"]
        assert value == ["ours"]
    assert value == ["ours"]
    leave.set()
    thread.join()
    assert value == ["caller's"]
    with pytest.raises(ZeroDivisionError), held.hold():
        raise ZeroDivisionError
    assert value == ["caller's"]


def test_certify_in_threads_leaves_the_defaults_alone() -> None:
    with default_dtype(torch.float64):
        before, found = state(), []
        threads = [threading.Thread(target=lambda: found.append(er.certify(NET, X).eps)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert state() == before and CUDNN_OFF._depth == DEFAULT_DTYPE._depth == 0
    assert len(found) == 3 and all(torch.equal(eps, found[0]) for eps in found)

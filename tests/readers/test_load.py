"""`load`: what stands between the user's numbers and the model's, names and notes, and which files are read how."""

from __future__ import annotations

import contextlib
import hashlib
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor, nn

from elbowroom.arguments.axes import looks_channels_last
from elbowroom.errors import ElbowroomError, InputError
from elbowroom.network import operations as ops
from elbowroom.network.file import load_network, network_hash, save_network
from elbowroom.network.graph import About, Graph, Network
from elbowroom.readers.load import load
from elbowroom.readers.reading import left_off


def linear(shape: tuple[int, ...], outputs: int = 3, decision: str = "max", about: About | None = None) -> Network:
    """A network in which every input matters differently."""
    weight = torch.randn(outputs, math.prod(shape), generator=torch.Generator().manual_seed(0))
    graph = Graph(shape)
    at = graph.add(ops.Reshape((-1,)), graph.input) if len(shape) != 1 else graph.input
    return graph.network(graph.add(ops.Tanh(), graph.add(ops.Linear(weight), at)), decision, about)


# --- what is put in front


@st.composite
def readings(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any], str]:
    """An input's shape, arguments of `load`, and whether the model has the user's layout, another, or is flat."""
    size = st.integers(1, 4)
    shape = (draw(size), *draw(st.lists(size, min_size=0, max_size=2)))
    numbers = st.floats(-3, 3).map(lambda v: float(np.float32(v)))
    arguments: dict[str, Any] = {}
    for name in ("mean", "std"):
        kind = draw(st.sampled_from(["none", "number", "channels", "array", "rows"]))
        counts = {"number": (), "channels": shape[:1], "array": shape, "rows": shape[-1:]}
        if kind in counts and not (kind == "rows" and shape[-1] == shape[0]):
            count = counts[kind]
            values = draw(st.lists(numbers, min_size=math.prod(count), max_size=math.prod(count)))
            value = np.array(values, np.float32).reshape(count)
            arguments[name] = value if name == "mean" else np.abs(value) + np.float32(0.25)
    if draw(st.booleans()):
        arguments["scale"] = draw(st.sampled_from([1 / 255, 0.5, 255, -1, 0.1, 3.0, np.float32(1.5)]))
    models = ["own", "flat"] if len(shape) == 1 else ["own", "flat", "channels last", "flat, channels last"]
    return shape, arguments, draw(st.sampled_from(models))


@given(readings())
def test_load_gives_the_model_of_the_prepared_input(reading: tuple[tuple[int, ...], dict[str, Any], str]) -> None:
    shape, arguments, kind = reading
    last = "channels last" in kind
    own = (*shape[1:], shape[0]) if last else shape
    model = linear((math.prod(shape),) if "flat" in kind else own)
    try:
        net = load(model, shape, layout="NHWC" if last else "NCHW", **arguments)
    except InputError as error:  # sizes that leave open where the channels are
        assert "not plain at which end" in str(error) and (len(set(shape)) == 1 or looks_channels_last(shape))
        return
    assert net.input_shape == shape
    x = torch.randn(5, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def broadcast(name: str, default: float) -> Tensor:
        value = torch.as_tensor(arguments.get(name, default)).double()
        if value.dim() == 1 and len(value) == shape[0]:
            value = value.reshape(-1, *[1] * (len(shape) - 1))
        return value

    scale = arguments.get("scale", 1.0)
    y = x / {1 / 255: 255, 0.1: 10}[scale] if scale in (1 / 255, 0.1) else x * float(scale)
    y = (y - broadcast("mean", 0.0)) / broadcast("std", 1.0)
    if last:
        y = y.movedim(1, -1)
    torch.testing.assert_close(net(x), model(y.reshape(5, *model.input_shape)), rtol=1e-9, atol=1e-9)


def test_normalisation_of_a_module() -> None:
    module = nn.Sequential(nn.Conv2d(3, 2, 2), nn.ReLU(), nn.Flatten())
    x = 255 * torch.rand(8, 3, 4, 4, dtype=torch.float64)
    mean, std = (128.0, 64.0, 96.0), np.array([64.0, 32.0, 16.0])
    raw = (x - torch.tensor(mean).reshape(3, 1, 1)) / torch.tensor(std).reshape(3, 1, 1)
    net = load(module, [3, 4, 4], mean, std, decision="min")
    assert [n.op.name for n in net.nodes[:4]] == ["Input", "Shift", "Divide", "Conv"]
    assert net.decision == "min" and net.dtype == torch.float32
    plain = load(module, (3, 4, 4))
    assert plain.decision == "max" and plain.about == About(origin=plain.about.origin)
    assert torch.equal(net(x), plain(raw))
    assert torch.equal(load(module, (3, 4, 4), mean=0.1)(x), plain(x - float(np.float32(0.1))))
    assert torch.equal(load(module, (3, 4, 4), std=np.full((1, 4), 2.0))(x), plain(x / 2))
    assert torch.equal(load(module, (3, 4, 4), mean=x[0].float())(x), plain(x - x[0].float()))
    last = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    turned = load(last, (3, 4, 4), layout="NHWC", mean=mean, scale=2)
    expected = load(last, (4, 4, 3))((2 * x - torch.tensor(mean).reshape(3, 1, 1)).movedim(1, -1))
    torch.testing.assert_close(turned(x), expected, rtol=1e-12, atol=1e-12)


def test_a_scale_of_one_over_a_whole_number_is_a_division() -> None:
    def first(scale: Any, **options: Any) -> tuple[str, float]:
        op = load(linear((2,)), scale=scale, **options).nodes[1].op
        return op.name, float(next(iter(op.tensors().values())))

    assert first(1 / 255) == ("Divide", 255)
    assert first(np.float64(1 / 128)) == ("Divide", 128)
    assert first(-0.5) == ("Divide", -2)
    assert first(1 / 255 + 1e-9) == ("Scale", float(np.float32(1 / 255 + 1e-9)))
    assert first(0.3) == ("Scale", float(np.float32(0.3)))
    assert first(1) == ("Scale", 1) and first(2.5) == ("Scale", 2.5)


def test_a_network_is_read_as_it_is() -> None:
    about = About(("a", "b", "c"), ("x", "y", "z"), ("a note",))
    for decision in ("max", "min"):
        net = linear((3,), decision=decision, about=about)
        again = load(net)
        assert network_hash(again) == network_hash(net)
        assert [n.name for n in again.nodes] == [n.name for n in net.nodes]
        assert again.about == about and again.decision == decision
    assert load(net, decision="max").decision == "max"
    one = linear((3,), 1)
    assert network_hash(load(one)) == network_hash(load(one, task="regression")) == network_hash(one)
    assert load(one, task="classification").n_outputs == 2
    with pytest.raises(InputError, match=r"inputs of shape \(4,\) do not fit the model, which takes \(3,\)"):
        load(net, (4,))


# --- the layout


def test_channels_last_is_noticed_and_noted() -> None:
    model = linear((4, 5, 3))
    net = load(model, (3, 4, 5), mean=[1.0, 2.0, 3.0])
    x = torch.randn(2, 3, 4, 5)
    expected = model((x - torch.tensor([1.0, 2.0, 3.0]).reshape(3, 1, 1)).movedim(1, -1))
    torch.testing.assert_close(net(x), expected, rtol=1e-6, atol=1e-6)
    assert "takes channels last, (4, 5, 3)" in net.about.notes[0]
    assert "are transposed for it" in load(model, (3, 4, 5), layout="NHWC").about.notes[0]
    with pytest.raises(InputError, match="read in row-major order their values would be mixed up"):
        load(model, (3, 4, 5), layout="NCHW")


def test_channels_first_is_noticed_and_noted() -> None:
    """The other way round: the user has them last."""
    names = tuple(f"{c}{h}{w}" for c in range(3) for h in range(4) for w in range(5))
    model = linear((3, 4, 5), about=About(names))
    x = torch.randn(2, 4, 5, 3)
    for options in ({}, {"layout": "NHWC"}):
        net = load(model, (4, 5, 3), mean=[1.0, 2.0, 3.0], std=[1.0, 2.0, 4.0], **options)
        expected = model(((x - torch.tensor([1.0, 2.0, 3.0])) / torch.tensor([1.0, 2.0, 4.0])).movedim(-1, 1))
        torch.testing.assert_close(net(x), expected, rtol=1e-6, atol=1e-6)
        assert net.about.features == tuple(f"{c}{h}{w}" for h in range(4) for w in range(5) for c in range(3))
    assert (
        "takes channels first, (3, 4, 5); inputs of shape (4, 5, 3) are transposed"
        in load(model, (4, 5, 3)).about.notes[0]
    )
    # Three channels, three rows: which axis is which is not to be seen from the sizes.
    own = linear((3, 3, 5))
    with pytest.raises(InputError, match=r"would be mixed up\. `layout=\"NHWC\"` transposes their axes"):
        load(own, (3, 5, 3))
    x = torch.randn(2, 3, 5, 3)
    said = load(own, (3, 5, 3), layout="NHWC", mean=[1.0, 2.0, 3.0])
    torch.testing.assert_close(said(x), own((x - torch.tensor([1.0, 2.0, 3.0])).movedim(-1, 1)))


def test_what_is_taken_for_granted_about_rows_is_noted() -> None:
    def notes(own: tuple[int, ...], shape: tuple[int, ...], **options: Any) -> str:
        return " ".join(load(linear(own), shape, **options).about.notes)

    assert "rows of 192 numbers are read as that in row-major order" in notes((3, 8, 8), (192,))
    assert "the channels of a pixel side by side" in notes((192,), (8, 8, 3))
    assert not notes((3, 8, 8), (192,), layout="NCHW") and not notes((192,), (8, 8, 3), layout="NCHW")
    assert not notes((192,), (3, 8, 8)) and not notes((1, 8, 8), (64,)) and not notes((64,), (8, 8))
    assert not notes((8, 8, 1), (1, 8, 8)) and not notes((1, 64, 1), (8, 8))


def test_layout_without_a_shape() -> None:
    model = linear((4, 5, 3), about=About(tuple(f"{h}{w}{c}" for h in range(4) for w in range(5) for c in range(3))))
    net = load(model, layout="NHWC")
    assert net.input_shape == (3, 4, 5)
    x = torch.randn(2, 3, 4, 5)
    assert torch.equal(net(x), model(x.movedim(1, -1)))
    assert net.about.features == tuple(f"{h}{w}{c}" for c in range(3) for h in range(4) for w in range(5))
    assert load(model, layout="NCHW").input_shape == (4, 5, 3)
    with pytest.raises(InputError, match=r"NHWC needs input_shape, since the model takes inputs of shape \(60,\)"):
        load(linear((60,)), layout="NHWC")


def test_a_layout_that_does_not_fit_is_refused() -> None:
    for own in ((3, 4, 5), (5, 4, 3), (12, 5), (3, 20)):
        with pytest.raises(InputError, match=r"NHWC makes inputs of shape \(4, 5, 3\) of yours, \(3, 4, 5\), but"):
            load(linear(own), (3, 4, 5), layout="NHWC")
    x = torch.randn(2, 3, 4, 5)
    for own in ((1, 4, 5, 3), (60,), (1, 60, 1)):
        net = load(linear(own), (3, 4, 5), layout="NHWC")
        assert torch.equal(net(x), linear((60,))(x.movedim(1, -1).reshape(2, 60)))


def test_one_channel_changes_no_order() -> None:
    net = load(linear((4, 5, 1)), (1, 4, 5))
    assert net.nodes[1].op.name == "Reshape" and net.about.notes == ()
    assert load(linear((6, 1)), (1, 6)).about.notes == ()


def test_two_axes_that_changed_places_are_not_guessed() -> None:
    for options in ({}, {"layout": "NCHW"}):
        with pytest.raises(InputError, match=r'layout="NHWC".*transposes their axes; .*input_shape=\(6,\)'):
            load(linear((2, 3)), (3, 2), **options)
    x = torch.randn(2, 3, 2)
    assert torch.equal(load(linear((2, 3)), (3, 2), layout="NHWC")(x), linear((2, 3))(x.transpose(1, 2)))
    assert torch.equal(load(linear((2, 3)), (6,))(x.reshape(2, 6)), linear((2, 3))(x.reshape(2, 2, 3)))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.randoms(use_true_random=False), st.data())
def test_axes_are_kept_or_refused(own: list[int], random: Any, case: st.DataObject) -> None:
    """However the user's axes stand: refused, or every value arrives at the place of its own coordinates.

    Values are 1 at one place alone, so that a model that sums them with different weights tells all places apart.
    """
    order = list(range(len(own)))
    random.shuffle(order)
    shape = [own[k] for k in order]
    for _ in range(case.draw(st.integers(0, 2), label="axes of size 1")):
        shape.insert(case.draw(st.integers(0, len(shape))), 1)
    flat = case.draw(st.sampled_from(["neither", "neither", "neither", "model", "inputs"]))
    layout = case.draw(st.sampled_from([None, None, "NHWC", "NCHW"]))
    taken = (math.prod(own),) if flat == "model" else tuple(own)
    given_shape = (math.prod(own),) if flat == "inputs" else tuple(shape)
    model = linear(taken, outputs=2)
    try:
        net = load(model, given_shape, layout=layout)
    except InputError as error:
        assert ("mixed up" in str(error) and layout != "NHWC") or "layout NHWC" in str(error)
        assert shape != own or layout == "NHWC"
        return
    x = torch.eye(math.prod(own), dtype=torch.float64).reshape(-1, *given_shape)
    if flat == "neither":
        # Axes of size 1 have no order. The others are known by their sizes, if these are all different.
        large = [n for n in given_shape if n > 1]
        if len(set(large)) == len(large):
            places = [next(k for k, n in enumerate(given_shape) if n == m) for m in own if m > 1]
            places += [k for k, n in enumerate(given_shape) if n == 1]
            proper = x.permute(0, *(k + 1 for k in places)).reshape(-1, *own)
            torch.testing.assert_close(net(x), model(proper))
    if layout is None and flat == "neither":
        told = " ".join(net.about.notes)
        if not told:
            assert [n for n in given_shape if n > 1] == [n for n in own if n > 1]  # nothing was moved
        else:  # the channels were, and rows and columns were not exchanged
            source, place = (-1, 1) if "takes channels first" in told else (1, -1)
            torch.testing.assert_close(net(x), model(x.movedim(source, place)))


# --- one output


def test_a_classifier_with_one_output_gets_two_classes() -> None:
    torch.manual_seed(0)
    logit = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    x = torch.randn(200, 3)
    for module, threshold, words in (
        (logit, 0.0, "above 0"),
        (nn.Sequential(logit, nn.Flatten(0)), 0.0, "above 0"),
        (nn.Sequential(logit, nn.Sigmoid()), 0.5, "above 1/2"),
        (nn.Sequential(logit, nn.Sigmoid(), nn.Flatten(0)), 0.5, "above 1/2"),
    ):
        net = load(module, (3,), classes=["no", "yes"])
        assert net.n_outputs == 2 and net.about.classes == ("no", "yes")
        assert f"two classes, the second where that output is {words}" in net.about.notes[0]
        assert net.about.notes[1:] == ((left_off("the sigmoid"),) if threshold else ())
        with torch.no_grad():
            assert torch.equal(net.decide(net(x)), (module(x).flatten() > threshold).long())
            torch.testing.assert_close(net(x)[:, 1], logit(x)[:, 0])
        assert not net(x)[:, 0].any()
    assert load(logit, (3,), task="regression").n_outputs == 1
    with pytest.raises(InputError, match="one output, of which the smallest cannot decide"):
        load(logit, (3,), decision="min")
    with pytest.raises(InputError, match="classes must be 2 different names, one for each output; got 1"):
        load(logit, (3,), classes=["yes"])


def test_a_network_with_one_output_can_be_turned_into_a_classifier() -> None:
    graph = Graph((2,))
    inner = graph.add(ops.Linear(torch.ones(1, 2)), graph.input)
    skip = graph.add(ops.Add((1.0, -2.0)), inner, graph.add(ops.Tanh(), inner))
    net = graph.network(graph.add(ops.Sigmoid(), graph.add(ops.Reshape((1, 1)), skip)), about=About(("a", "b")))
    two = load(net, task="classification")
    x = torch.randn(100, 2)
    assert torch.equal(two.decide(two(x)), (net(x)[:, 0] > 0.5).long())
    assert two.about.features == ("a", "b") and two.about.classes is None
    assert "Sigmoid" not in [n.op.name for n in two.nodes]


# --- names


ODD = ["mean radius", "größe/µm²", "名前", 'quo"te', "back\\slash", "line\nbreak", "tab\there", "", " ", "<b>&amp;</b>"]


def test_a_network_knows_what_it_was_read_from(tmp_path: Path) -> None:
    path = save_network(linear((2, 5)), tmp_path / "net.elbowroom")
    net = load(path, (10,), mean=np.float32(0.1), scale=0.5)
    origin = net.about.origin
    assert origin is not None and origin.model == "net.elbowroom"
    assert origin.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    # Numbers are kept exactly, so that reading again gives the same network.
    assert network_hash(load(path, **origin.options)) == network_hash(net)
    assert load_network(save_network(net, tmp_path / "again.elbowroom")).about == net.about
    assert load(net).about.origin == origin and load(net, std=2.0).about.origin is None
    assert linear((2, 5)).about.origin is None


def test_names_and_notes_are_kept_in_files(tmp_path: Path) -> None:
    net = load(linear((2, 5)), features=ODD, classes=[0, 1.5, True])
    assert net.about.features is not None and net.about.features[5:7] == ("line\\nbreak", "tab\\there")
    assert net.about.classes == ("0", "1.5", "True")
    noted = Network(net.nodes, net.decision, About(net.about.features, net.about.classes, ("was read", "in two steps")))
    path = save_network(noted, tmp_path / "net.elbowroom")
    assert load_network(path).about == noted.about
    again = load(path, (10,), mean=1.0)
    assert again.about == replace(noted.about, origin=again.about.origin)
    assert load(again, features=net.about.features).about.features == net.about.features
    for other in (list("abcdefghij"), net.about.features[::-1]):
        with pytest.raises(InputError, match=r"the model itself calls feature 0 'mean radius', not .*keeps its names"):
            load(again, features=other)
    assert load(again, features={"line\nbreak": "a", " ": "b"}).about.features == (
        *net.about.features[:5], "a", *net.about.features[6:8], "b", net.about.features[9],
    )  # fmt: skip
    for wrong, words in (({"size": "a"}, "no feature 'size'"), ({" ": "", "": "x", "名前": ""}, "10 different names")):
        with pytest.raises(InputError, match=words):
            load(again, features=wrong)
    with pytest.raises(InputError, match="has no names that could be changed"):
        load(linear((2, 5)), features={"a": "b"})
    with pytest.raises(InputError, match=r"classes: the model's class '0' is output 0, not 1"):
        load(again, classes=["a", "0", "2"])
    assert network_hash(load(path)) == network_hash(net) == network_hash(linear((2, 5)))


@pytest.mark.parametrize("what", ["features", "classes"])
def test_names_that_a_file_would_not_tell_apart_are_refused(what: str, tmp_path: Path) -> None:
    net = linear((3,), about=About(**{what: ("a\n", "a\\n", "b")}))
    with pytest.raises(InputError, match=what + r": 'a\\\\n' and 'a\\n' would be written alike in the file"):
        save_network(net, tmp_path / "net.elbowroom")
    assert not list(tmp_path.iterdir())


def test_names_of_nodes_are_made_different_in_files(tmp_path: Path) -> None:
    graph = Graph((2,))
    at = graph.input
    for name in ("a\\n_3", "a\n", "a\\n"):
        at = graph.add(ops.Tanh(), at, name=name)
    found = load_network(save_network(graph.network(at), tmp_path / "net.elbowroom"))
    assert [n.name for n in found.nodes] == ["input", "a\\n_3", "a\\n", "a\\n_3_3"]


@given(st.lists(st.text(max_size=8), min_size=3, max_size=3))
def test_any_names_survive_a_file(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    try:
        net = load(linear((3,)), features=names)
    except InputError as error:
        assert len(set(names)) < 3 or "\\" in str(names), error
        return
    path = save_network(net, tmp_path_factory.mktemp("names") / "net.elbowroom")
    assert load_network(path).about == net.about


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": ["a", "b"]}, "features must be 48 different names, one for each input; got 2"),
        ({"features": [f"f{k // 2}" for k in range(48)]}, "got 48, of which 24 different"),
        ({"features": "abc"}, "features must be a list of names"),
        ({"features": 3}, "features must be a list of names"),
        ({"classes": ["a", "b", "c"]}, "classes must be 2 different names, one for each output; got 3"),
        ({"classes": ["a\n", "a\\n"]}, "got 2, of which 1 different"),
        ({"mean": [1.0, 2.0]}, r"mean of shape \(2,\) does not fit inputs of shape \(3, 4, 4\)"),
        ({"std": np.ones((1, 3, 4, 4))}, "std of shape"),
        ({"std": [1.0, 0.0, 1.0]}, "std must be positive"),
        ({"std": -1}, "std must be positive"),
        ({"std": 1e-60}, "std must be positive"),
        ({"mean": math.nan}, "mean holds NaN"),
        ({"mean": "imagenet"}, "mean must hold numbers"),
        ({"scale": 0}, "scale must be a number that is not 0"),
        ({"scale": 1e-60}, "scale must be a number that is not 0"),
        ({"scale": math.inf}, "scale must be a number"),
        ({"scale": True}, "scale must be a number"),
        ({"scale": [1.0]}, "scale must be a number"),
        ({"decision": "argmax"}, "decision must be"),
        ({"layout": "HWC"}, "layout must be one of NCHW, NHWC, got 'HWC'"),
        ({"task": "ranking"}, "task must be one of classification, regression"),
        ({"layout": "NHWC", "input_shape": (48,)}, "NHWC needs inputs with channels first"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, Any], message: str) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    with pytest.raises(InputError, match=message):
        load(module, **{"input_shape": (3, 4, 4), **arguments})


def test_wrong_input_shapes() -> None:
    with pytest.raises(InputError, match="input_shape is needed"):
        load(nn.Linear(3, 2))
    for shape in (3, "3", (3.0,), (0,), (-1, 3)):
        with pytest.raises(InputError, match="positive sizes"):
            load(nn.Linear(3, 2), shape)


# --- files


@pytest.mark.parametrize("model", [object(), lambda x: x, 3, None, {"weight": 1}])
def test_other_things_are_refused(model: Any) -> None:
    with pytest.raises(InputError, match=r"cannot load \w+: give a torch.nn.Module, a fitted scikit-learn model"):
        load(model)


def test_files_are_read_by_their_names(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"net\.txt: models are read from \.onnx, \.pt2, \.elbowroom files"):
        load("net.txt")
    for name in ("net.onnx", "net.pt2", "net.elbowroom", "net.pt", "net.pkl"):
        with pytest.raises(InputError, match="there is no such file"):
            load(tmp_path / name)
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(InputError, match=r"folder\.onnx is a folder"):
        load(tmp_path / "folder.onnx")


def test_programs_are_read(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
    torch.export.save(torch.export.export(module, (torch.ones(1, 4),)), tmp_path / "net.pt2")
    net = load(str(tmp_path / "net.pt2"), (2, 2), mean=1.0)
    assert net.input_shape == (2, 2) and net.n_outputs == 2
    assert load(tmp_path / "net.pt2", task="regression").n_outputs == 1
    assert network_hash(net) == network_hash(load(load(module, (4,)), (2, 2), mean=1.0))


class Flag:
    """Unpickling it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


SAVERS: dict[str, Callable[[Any, Path], Any]] = {
    ".pt": torch.save,
    ".pth": torch.save,
    ".pkl": lambda model, path: path.write_bytes(pickle.dumps(model)),
    ".PICKLE": lambda model, path: path.write_bytes(pickle.dumps(model)),
    ".joblib": lambda model, path: pytest.importorskip("joblib").dump(model, path),
}


@pytest.mark.parametrize("suffix", SAVERS)
def test_pickles_are_read_only_if_trusted(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"net{suffix}"
    SAVERS[suffix](Flag(tmp_path / "flag"), path)
    with pytest.raises(InputError, match=r"is a pickle, which can run any code.*trust_pickle=True"):
        load(path, (3,))
    assert not (tmp_path / "flag").exists()
    with pytest.raises(InputError, match="holds a NoneType, neither"):
        load(path, (3,), trust_pickle=True)
    assert (tmp_path / "flag").exists()
    module = nn.Linear(3, 2)
    SAVERS[suffix](module, path)
    assert network_hash(load(path, (3,), trust_pickle=True)) == network_hash(load(module, (3,)))
    with pytest.raises(InputError, match="input_shape is needed"):
        load(path, trust_pickle=True)


def test_pickles_that_hold_no_model(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    torch.save(nn.Linear(3, 2).state_dict(), path)
    with pytest.raises(InputError, match=r"holds weights only.*load_state_dict"):
        load(path, (3,), trust_pickle=True)
    torch.save(str(tmp_path / "other.pt"), path)
    with pytest.raises(InputError, match="holds a str, neither"):
        load(path, (3,), trust_pickle=True)
    path.write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"net\.pt cannot be unpickled"):
        load(path, (3,), trust_pickle=True)
    path = tmp_path / "net.pkl"
    path.write_bytes(b"cmissing_module\nNet\n.")
    with pytest.raises(InputError, match=r"needs code that is not here: No module named 'missing_module'"):
        load(path, (3,), trust_pickle=True)


@pytest.mark.filterwarnings("ignore")  # of other versions, which a byte may state
@pytest.mark.parametrize("suffix", [".pt", ".pkl", ".joblib"])
def test_damaged_pickles_are_refused_or_read(suffix: str, tmp_path: Path) -> None:
    """Also those that are still pickles, of objects that lack parts of themselves, and archives of other names."""
    path = tmp_path / f"net{suffix}"
    if suffix == ".pt":
        torch.save(nn.Linear(3, 2), path)
    else:
        linear = pytest.importorskip("sklearn.linear_model")
        x = np.random.default_rng(0).normal(size=(20, 3))
        SAVERS[suffix](linear.LogisticRegression().fit(x, x[:, 0] > 0), path)
    whole, random = path.read_bytes(), np.random.default_rng(1)
    for _ in range(60):
        data = bytearray(whole)
        for at in random.integers(len(data), size=random.integers(1, 4)).tolist():
            data[at] ^= 1 << int(random.integers(8))
        path.write_bytes(data[: int(random.integers(len(data)))] if random.random() < 0.2 else data)
        with contextlib.suppress(ElbowroomError):
            load(path, (3,), trust_pickle=True)
    module = nn.Linear(3, 2)
    del module._modules
    torch.save(module, tmp_path / "lacks.pt")
    with pytest.raises(InputError, match=r"lacks\.pt holds a model that cannot be read \(AttributeError .*_modules"):
        load(tmp_path / "lacks.pt", (3,), trust_pickle=True)
    archive = tmp_path / "names.pt"
    torch.save(nn.Linear(3, 2), archive)
    archive.write_bytes(archive.read_bytes().replace(b"/data.pkl", b"/data\xef.pk"))
    with pytest.raises(InputError, match=r"names\.pt cannot be unpickled"):
        load(archive, (3,), trust_pickle=True)


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated
def test_torchscript_files_are_refused(tmp_path: Path) -> None:
    torch.jit.trace(nn.Linear(3, 2), torch.ones(1, 3)).save(str(tmp_path / "net.pt"))
    with pytest.raises(InputError, match=r"is TorchScript.*torch\.export\.save or as ONNX"):
        load(tmp_path / "net.pt", (3,), trust_pickle=True)


def test_tensors_with_a_gradient_are_told_as_numbers() -> None:
    mean = torch.tensor([0.25], requires_grad=True)
    net = load(nn.Linear(2, 2), input_shape=(2,), mean=mean, std=torch.ones(1, dtype=torch.bfloat16))
    assert net.about.origin is not None
    assert net.about.origin.options["mean"] == [0.25] and net.about.origin.options["std"] == [1.0]


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        (
            "keras.src.models.sequential",
            "Sequential",
            "Sequential is a model of Keras, which is not read: export it to",
        ),
        ("tensorflow.python.module", "Module", "Module is a model of TensorFlow, which is not read: export it to ONNX"),
        ("skorch.classifier", "NeuralNetClassifier", "is a net of skorch, which is not read: give its torch module"),
        ("onnx.onnx_ml_pb2", "ModelProto", "ModelProto is an ONNX model in memory, which is not read: save it"),
        ("flax.linen.module", "Dense", "Dense is a module of Flax"),
    ],
)
def test_models_of_other_libraries_are_called_by_their_names(module: str, name: str, words: str) -> None:
    theirs = type(name, (), {"__module__": module})
    for model in (theirs(), type("Mine", (theirs,), {})()):
        with pytest.raises(InputError, match=words.replace(name, type(model).__name__, 1)):
            load(model)


def test_files_of_other_libraries_are_called_by_their_names(tmp_path: Path) -> None:
    for file, words in (("m.keras", "a model of Keras"), ("m.h5", "a model of Keras"), ("m.tflite", "of TensorFlow")):
        with pytest.raises(InputError, match=f"{file}: by its name this is .*{words}, which is not read: export"):
            load(tmp_path / file)

"""From settings to the arguments of certify."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from elbowroom.errors import InputError
from elbowroom.network.graph import About, Network
from elbowroom.runs.problem import arguments, device_of, resolve
from elbowroom.runs.settings import Settings
from runs.small import network


def named(*features: str) -> Network:
    net = network(sizes=(len(features), 4, 2))
    return Network(net.nodes, net.decision, About(features=features))


NET = named("age", "income", "height, cm", "3", "x-y")


def resolved(net: Network = NET, **settings: Any) -> Settings | None:
    return resolve(Settings.of(settings), net, None)


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        (["age"], ["0"]),
        (["x-y", "0"], ["0", "4"]),
        (["height, cm"], ["2"]),
        (["age,income"], ["0", "1"]),
        (["1-2, 4"], ["1", "2", "4"]),
        (["3"], ["3"]),
        (["age", "0"], ["0"]),
    ],
)
def test_features_by_name_and_number(given: list[str], numbers: list[str]) -> None:
    assert resolved(frozen=given).frozen == numbers


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"frozen": ["incom"]}, "frozen: there is no feature 'incom'; did you mean income"),
        ({"frozen": ["zzz"]}, "the features are age, income"),
        ({"frozen": ["5"]}, "numbers 0 to 4, not 5"),
        ({"frozen": ["3-1"]}, "numbers 0 to 4, not 3-1"),
        ({"max_eps": {"age": 1, "0": 2}}, "max_eps: feature 0 has two values"),
        ({"domain": "data"}, "domain: the data state none"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        resolved(**settings)


def test_names_that_are_numbers() -> None:
    net = named("1", "0")
    with pytest.raises(InputError, match="'0' is the name of feature 1 and the number of another one"):
        resolved(net, frozen=["0"])
    with pytest.raises(InputError, match="the features have no names, only numbers"):
        resolved(network(), frozen=["age"])


def test_arguments() -> None:
    given = {
        "frozen": ["income"], "domain": {"*": [0, None], "age": [0, 120]}, "max_eps": {"age": 5},
        "importance": {"age": 2}, "region": "box-asymmetric", "solver": "augmented-lagrangian",
        "solver_options": {"steps": 7, "rate": 0.5}, "memory": "1GiB", "batch": 3, "device": "cpu",
    }  # fmt: skip
    found = arguments(resolved(**given), NET)
    inf = np.inf
    assert found["region"].asymmetric and found["solver"] == er.AugmentedLagrangian(steps=7, rate=0.5)
    assert isinstance(found["solver"].steps, int)
    np.testing.assert_array_equal(found["frozen"], [False, True, False, False, False])
    np.testing.assert_array_equal(found["domain"], [[0, 0, 0, 0, 0], [120, inf, inf, inf, inf]])
    np.testing.assert_array_equal(found["max_eps"], [5, inf, inf, inf, inf])
    np.testing.assert_array_equal(found["importance"], [2, 1, 1, 1, 1])
    assert (found["memory"], found["batch"], found["device"]) == ("1GiB", 3, torch.device("cpu"))


def test_what_is_not_said_is_left_to_certify() -> None:
    found = arguments(resolved(device="cpu"), NET)
    assert {k for k, v in found.items() if v is None} == {
        "domain", "frozen", "importance", "max_eps", "deployed", "memory", "batch", "room_scale"
    }  # fmt: skip
    assert type(found["region"]) is er.Box and found["solver"] == er.Sequential()


def test_resolving_twice_changes_nothing() -> None:
    once = resolved(frozen=["age,1"], max_eps={"*": 1}, importance={"x-y": 3}, domain={"age": [0, 9]})
    assert resolve(once, NET, None) == once
    plain = Settings.of(once.plain())
    assert plain == once


def test_the_domain_of_the_data() -> None:
    assert resolve(Settings(), NET, (0.0, 1.0)).domain is None
    found = resolve(Settings.of({"domain": "data"}), NET, (0.0, float("inf")))
    assert found.domain == {"*": [0.0, None]}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"step": 3}, "sequential has no 'step'"),
        ({"gradients": 1.5}, "gradients must be a whole number"),
        ({"gradients": -1}, "gradients must be a whole number"),
    ],
)
def test_solver_options_that_are_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        arguments(resolved(solver_options=options), NET)


def test_devices() -> None:
    assert device_of(Settings(device="cpu")) == torch.device("cpu")
    for name in ("nosuch", "cuda:99", "meta:x"):
        with pytest.raises(InputError, match="cannot be used here"):
            device_of(dataclasses.replace(Settings(), device=name))

"""The networks of the paper's tables and figures, what it reports of each, and in which sizes they are reproduced."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from elbowroom.training.adversary import PGD

TAU = 0.1  # of the adversary the robust models are trained against; pixels lie in [-1, 1]


@dataclass(frozen=True)
class Reported:
    """A row of the paper's tables 1 and 3."""

    accuracy: float  # per cent, clean
    uniform: float
    nonuniform: float
    ratio: float
    mean_cosine: float
    least_cosine: float


@dataclass(frozen=True)
class Model:
    """One network: `data`, all or two of its `classes`, hidden layers of `widths`, trained against PGD or not."""

    data: str
    widths: tuple[int, ...]
    robust: bool
    classes: tuple[str, ...] | None = None
    reported: Reported | None = None

    @property
    def name(self) -> str:
        what = f"{self.widths[0]}" if self.classes is None else "v".join(self.classes)
        return f"{self.data}-{what}-{'robust' if self.robust else 'normal'}"

    @property
    def architecture(self) -> str:
        return "-".join(map(str, self.widths))


def _pair(data: str, width: int, normal: Reported, robust: Reported) -> tuple[Model, Model]:
    return tuple(Model(data, (width,) * 3, r, None, row) for r, row in ((False, normal), (True, robust)))  # type: ignore[return-value]


MAIN = (
    *_pair(
        "mnist", 100,
        Reported(99.2, 0.0295, 0.0349, 1.183, 0.9548, 0.2304), Reported(98.1, 0.0692, 0.1678, 2.425, 0.9957, 0.9155),
    ),
    *_pair(
        "mnist", 300,
        Reported(98.0, 0.0309, 0.0350, 1.133, 0.9774, 0.5038), Reported(98.9, 0.0507, 0.1404, 2.769, 0.9964, 0.9104),
    ),
    *_pair(
        "mnist", 500,
        Reported(98.5, 0.0319, 0.0360, 1.129, 0.9874, 0.6367), Reported(98.8, 0.0436, 0.1167, 2.677, 0.9941, 0.8920),
    ),
    *_pair(
        "fashion-mnist", 1024,
        Reported(90.4, 0.0134, 0.0141, 1.052, 0.9805, 0.5652), Reported(88.4, 0.0208, 0.0306, 1.468, 0.9752, 0.7166),
    ),
    *_pair(
        "svhn", 1024,
        Reported(84.3, 0.0022, 0.0072, 3.273, 0.9836, 0.7129), Reported(78.2, 0.0054, 0.0281, 5.204, 0.9952, 0.9339),
    ),
)  # fmt: skip
PAIRS = (("1", "7"), ("3", "8"), ("1", "2"))
BINARY = tuple(Model("mnist", (100,) * 3, robust, pair) for pair in PAIRS for robust in (False, True))
TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "svhn": "SVHN", "digits": "digits 8x8"}


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: the defaults are the paper's authors'. `ramp`: of the adversary, in epochs."""

    epochs: int = 100
    batch: int = 100
    rate: float = 1e-4
    ramp: int = 0


@dataclass(frozen=True)
class Size:
    """How much is done. `FULL` is what the tables are about, `CLIPPED` and `LARGE_BATCHES` the same networks trained in
    other ways; the others show on a small machine that all works.

    `shrink`: hidden widths of the paper -> widths used. `n_train`: training images at most. `recipes`: by data set, or
    for "two classes"; `recipe`: of the others. `adversary`: of the robust models. `inputs`: of the test set, certified;
    `every`: up to so many with the paper's bounds, for the cosines (None: all). `lagrangian`: inputs certified with the
    paper's own solver, of `steps` steps. `maps`: inputs of a model of two classes. `plane`: epochs of the network of
    points in the plane. `toys`: small random networks whose bounds are counted. `few`: inputs at most of experiments
    beyond the paper's.
    """

    name: str
    recipe: Recipe = field(default=Recipe())
    recipes: dict[str, Recipe] = field(default_factory=dict)
    weight_decay: float = 1e-4
    adversary: PGD = field(default=PGD(TAU, steps=20, clip=False))
    n_train: int | None = None
    inputs: int = 1000
    every: int | None = None
    lagrangian: int = 100
    steps: int = 400
    maps: int = 20
    plane: int = 1500
    toys: int = 200
    few: int = 200
    shrink: dict[int, int] = field(default_factory=dict)

    def recipe_of(self, model: Model) -> Recipe:
        return self.recipes.get("two classes" if model.classes else model.data, self.recipe)

    def of(self, model: Model) -> Model:
        """The model in this size."""
        return replace(model, widths=tuple(self.shrink.get(w, w) for w in model.widths))


# The official SVHN has 4.6 times as many images as ours: 230 epochs at twice the rate move the weights as far as 100 of
# the authors' do there. Against the full adversary from the beginning, robust models would stay at the frequencies of
# the classes.
FULL = Size("full", recipes={"svhn": Recipe(epochs=230, rate=2e-4, ramp=20)})
# The adversary kept in the range of pixels. The authors' published program lets it out.
CLIPPED = replace(FULL, name="clipped", adversary=PGD(TAU, steps=20))
# Fewer, larger steps: robust models' weights of useless pixels shrink further.
LARGE_BATCHES = replace(
    CLIPPED, name="large-batches", recipe=Recipe(60, 1000, 1e-3), every=1000,
    recipes={"svhn": Recipe(120, 250, 5e-4, 20), "two classes": Recipe(60, 500, 1e-3)},
)  # fmt: skip
QUICK = Size(
    "quick",
    Recipe(epochs=12, rate=1e-3),
    {"svhn": Recipe(epochs=16, rate=1e-3, ramp=8)},
    n_train=4000,
    adversary=PGD(TAU, steps=5, step=0.5, clip=False),
    inputs=32,
    every=64,
    lagrangian=6,
    steps=100,
    maps=6,
    plane=400,
    toys=40,
    few=20,
    shrink={100: 32, 300: 48, 500: 64, 1024: 64},
)
TINY = replace(
    QUICK, name="tiny", recipe=Recipe(epochs=8, batch=50, rate=1e-2), recipes={}, n_train=600, inputs=6, every=9,
    lagrangian=2, steps=8, maps=8, plane=60, toys=4, few=6, shrink={100: 16, 300: 18, 500: 20, 1024: 20},
)  # fmt: skip
SIZES = {size.name: size for size in (FULL, CLIPPED, LARGE_BATCHES, QUICK, TINY)}

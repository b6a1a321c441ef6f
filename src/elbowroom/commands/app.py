"""The command line: parse, call, print. Everything heavy is imported inside the commands, so that help is quick."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from elbowroom import __version__
from elbowroom.errors import ElbowroomError

app = typer.Typer(
    name="elbowroom",
    help="How much room does each input feature have before a neural network's decision could change? "
    "Proved, not sampled.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"elbowroom {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


def _command(function: Callable[..., None]) -> Callable[..., None]:
    """Makes a command of a function: errors made on purpose become one line and exit code 2, Ctrl-C one and 130."""

    @app.command()
    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except ElbowroomError as error:
            typer.echo(f"elbowroom: {error}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo("elbowroom: interrupted", err=True)
            raise typer.Exit(130) from None

    return run


@_command
def demo(
    out: Annotated[Path, typer.Option(help="Folder for pictures and certificates.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option(help="Of the networks' training.", min=0, max=2**32 - 1)] = 0,
) -> None:
    """The whole story on embedded data: train two small networks, certify, compare, attack."""
    from elbowroom.demo import run_demo

    run_demo(out, seed=seed)


_MODEL, _DATA, _CLAIM, _SEARCH = "Model", "Data", "What to certify", "How to look for it"
_MACHINE, _OUTPUT = "Machine", "Output"


def _flag(panel: str, text: str, *names: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=False, metavar=metavar)


@_command
def certify(
    model: Annotated[
        str | None,
        typer.Argument(help="The network: .onnx, .pt2, .elbowroom. With --resume: the run's own.", show_default=False),
    ] = None,
    data: Annotated[
        str | None,
        typer.Argument(
            help="The inputs: digits, mnist:test, fashion-mnist:test, svhn:test, cifar10:test, a .npy, .npz, .csv or "
            ".parquet file, or a folder of images. With --resume: the run's own.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, _flag(_OUTPUT, "Folder of the run; made if it is not there.", metavar="RUN")] = None,
    resume: Annotated[
        bool,
        _flag(
            _OUTPUT,
            "Go on with the run in that folder, or begin it. Nothing is done twice. Flags of the machine, and "
            "--trust-pickle, are given anew.",
            "--resume",
        ),
    ] = False,
    config: Annotated[
        Path | None,
        _flag(
            _OUTPUT,
            "TOML file with settings, named as the flags are (and model, data, out); flags win.",
            metavar="FILE",
        ),
    ] = None,
    part_rows: Annotated[
        str | None, _flag(_OUTPUT, "Inputs per file; default: what takes some 20 seconds.", metavar="N")
    ] = None,
    quiet: Annotated[bool, _flag(_OUTPUT, "Print warnings and errors only.", "--quiet", "-q")] = False,
    json: Annotated[bool, _flag(_OUTPUT, "Print the summary as JSON.", "--json")] = False,
    input_shape: Annotated[
        str | None, _flag(_MODEL, "Of one input, such as 1,28,28; default: the data's.", metavar="SHAPE")
    ] = None,
    scale: Annotated[
        str | None, _flag(_MODEL, "The model takes (scale * x - mean) / std; such as 1/255.", metavar="NUMBER")
    ] = None,
    mean: Annotated[str | None, _flag(_MODEL, "One number, or one per channel: 0.49,0.48,0.45.", metavar="M")] = None,
    std: Annotated[str | None, _flag(_MODEL, "One number, or one per channel.", metavar="S")] = None,
    layout: Annotated[
        str | None,
        _flag(
            _MODEL,
            "NHWC where the model takes channels last and the data have them first, or the reverse; default: by their "
            "sizes, where these leave no doubt.",
            metavar="NHWC",
        ),
    ] = None,
    decision: Annotated[
        str | None,
        _flag(_MODEL, "max or min: which output decides; default: max, or what the file says.", metavar="max|min"),
    ] = None,
    task: Annotated[
        str | None, _flag(_MODEL, "classification (default), or regression: with --within.", metavar="TASK")
    ] = None,
    class_names: Annotated[
        str | None,
        _flag(
            _MODEL,
            "What the data's labels call the model's outputs, in the order of these: cat,dog or 1..10; default: the "
            "model's own names, or 0, 1, 2, ...",
            metavar="A,B,...",
        ),
    ] = None,
    trust_pickle: Annotated[
        bool | None,
        _flag(_MODEL, "Read also models whose files run code: only from people you trust.", "--trust-pickle"),
    ] = None,
    data_dir: Annotated[str | None, _flag(_DATA, "Folder of the named sets.", metavar="DIR")] = None,
    label_column: Annotated[
        str | None, _flag(_DATA, "Of a table: the column with the labels; '' for none.", metavar="NAME")
    ] = None,
    feature_columns: Annotated[
        str | None,
        _flag(
            _DATA,
            "Of a table: the columns to use, matched by name with the features that the model names; where it names "
            "none, in this order.",
            metavar="A,B,...",
        ),
    ] = None,
    key: Annotated[
        str | None, _flag(_DATA, "Of an .npz: the arrays with the inputs and the labels, such as x,y.", metavar="X,Y")
    ] = None,
    limit: Annotated[str | None, _flag(_DATA, "At most so many inputs.", metavar="N")] = None,
    offset: Annotated[str | None, _flag(_DATA, "Leave out so many at the start.", metavar="N")] = None,
    indices: Annotated[str | None, _flag(_DATA, "Only these inputs, such as 0-9,17.", metavar="LIST")] = None,
    classes: Annotated[
        str | None, _flag(_DATA, "Only inputs of these classes, by number or name.", metavar="LIST")
    ] = None,
    shuffle: Annotated[
        bool | None, _flag(_DATA, "In random order; with --limit: a random sample.", "--shuffle")
    ] = None,
    seed: Annotated[str | None, _flag(_DATA, "Of --shuffle; default: 0.", metavar="N")] = None,
    predicted: Annotated[
        bool | None,
        _flag(_CLAIM, "What the network decides is to stay, also where the data have labels.", "--predicted"),
    ] = None,
    within: Annotated[
        str | None,
        _flag(
            _CLAIM,
            "Regression: the outputs that the model gives stay within this of their values; one number, or one each.",
            metavar="TOL",
        ),
    ] = None,
    region: Annotated[
        str | None, _flag(_CLAIM, "uniform, box (default), box-asymmetric, ellipsoid or l1.", metavar="SHAPE")
    ] = None,
    domain: Annotated[
        list[str] | None,
        _flag(
            _CLAIM,
            "Valid values: LOW,HIGH for all features, FEATURE=LOW,HIGH for one (repeat the flag), or data: the data's.",
            metavar="RANGE",
        ),
    ] = None,
    max_eps: Annotated[
        list[str] | None,
        _flag(
            _CLAIM,
            "Largest extent: a number, or FEATURE=NUMBER (repeat); default: the domain, or 1000 uniform radii.",
            metavar="LIMIT",
        ),
    ] = None,
    frozen: Annotated[
        list[str] | None,
        _flag(_CLAIM, "Features that must not move, by name or number: age, or 0-9,17 (repeat).", metavar="LIST"),
    ] = None,
    importance: Annotated[
        list[str] | None,
        _flag(_CLAIM, "How much the room of a feature counts; default: 1 (repeat).", metavar="FEATURE=WEIGHT"),
    ] = None,
    deployed: Annotated[
        str | None, _flag(_CLAIM, "float32: certify also the network as executed in float32.", metavar="float32")
    ] = None,
    bounds: Annotated[
        str | None, _flag(_SEARCH, "adaptive (default), combined, quadratic, simple or fast.", metavar="METHOD")
    ] = None,
    margin: Annotated[str | None, _flag(_SEARCH, "direct (default) or logits.", metavar="NAME")] = None,
    solver: Annotated[
        str | None, _flag(_SEARCH, "sequential (default) or augmented-lagrangian.", metavar="NAME")
    ] = None,
    solver_options: Annotated[
        list[str] | None,
        _flag(_SEARCH, "Of the solver, such as steps=2000 (repeat).", "--solver-option", metavar="NAME=NUMBER"),
    ] = None,
    delta: Annotated[
        str | None, _flag(_SEARCH, "By how much margins must exceed zero; default: 0.", metavar="NUMBER")
    ] = None,
    precision: Annotated[
        str | None,
        _flag(_SEARCH, "float32 (default; float64 where it does not do) or float64: of the search.", metavar="NAME"),
    ] = None,
    device: Annotated[
        str | None, _flag(_MACHINE, "cpu, cuda, cuda:1, ...; default: a GPU if there is one.", metavar="NAME")
    ] = None,
    memory: Annotated[
        str | None,
        _flag(
            _MACHINE,
            "What a worker may take, such as 4GiB; default: half of what is free, shared by the workers.",
            metavar="SIZE",
        ),
    ] = None,
    batch: Annotated[str | None, _flag(_MACHINE, "Inputs at a time; default: what fits.", metavar="N")] = None,
    engine: Annotated[
        str | None, _flag(_MACHINE, "local (default), or ray: a cluster of machines or GPUs.", metavar="local|ray")
    ] = None,
    workers: Annotated[
        str | None,
        _flag(_MACHINE, "Parts at a time; default: 1 (local), what the cluster has room for (ray).", metavar="N"),
    ] = None,
    address: Annotated[
        str | None,
        _flag(_MACHINE, "Of the Ray cluster; default: RAY_ADDRESS, or one of this machine's own.", metavar="ADDRESS"),
    ] = None,
) -> None:
    """Certify a whole data set into a folder, part by part; it may be interrupted and gone on with at any time.

    Exit status 0: all inputs are done; 1: they are, but not one could be tried (unreadable, no finite numbers);
    2: something is wrong; 130: interrupted in good order.
    """
    given = {k: v for k, v in locals().items() if k not in ("out", "resume", "config", "quiet", "json")}
    from elbowroom.commands.certify import certify_command

    code = certify_command(
        {name: value for name, value in given.items() if value not in (None, [])}, out, resume, config, quiet, json
    )
    if code:
        raise typer.Exit(code)


@_command
def status(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """How far a run is, whether it is running, and how to go on with it."""
    from elbowroom.certificates.store import Run
    from elbowroom.report import runs as show
    from elbowroom.runs.status import status_of

    found = status_of(Run.open(run))
    if json:
        _print_json(found)
    else:
        show.show_status(found)


@_command
def show(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", show_default=False)],
    index: Annotated[
        int | None, typer.Option(help="Show this input of the data set instead.", show_default=False, min=0)
    ] = None,
    features: Annotated[int, typer.Option(help="With --index: how many features, least room first.", min=1)] = 20,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What a run found: sizes, ratios, failures; or, of one input, the room of each feature.

    As its files state it: elbowroom check proves it again.
    """
    from elbowroom.certificates.store import Run
    from elbowroom.report import runs as show
    from elbowroom.runs.one_input import one_input
    from elbowroom.runs.summary import summary_of

    opened = Run.open(run)
    if index is None:
        summary = summary_of(opened)
        return _print_json(summary) if json else show.show_summary(summary)
    found = one_input(opened, index)
    return _print_json(found) if json else show.show_input(found, features)


def _print_json(value: Any) -> None:
    from json import dumps

    typer.echo(dumps(_plain(value), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    """As JSON holds it: a number that is not finite, which a file may state, becomes null."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


@_command
def check(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", show_default=False)],
    model: Annotated[
        Path | None,
        typer.Option(
            help="Your model: read again as the run states, and refused if it gives another network.",
            show_default=False,
        ),
    ] = None,
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Read --model also where its file runs code.")
    ] = False,
    network: Annotated[
        Path | None,
        typer.Option(help="The .elbowroom file they must speak of; default: the run's own.", show_default=False),
    ] = None,
    arithmetic: Annotated[str, typer.Option(help="float64, or arb: slow, by python-flint.")] = "float64",
    deployed: Annotated[
        str | None, typer.Option(help="float32: prove also the network as executed in float32.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Prove every certificate of a run again.

    Without --model or --network, of the network in the run's own folder. Exit status 0: all are proved, and the run is
    complete; 1: one or more are not proved; 2: something cannot be read, or is about another network; 3: there is
    nothing to prove, or the run is incomplete.
    """
    from elbowroom.certificates.store import Run
    from elbowroom.report import checks as show
    from elbowroom.report.progress import proving
    from elbowroom.runs.check import check_run

    opened = Run.open(run)
    with proving(opened.plan.inputs) as advance:
        outcome = check_run(opened, network, arithmetic, deployed, model, trust_pickle, advance)
    if json:
        _print_json(show.as_json(outcome))
    else:
        show.show(outcome)
    if outcome.code:
        raise typer.Exit(outcome.code)


@_command
def verify(
    model: Annotated[str, typer.Argument(help="The network: .onnx, .pt2, .elbowroom.", show_default=False)],
    vnnlib: Annotated[
        Path | None, typer.Option(help="A VNN-LIB query about the model's inputs and outputs.", show_default=False)
    ] = None,
    lower: Annotated[
        str | None,
        typer.Option(help="Of a box: a number for all features, numbers with commas, or a .npy.", show_default=False),
    ] = None,
    upper: Annotated[str | None, typer.Option(help="Of a box, likewise.", show_default=False)] = None,
    label: Annotated[
        int | None,
        typer.Option(help="The decision to prove on the box; default: that of its midpoint.", show_default=False),
    ] = None,
    boxes: Annotated[
        int | None, typer.Option(help="Give up after so many pieces of the box.", show_default=False, min=1)
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Give up after this time.", show_default=False, min=0)] = None,
    input_shape: Annotated[
        str | None, typer.Option(help="Of one input, such as 1,28,28; default: the model's.", show_default=False)
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="The model takes (scale * x - mean) / std.", show_default=False)
    ] = None,
    mean: Annotated[str | None, typer.Option(help="One number, or one per channel.", show_default=False)] = None,
    std: Annotated[str | None, typer.Option(help="One number, or one per channel.", show_default=False)] = None,
    decision: Annotated[str | None, typer.Option(help="max or min: which output decides.", show_default=False)] = None,
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Read also models whose files run code.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Whether the decision is the same on a whole box, or the answer to a VNN-LIB query.

    Exit status 0: it holds; 1: it is violated, and a counterexample is shown; 3: unknown; 2: something is wrong.
    """
    from elbowroom.commands.verify import run_verify
    from elbowroom.runs.settings import Settings

    given = {"input_shape": input_shape, "scale": scale, "mean": mean, "std": std, "decision": decision}
    read = Settings.of(given, lambda name: f"--{name.replace('_', '-')}")
    limits: dict[str, Any] = {
        name: value for name, value in {"boxes": boxes, "seconds": seconds}.items() if value is not None
    }
    code = run_verify(
        model, vnnlib, lower, upper, label, json=json, trust_pickle=trust_pickle,
        **{name: getattr(read, name) for name in given}, **limits,
    )  # fmt: skip
    if code:
        raise typer.Exit(code)


@_command
def export_vnnlib(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for the queries.")] = Path("out/vnnlib"),
    timeout: Annotated[int, typer.Option(help="Seconds per query, for instances.csv.", min=1)] = 60,
    float64: Annotated[bool, typer.Option("--float64", help="Write the network in float64.")] = False,
) -> None:
    """Write each certificate of a run as a VNN-LIB query, and its network as ONNX, for other verifiers."""
    import torch

    from elbowroom.certificates.result import Certificates
    from elbowroom.readers.onnx.write import rounded_constants
    from elbowroom.vnnlib import export

    certs = Certificates.load(run)
    dtype = torch.float64 if float64 else None
    paths = export(certs, None, out, timeout, dtype)
    count = "1 query" if len(paths) == 1 else f"{len(paths)} queries"
    typer.echo(f"{count} in {out}, with network.onnx and instances.csv; unsat: the certificate holds")
    rounded = len(rounded_constants(certs.network, dtype)) if certs.network else 0
    if rounded:
        hint = "" if float64 else "; --float64 would hold more of them"
        typer.echo(f"network.onnx holds {rounded} number{'s' * (rounded > 1)} rounded, named in each query{hint}")


@_command
def train(
    data: Annotated[str, typer.Argument(help="digits, mnist, fashion-mnist or svhn.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The network's file; ends in .elbowroom.", show_default=False)],
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the sets; digits needs none.", show_default=False)
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Only these, by name or number: 1,7.", show_default=False, metavar="A,B,...")
    ] = None,
    widths: Annotated[str, typer.Option(help="Neurons of each hidden layer.", metavar="N,N,...")] = "100,100,100",
    channels: Annotated[
        str | None,
        typer.Option(help="Convolutions (4x4, stride 2) in front.", show_default=False, metavar="N,N,..."),
    ] = None,
    activation: Annotated[
        str, typer.Option(help="relu, leaky-relu, relu6, hardtanh, sigmoid, tanh, arctan, elu, softplus, silu or gelu.")
    ] = "relu",
    epochs: Annotated[int, typer.Option(min=1)] = 100,
    batch: Annotated[int, typer.Option(min=1)] = 100,
    rate: Annotated[float, typer.Option(help="Learning rate of Adam.")] = 1e-4,
    decay_rate: Annotated[bool, typer.Option("--decay-rate", help="Let the rate fall to zero along a cosine.")] = False,
    weight_decay: Annotated[float, typer.Option(min=0.0)] = 1e-4,
    tau: Annotated[
        float | None,
        typer.Option(
            help="Train against PGD that moves each pixel by up to this, in the units of --pixels.", show_default=False
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Of PGD.", min=1)] = 20,
    step: Annotated[float, typer.Option(help="Of PGD, as a share of tau.")] = 0.25,
    random_start: Annotated[bool, typer.Option(help="PGD starts from a random point.")] = True,
    ramp: Annotated[int, typer.Option(help="Epochs over which tau grows to its full size.", min=0)] = 0,
    clip: Annotated[bool, typer.Option(help="PGD keeps pixels in their range.")] = True,
    pixels: Annotated[
        str, typer.Option(help="Range the saved network takes; -1,1 is the paper's.", metavar="LOW,HIGH")
    ] = "0,1",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1)] = 0,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, ...; default: a GPU if there is one.", show_default=False)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Train a network, normally or against PGD, and save it in one file; the defaults are the paper's authors'."""
    given = {name: value for name, value in locals().items() if name not in ("data", "out")}
    from elbowroom.commands.train import train_command

    train_command(data, out, **given)


@_command
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help="synthetic, table1, table2 (cosines), histograms, bounding-maps, toy-bounds or all.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for models, results, tables and figures.")] = Path("out/reproduce"),
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder that holds MNIST, FashionMNIST and SVHN.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small networks, few inputs: minutes on two cores.")] = False,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, ...; default: a GPU if there is one.", show_default=False)
    ] = None,
) -> None:
    """The paper's tables and figures, ours beside them. What is in the folder already is used again."""
    from elbowroom.paper.reproduce import reproduce_command

    reproduce_command(experiment, out, data_dir=data_dir, quick=quick, device=device)


def main() -> None:
    """What the command `elbowroom` runs."""
    app(prog_name="elbowroom")


if __name__ == "__main__":
    main()

"""Data that once were certified as something else: columns under wrong names, images with their pixels mixed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import elbowroom as er
from commands import good
from elbowroom.certificates.store import Run


def test_a_shuffled_table_is_certified_under_the_right_names(tmp_path: Path) -> None:
    """scikit-learn refuses the same file; `radius error from -0.71 to 1.70` was claimed, where it is 0.43 to 0.56."""
    joblib, pandas = pytest.importorskip("joblib"), pytest.importorskip("pandas")
    from sklearn.datasets import load_breast_cancer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = load_breast_cancer(as_frame=True)
    frame, target = data.data, data.target_names[data.target]
    mlp = MLPClassifier((8,), alpha=1.0, max_iter=300, random_state=0, solver="lbfgs")
    model = make_pipeline(StandardScaler(), mlp).fit(frame[:400], target[:400])
    joblib.dump(model, tmp_path / "model.joblib")
    shuffled = frame[400:420].sample(frac=1, axis=1, random_state=0)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(shuffled)
    shuffled.assign(diagnosis=target[400:420]).to_csv(tmp_path / "patients.csv", index=False)
    given = (tmp_path / "model.joblib", tmp_path / "patients.csv", "--label-column", "diagnosis", "--trust-pickle")
    result = good("certify", *given, "--device", "cpu", "--out", tmp_path / "run")
    assert "note: the columns of patients.csv stand in another order than the model's features" in result.stderr
    run = Run.open(tmp_path / "run")
    certs = run.read(*run.finished())
    assert certs.network is not None and certs.network.about.features == tuple(frame.columns)
    assert np.array_equal(certs.x.numpy(), frame[400:420].to_numpy())
    right = model.predict(frame[400:420]) == target[400:420]
    assert np.array_equal(certs.certified.numpy(), right) and right.sum() >= 18
    corner = np.random.default_rng(0).random((200, *certs.x.shape)) < 0.5
    for low in corner:
        moved = pandas.DataFrame(np.where(low, certs.lower, certs.upper), columns=frame.columns)
        assert (model.predict(moved) == target[400:420])[right].all()
    radius = list(frame.columns).index("radius error")
    lower, upper = certs.lower[:, radius].numpy(), certs.upper[:, radius].numpy()
    assert ((lower <= frame["radius error"][400:420]) & (frame["radius error"][400:420] <= upper)).all()


@pytest.mark.parametrize("kind", ["onnx", "pt2"])
def test_channels_last_images_for_a_model_that_takes_them_first(tmp_path: Path, kind: str) -> None:
    """They were reshaped: none of them right, and exit status 0."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 2 * 2, 3))
    x = torch.rand(12, 3, 8, 8)
    with torch.no_grad():
        decided = module(x).argmax(1)
    path = tmp_path / f"net.{kind}"
    if kind == "onnx":
        pytest.importorskip("onnx")
        from elbowroom.readers.onnx.write import write_onnx

        write_onnx(er.load(module, (3, 8, 8)), path)
    else:
        torch.export.save(torch.export.export(module.eval(), (x[:2],)), path)
    np.savez(tmp_path / "images.npz", x=x.permute(0, 2, 3, 1).numpy(), y=decided.numpy())
    result = good("certify", path, tmp_path / "images.npz", "--device", "cpu", "--out", tmp_path / "run")
    assert "the network gets 12 of these 12 right" in result.stderr
    assert "note: the model takes channels first, (3, 8, 8); inputs of shape (8, 8, 3) are transposed" in result.stderr
    certs = er.Certificates.load(tmp_path / "run")
    assert certs.x.shape == (12, 8, 8, 3) and set(certs.status) == {"certified"}
    with torch.no_grad():
        for corner in (certs.lower, certs.upper):
            assert torch.equal(module(corner.float().permute(0, 3, 1, 2)).argmax(1), decided)

"""Folders of images: order, classes, exact values, and images that cannot be read."""

import io
import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.samples import PICTURE, image, put
from elbowroom.data import images
from elbowroom.data.sources import open_data
from elbowroom.errors import InputError

GREY = np.arange(30, dtype=np.uint8).reshape(6, 5) * 8


def saved(picture: Image.Image, kind: str = "PNG", **options: bool | list[Image.Image]) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def test_classes_are_folders(tmp_path: Path) -> None:
    files = {"b/10.png": PICTURE, "b/2.PNG": PICTURE // 2, "a/z.bmp": PICTURE // 3, "c d/x.png": PICTURE // 4}
    put(tmp_path, {n: image(v, n.rpartition(".")[2].upper()) for n, v in files.items()})
    put(tmp_path, {"a/notes.txt": b"", "a/.hidden.png": b"", ".cache/x.png": b"", "README.md": b""})
    found = open_data(tmp_path)
    names = ["a/z.bmp", "b/10.png", "b/2.PNG", "c d/x.png"]
    assert [found.ids(k) for k in range(4)] == names and found.name == f"{tmp_path.name} (4 images)"
    assert found.classes == ("a", "b", "c d") and found.labels.tolist() == [0, 1, 1, 2]
    assert (found.shape, found.count, found.domain) == ((3, 6, 5), 4, (0.0, 1.0))
    assert np.array_equal(found.inputs([2, 0]), np.stack([files[names[k]].transpose(2, 0, 1) / 255 for k in (2, 0)]))


def test_folders_with_numbers_are_class_numbers(tmp_path: Path) -> None:
    put(tmp_path, {f"{k}/a.png": image(GREY) for k in (3, 7, 10)})
    found = open_data(tmp_path)
    assert found.classes is None and dict(zip(map(found.ids, range(3)), found.labels.tolist())) == {
        "10/a.png": 10, "3/a.png": 3, "7/a.png": 7,
    }  # fmt: skip


def test_images_without_classes(tmp_path: Path) -> None:
    put(tmp_path, {"b.png": image(GREY), "a.png": image(GREY // 2)})
    found = open_data(tmp_path)
    assert found.labels is None and found.classes is None and found.ids(0) == "a.png"
    assert np.array_equal(found.inputs([1])[0, 0], GREY / 255)


@pytest.mark.parametrize("values, mode, expected", [
    (GREY, None, GREY[None] / 255),
    (GREY > 100, None, (GREY > 100)[None] * 1.0),
    (GREY.astype(np.uint16) * 273, None, GREY[None].astype(float) * 273 / 65535),
    (GREY, "LA", GREY[None] / 255),
    (PICTURE, None, PICTURE.transpose(2, 0, 1) / 255),
    (PICTURE, "RGBA", PICTURE.transpose(2, 0, 1) / 255),
    (GREY, "P", np.stack([GREY] * 3) / 255),
])  # fmt: skip
def test_kinds_of_pixels(tmp_path: Path, values: np.ndarray, mode: str | None, expected: np.ndarray) -> None:
    put(tmp_path, {"a.png": image(values, mode=mode)})
    found = open_data(tmp_path)
    assert found.shape == expected.shape and np.array_equal(found.inputs([0])[0], expected)


def test_the_ends_are_exact(tmp_path: Path) -> None:
    put(tmp_path, {"a.png": image(np.array([[0, 255]], np.uint8))})
    assert open_data(tmp_path).inputs([0]).tolist() == [[[[0.0, 1.0]]]]
    put(tmp_path, {"a.png": image(np.array([[0, 65535]], np.uint16))})
    assert open_data(tmp_path).inputs([0]).tolist() == [[[[0.0, 1.0]]]]


def test_one_unreadable_image_is_not_the_end(tmp_path: Path) -> None:
    good = image(PICTURE)
    see_through = np.dstack([PICTURE, np.full((6, 5), 254, np.uint8)])
    animated = saved(Image.fromarray(PICTURE), "WEBP", save_all=True, append_images=[Image.fromarray(PICTURE // 2)])
    bad = {
        "a.png": (b"", "no image of a known kind"),
        "b.png": (b"%!PS-Adobe-3.0 EPSF-3.0\n", "no image of a known kind"),
        "c.png": (good[: len(good) // 2], "damaged: "),
        "d.png": (image(see_through), "some pixels are transparent"),
        "e.webp": (animated, "it holds 2 pictures"),
        "f.jpg": (saved(Image.fromarray(PICTURE).convert("CMYK"), "JPEG"), "kind CMYK are not supported"),
    }
    put(tmp_path, {"m.png": good, "n.png": good} | {name: data for name, (data, _) in bad.items()})
    found = open_data(tmp_path)
    values = found.inputs(np.arange(found.count))
    for k in range(found.count):
        name = found.ids(k)
        if name in bad:
            assert np.isnan(values[k]).all() and found.trouble(k).startswith(f"{name}: ")
            assert bad[name][1] in found.trouble(k) and "\n" not in found.trouble(k)
        else:
            assert np.array_equal(values[k], PICTURE.transpose(2, 0, 1) / 255) and found.trouble(k) is None


def test_colours_of_16_bits_are_not_halved(tmp_path: Path) -> None:
    """Pillow would read such an image as 8 bits without a word; it cannot write one, so the file is made here."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" + struct.pack(">3H", 1, 300, 65535))
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    put(tmp_path, {"a.png": data, "b.png": image(np.zeros((1, 1, 3), np.uint8))})
    assert "16 bits per channel are not supported" in open_data(tmp_path).trouble(0)


def test_images_too_large_to_decode(tmp_path: Path) -> None:
    head = bytearray(image(GREY, "BMP"))
    head[18:26] = (30_000).to_bytes(4, "little") * 2
    put(tmp_path, {"a.bmp": bytes(head), "b.bmp": image(GREY, "BMP")})
    found = open_data(tmp_path)
    assert found.shape == (1, 6, 5) and "decompression bomb" in found.trouble(0)


@pytest.mark.parametrize("files, words", [
    ({}, r"holds no images: no file ends in \.png, \.jpg"),
    ({"a.gif": b"", "b.txt": b""}, "holds no images"),
    ({"a.png": image(GREY), "b.png": image(GREY[:5])}, "b.png is 5x5 with 1 channel, but a.png is 5x6 with 1 channel"),
    ({"a.png": image(GREY), "b.png": image(PICTURE)}, "b.png is 5x6 with 3 channels, but a.png"),
    ({"a.png": b"", "b.png": b"1"}, "none of the 2 images can be read; a.png: no image of a known kind"),
    ({"a.png": image(GREY), "c/b.png": image(GREY)}, "some images lie in folders of classes, but a.png does not"),
    ({"c/b.png": image(GREY), "d/b.txt": b""}, "the folder of a class, 'd', holds no images"),
    ({"b.png": image(GREY), "d/b.txt": b""}, "the folder of a class, 'd', holds no images"),
    ({"c/b.png": image(GREY), "c/d/e.png": image(GREY)}, "folders within the folders of the classes are not read"),
])  # fmt: skip
def test_folders_that_make_no_sense(tmp_path: Path, files: dict[str, bytes], words: str) -> None:
    with pytest.raises(InputError, match=words):
        open_data(put(tmp_path, files))


def test_a_dangling_link_is_an_error(tmp_path: Path) -> None:
    put(tmp_path, {"a.png": image(GREY)})
    (tmp_path / "b.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(InputError, match=r"b\.png cannot be read"):
        open_data(tmp_path)


def test_images_are_decoded_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, {f"{k}.png": image(GREY) for k in range(5)})
    found = open_data(tmp_path)
    decoded = []
    pixels = images._pixels
    monkeypatch.setattr(images, "_pixels", lambda *a: decoded.append(1) or pixels(*a))
    found.inputs([3, 1])
    assert len(decoded) == 2


def test_an_image_changed_in_between(tmp_path: Path) -> None:
    put(tmp_path, {"a.png": image(GREY), "b.png": image(GREY)})
    found = open_data(tmp_path)
    put(tmp_path, {"b.png": image(GREY // 2)})
    assert np.isfinite(found.inputs([0])).all()
    with pytest.raises(InputError, match="was changed since the folder was opened"):
        found.inputs([1])
    assert open_data(tmp_path).digest != found.digest


def test_sent_to_another_process(tmp_path: Path) -> None:
    put(tmp_path, {"a.png": image(GREY), "b.png": b""})
    found = open_data(tmp_path)
    again = pickle.loads(pickle.dumps(found))
    assert again.ids(1) == "b.png" and again.trouble(1) == found.trouble(1)
    assert np.array_equal(again.inputs([0]), found.inputs([0]))


def test_input_shape(tmp_path: Path) -> None:
    put(tmp_path, {"a.png": image(GREY)})
    assert np.array_equal(open_data(tmp_path, input_shape=(30,)).inputs([0])[0], GREY.reshape(-1) / 255)
    with pytest.raises(InputError, match="cannot be seen as"):
        open_data(tmp_path, input_shape=(28, 28))

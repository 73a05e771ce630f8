"""Trained networks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from . import _native
from ._files import Embeddings, from_native
from ._progress import Events


class Model:
    """The network of a run, with its preparation of images.

    >>> model = Model.load("runs/photos")                     # doctest: +SKIP
    >>> rows = model.embed(["photos", "more/7.jpg"])          # doctest: +SKIP
    >>> rows.embeddings.shape                                 # doctest: +SKIP
    """

    def __init__(self, native: Any) -> None:
        self._native = native

    @classmethod
    def load(
        cls,
        run: str | os.PathLike[str],
        *,
        checkpoint: str | None = None,
        device: str = "auto",
        normalize: bool | None = None,
        products: str | None = None,
    ) -> Model:
        """Opens the network of a run directory.

        :param checkpoint: ``best`` (by the validation) or ``last``; by default the one that the run was measured with.
        :param device: ``auto``, ``cpu``, or a GPU if this build has one.
        :param normalize: whether rows are scaled to length 1; None: as the run's metric needs.
        :param products: ``f32``, ``f32-direct`` (without Winograd's algorithm), ``bf16`` or ``int8`` (after
            :meth:`calibrate`), on the CPU; None: as the run's ``evaluation.products``.
        """
        return cls(_native.Model.load(os.fspath(run), checkpoint, device, normalize, products))

    @property
    def info(self) -> dict[str, Any]:
        """``fingerprint``, ``metric``, ``step``, ``config`` (the run file).

        Embeddings with the same fingerprint are comparable. A fingerprint that ends in ``#unscaled`` is that of rows that are not
        scaled to length 1; by the cosine they are also comparable with scaled rows of the same model.
        """
        return self._native.info()

    def __repr__(self) -> str:
        info = self.info
        return f"Model({info['fingerprint'][:16]}, step={info['step']}, metric={info['metric']!r})"

    def embed(self, images: Any, *, split: str | None = None, progress: bool = True) -> Embeddings:
        """Embeds images.

        :param images: a path, or a list of paths: images, folders, archives, manifests. Or images in memory: an array
            of shape ``(n, height, width, 3)``, or a list of arrays ``(height, width)``, ``(height, width, 1 or 3)`` with
            values from 0 to 255 (u8), or of PIL images. A PIL image is prepared as its file is: turned upright by its
            EXIF orientation, transparency composited on white, 16 bits rounded to 8.
        :param split: the split of a data set that has several.
        :param progress: shows a progress bar if tqdm is installed.
        :returns: one row per image that could be read, with labels and paths where files have them. The others are
            named in a warning.
        :raises ValueError: when no image can be read, for arrays of another shape or dtype, and for PIL images whose mode
            does not define white (``I``, ``F``).
        """
        paths, arrays = _images(images)
        with Events(progress) as events:
            if arrays is None:
                found = self._native.embed_files(paths, split, events)
            else:
                found = self._native.embed_arrays(arrays, events)
                found["paths"] = found["source"] = found["sources"] = None
        return from_native(found)


    def calibrate(
        self, images: Any, *, count: int = 256, split: str | None = None, progress: bool = True
    ) -> dict[str, Any]:
        """Measures the ranges of the network's values, so that it can embed in int8: ``Model.load(run, products="int8")``.

        The ranges are written into the run directory. Networks of convolutions embed 2 to 4 times as fast in int8 on
        CPUs with AVX-512 VNNI, and up to 8 times with AMX.

        :param images: a path, or a list of paths, of images such as those of the gallery.
        :param count: how many of them are measured, evenly spaced.
        :param split: the split of a data set that has several.
        :param progress: shows a progress bar if tqdm is installed.
        :returns: ``file``, ``images`` (how many were measured), and the cosine distance between their embeddings in int8
            and in f32: ``mean_distance``, ``largest_distance``.
        :raises ValueError: when the network has no form in int8, such as a transformer, or no image can be read.
        """
        paths, arrays = _images(images)
        if arrays is not None:
            raise ValueError("images: wanted paths; save images that are in memory to files")
        if count < 1:
            raise ValueError(f"count: wanted at least 1, got {count}")
        with Events(progress) as events:
            return self._native.calibrate(paths, split, count, events)


def _images(images: Any) -> tuple[list[str], list[np.ndarray] | None]:
    """Paths, or arrays of shape (height, width, channels)."""
    if isinstance(images, (str, os.PathLike)):
        return [os.fspath(images)], None
    if isinstance(images, np.ndarray):
        if images.ndim != 4:
            raise ValueError(
                f"images: wanted an array of shape (n, height, width, channels), got shape {images.shape}; "
                "give one image as a list of one"
            )
        return [], [_array(image, number) for number, image in enumerate(images)]
    items: Sequence[Any] = list(images) if isinstance(images, Iterable) else [images]
    if all(isinstance(item, (str, os.PathLike)) for item in items):
        if not items:
            raise ValueError("images: the list is empty")
        return [os.fspath(item) for item in items], None
    return [], [_array(item, number) for number, item in enumerate(items)]


def _array(image: Any, number: int) -> np.ndarray:
    array = _of_pil(image, number) if hasattr(image, "convert") and hasattr(image, "mode") else np.asarray(image)
    if array.dtype != np.uint8:
        raise ValueError(f"images: wanted values from 0 to 255 (uint8), image {number} has {array.dtype}")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in (1, 3):
        raise ValueError(
            f"images: wanted the shape (height, width), (height, width, 1) or (height, width, 3), image {number} has "
            f"{array.shape}"
        )
    return array


# Colour modes of PIL without transparency of their own, and the one that each is converted to.
_OPAQUE = {"1": "L", "L": "L", "RGB": "RGB", "RGBX": "RGB", "CMYK": "RGB", "YCbCr": "RGB", "HSV": "RGB"}
# Those with transparency, as a channel or in the palette.
_BLENDED = {"LA": "LA", "La": "LA", "RGBA": "RGBA", "RGBa": "RGBA", "PA": "RGBA"}


def _of_pil(image: Any, number: int) -> np.ndarray:
    """The pixels of a PIL image as the decoder of files gives them: upright, grey or RGB, 8 bits, on white."""
    from PIL import ImageOps

    image = ImageOps.exif_transpose(image)
    mode, transparent = image.mode, image.info.get("transparency")
    if mode.startswith("I;16"):
        grey = np.asarray(image).astype(np.uint32)
        alpha = np.full_like(grey, _WHITE) if transparent is None else np.where(grey == transparent, 0, _WHITE)
        return _on_white(grey[:, :, None], alpha)
    if mode == "P":
        has_alpha = transparent is not None or image.palette is not None and image.palette.mode == "RGBA"
        target = "RGBA" if has_alpha else "RGB"
    elif mode in _OPAQUE and transparent is not None:
        # One colour of the file is transparent.
        target = "LA" if _OPAQUE[mode] == "L" else "RGBA"
    else:
        target = _OPAQUE.get(mode) or _BLENDED.get(mode)
    if target is None:
        raise ValueError(
            f"images: image {number} has the mode {mode!r}, which does not define which value is white\n"
            'hint: scale its values to 0 to 255 and convert it to "L" or "RGB"'
        )
    array = np.asarray(image if mode == target else image.convert(target))
    if target in ("L", "RGB"):
        return array
    wide = array.astype(np.uint32) * 257
    return _on_white(wide[:, :, :-1], wide[:, :, -1])


_WHITE = 65_535


def _on_white(colours: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Composites 16-bit values, shape (height, width, channels), on white, and rounds them to 8 bits."""
    alpha = alpha.astype(np.uint32)[:, :, None]
    mixed = (colours * alpha + np.uint32(_WHITE) * (_WHITE - alpha) + _WHITE // 2) // _WHITE
    return ((mixed + 128) // 257).astype(np.uint8)

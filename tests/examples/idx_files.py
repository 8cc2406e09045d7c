"""Writes IDX files, plain or gzipped, for the tests that read them."""

import gzip
import struct

import numpy as np


def idx_bytes(array, type_code=0x08):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, type_code, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_set(folder, images, labels, dot="-", suffix=""):
    opener = gzip.open if suffix else open
    for split in ("train", "t10k"):
        for kind, array in (("images", images), ("labels", labels)):
            name = f"{split}-{kind}{dot}idx{array.ndim}-ubyte{suffix}"
            with opener(folder / name, "wb") as file:
                file.write(idx_bytes(array))

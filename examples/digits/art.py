"""Images as text, for terminals."""

import shutil
from collections.abc import Sequence

from torch import Tensor

SHADES = " .:-=+*#%@"
GAP = "   "


def _lines(image: Tensor) -> list[str]:
    """A character cell is about twice as tall as wide: widen small images, halve big ones."""
    small = image.shape[0] < 16
    widen, rows = (2, image) if small else (1, (image[0::2] + image[1::2]) / 2)
    shade = (rows.clamp(0, 1) * (len(SHADES) - 1)).round().long().tolist()
    return ["".join(SHADES[level] * widen for level in row) for row in shade]


def side_by_side(images: Sequence[Tensor], captions: Sequence[str]) -> str:
    """(height, width) images with a caption under each, in as many rows as the terminal needs."""
    blocks = []
    for image, caption in zip(images, captions, strict=True):
        lines = _lines(image)
        width = max(len(lines[0]), len(caption))
        blocks.append([line.ljust(width) for line in [*lines, caption]])
    if not blocks:
        return ""
    columns = shutil.get_terminal_size().columns
    per_row = max(1, (columns + len(GAP)) // (len(blocks[0][0]) + len(GAP)))
    rows = [blocks[i : i + per_row] for i in range(0, len(blocks), per_row)]
    return "\n\n".join(
        "\n".join(GAP.join(parts).rstrip() for parts in zip(*row, strict=True)) for row in rows
    )

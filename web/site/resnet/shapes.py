"""Pictures of shapes: of any colour, size, place and turn, on a ground that is not plain."""

import numpy as np

SIDE = 64
# Of a point (u, v) with the distance r from the middle and the angle a: whether it is inside of a
# shape that reaches to about 1.
SHAPES = {
    "circle": lambda u, v, r, a: r < 0.9,
    "ring": lambda u, v, r, a: (r < 1) & (r > 0.6),
    "square": lambda u, v, r, a: np.maximum(abs(u), abs(v)) < 0.75,
    "triangle": lambda u, v, r, a: r * np.cos((a % (2 * np.pi / 3)) - np.pi / 3) < 0.5,
    "cross": lambda u, v, r, a: (
        (np.minimum(abs(u), abs(v)) < 0.27) & (np.maximum(abs(u), abs(v)) < 0.95)
    ),
    "flower": lambda u, v, r, a: r < 0.7 + 0.35 * np.cos(5 * a),
    "moon": lambda u, v, r, a: (r < 0.95) & ((u - 0.45) ** 2 + v**2 > 0.6),
    "heart": lambda u, v, r, a: (
        ((1.2 * u) ** 2 + (1.2 * v) ** 2 - 0.7) ** 3 < 1.7 * u**2 * (1.2 * v) ** 3
    ),
}
NAMES = list(SHAPES)


def pictures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (count, SIDE, SIDE, 3) and the numbers of their shapes, int64 (count,)."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(len(NAMES), size=count)
    return np.stack([_picture(rng, NAMES[label]) for label in labels]), labels


def _picture(rng: np.random.Generator, name: str) -> np.ndarray:
    fine = 2 * SIDE  # drawn twice as large: soft edges
    y, x = np.mgrid[:fine, :fine] / fine
    ground, colour = rng.random(3), rng.random(3)
    while abs(ground - colour).sum() < 0.8:
        colour = rng.random(3)
    slope = rng.normal(0, 0.25, (2, 3))
    image = ground + (x - 0.5)[..., None] * slope[0] + (y - 0.5)[..., None] * slope[1]
    for _ in range(rng.integers(4)):  # spots that mean nothing
        cx, cy, size = rng.random(), rng.random(), rng.uniform(0.01, 0.04)
        image[(x - cx) ** 2 + (y - cy) ** 2 < size**2] = rng.random(3)
    size, turn = rng.uniform(0.22, 0.42), rng.uniform(-0.5, 0.5)
    cx, cy = rng.uniform(size, 1 - size, 2)
    u, v = (x - cx) / size, (cy - y) / size
    u, v = u * np.cos(turn) - v * np.sin(turn), u * np.sin(turn) + v * np.cos(turn)
    inside = SHAPES[name](u, v, np.hypot(u, v), np.arctan2(u, v) + np.pi)
    image[inside] = colour
    image = image.reshape(SIDE, 2, SIDE, 2, 3).mean((1, 3))
    image += rng.normal(0, rng.uniform(0, 0.06), image.shape)
    return (image.clip(0, 1) * 255).round().astype(np.uint8)

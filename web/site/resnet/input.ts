/** From pictures to what the network takes. */

const MEAN = [0.485, 0.456, 0.406];
const DEVIATION = [0.229, 0.224, 0.225];

/** [1, 3, side, side] without mean and deviation, of pixels that have so many bytes each, red first. */
export function toInput(pixels: ArrayLike<number>, bytes: 3 | 4): Float32Array {
  const area = pixels.length / bytes;
  return Float32Array.from({ length: 3 * area }, (_, k) => {
    const channel = Math.floor(k / area);
    const value = pixels[bytes * (k % area) + channel]! / 255;
    return (value - MEAN[channel]!) / DEVIATION[channel]!;
  });
}

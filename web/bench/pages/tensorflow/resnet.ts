/** ResNet-18. Each normalization is a factor and a sum for each channel, which are taken into the
 * filters before, as ONNX Runtime does with its graph. */

import * as tf from "@tensorflow/tfjs-core";
import type { Run } from "../page";
import type { Tensors } from "../tensors";
import type { Weights } from "./weights";

type Layer = (x: tf.Tensor4D, add?: tf.Tensor4D) => tf.Tensor4D;
const EPSILON = 1e-5;

export function resnet(weights: Weights, inputs: Tensors): Run {
  const convolution = (
    name: string,
    norm: string,
    strides: number,
    pad: number,
    activation: "relu" | "linear",
  ): Layer => {
    const [filter, bias] = tf.tidy(() => {
      const [scale, shift, mean, variance] = ["weight", "bias", "running_mean", "running_var"].map(
        (part) => weights.tensor(`${norm}.${part}`),
      ) as [tf.Tensor1D, tf.Tensor1D, tf.Tensor1D, tf.Tensor1D];
      const factor = tf.mul(scale, tf.rsqrt(tf.add(variance, EPSILON)));
      return [
        tf.mul(weights.filter(`${name}.weight`), factor) as tf.Tensor4D,
        tf.sub(shift, tf.mul(mean, factor)) as tf.Tensor1D,
      ] as const;
    });
    return (x) => tf.fused.conv2d({ x, filter, strides, pad, bias, activation });
  };
  const blocks = [1, 2, 3, 4].flatMap((stage) =>
    [0, 1].map((k) => {
      const part = `layer${stage}.${k}`;
      const strides = stage > 1 && k === 0 ? 2 : 1;
      return {
        first: convolution(`${part}.conv1`, `${part}.bn1`, strides, 1, "relu"),
        second: convolution(`${part}.conv2`, `${part}.bn2`, 1, 1, "linear"),
        shortcut:
          strides === 1
            ? null
            : convolution(`${part}.downsample.0`, `${part}.downsample.1`, 2, 0, "linear"),
      };
    }),
  );
  const stem = convolution("conv1", "bn1", 2, 3, "relu");
  const head = weights.linear("fc");
  const picture = inputs.floats("pixel_values");
  return async () => {
    const result = tf.tidy(() => {
      const image = tf.tensor4d(picture.data, picture.shape as [number, number, number, number]);
      let x = stem(tf.transpose(image, [0, 2, 3, 1]));
      // After a relu zeros at the edges are never larger than what they stand beside.
      x = tf.maxPool(
        tf.pad(x, [
          [0, 0],
          [1, 1],
          [1, 1],
          [0, 0],
        ]),
        3,
        2,
        "valid",
      );
      for (const { first, second, shortcut } of blocks) {
        x = tf.relu(tf.add(second(first(x)), shortcut === null ? x : shortcut(x)));
      }
      return head(tf.mean(x, [1, 2]));
    });
    const data = await result.data();
    result.dispose();
    return data;
  };
}

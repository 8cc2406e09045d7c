/** A training step of the network of examples/digits: the loss before it. */

import * as tf from "@tensorflow/tfjs-core";
import { rows, type Run } from "../page";
import type { Tensors } from "../tensors";
import type { Weights } from "./weights";

const [BATCH, SIDE, CLASSES, LEARNING_RATE] = [64, 8, 10, 1e-3];

export function digits(weights: Weights, inputs: Tensors): Run {
  const filter = (name: string) => tf.variable(weights.filter(`${name}.weight`)) as tf.Tensor4D;
  const plain = (name: string) => tf.variable(weights.tensor(name));
  const [filter1, filter2] = [filter("conv1"), filter("conv2")];
  const [bias1, bias2] = [plain("conv1.bias"), plain("conv2.bias")];
  const [weight, bias] = [plain("classify.weight") as tf.Tensor2D, plain("classify.bias")];
  const optimizer = tf.train.adam(LEARNING_RATE, 0.9, 0.999, 1e-8);
  const images = inputs.floats("images");
  const labels = inputs.integers("labels");
  const batches = labels.data.length / BATCH;
  return async (k) => {
    const begin = (k % batches) * BATCH;
    const batch = tf.tensor4d(rows(images, begin, begin + BATCH), [BATCH, SIDE, SIDE, 1]);
    const wanted = tf.tidy(() =>
      tf.cast(
        tf.oneHot(tf.tensor1d(rows(labels, begin, begin + BATCH), "int32"), CLASSES),
        "float32",
      ),
    );
    const loss = optimizer.minimize(() => {
      let x = tf.relu(tf.add(tf.conv2d(batch, filter1, 1, 1), bias1)) as tf.Tensor4D;
      x = tf.maxPool(tf.relu(tf.add(tf.conv2d(x, filter2, 1, 1), bias2)) as tf.Tensor4D, 2, 2, 0);
      // PyTorch's order of channels, which the weights of the last layer have.
      const flat = tf.reshape(tf.transpose(x, [0, 3, 1, 2]), [BATCH, -1]) as tf.Tensor2D;
      const logits = tf.add(tf.matMul(flat, weight, false, true), bias);
      const sums = tf.sum(tf.mul(tf.logSoftmax(logits), wanted));
      return tf.neg(tf.div(sums, BATCH)) as tf.Scalar;
    }, true)!;
    const data = await loss.data();
    tf.dispose([batch, wanted, loss]);
    return data;
  };
}

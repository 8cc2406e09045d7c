/** PyTorch's weights on TensorFlow.js' device, and the layers that several networks have. */

import * as tf from "@tensorflow/tfjs-core";
import type { Tensors } from "../tensors";

export class Weights {
  constructor(private readonly tensors: Tensors) {}

  tensor(name: string): tf.Tensor {
    const { data, shape } = this.tensors.floats(name);
    return tf.tensor(data, [...shape], "float32");
  }

  /** From (outputs, inputs, height, width) to (height, width, inputs, outputs). */
  filter(name: string): tf.Tensor4D {
    return tf.tidy(() => tf.transpose(this.tensor(name), [2, 3, 1, 0]) as tf.Tensor4D);
  }

  /** x (rows, inputs) to x @ weight.T + bias. The weight is transposed while it is read. */
  linear(name: string, options: { bias?: boolean } = {}): (x: tf.Tensor2D) => tf.Tensor2D {
    const weight = this.tensor(`${name}.weight`) as tf.Tensor2D;
    const bias = options.bias === false ? undefined : this.tensor(`${name}.bias`);
    return (x) => tf.fused.matMul({ a: x, b: weight, transposeB: true, ...(bias && { bias }) });
  }

  layerNorm(name: string, epsilon: number): (x: tf.Tensor2D) => tf.Tensor2D {
    const [scale, shift] = [this.tensor(`${name}.weight`), this.tensor(`${name}.bias`)];
    return (x) => {
      const { mean, variance } = tf.moments(x, -1, true);
      const normal = tf.mul(tf.sub(x, mean), tf.rsqrt(tf.add(variance, epsilon)));
      return tf.add(tf.mul(normal, scale), shift);
    };
  }
}

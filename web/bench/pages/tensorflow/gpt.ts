/** A token of the GPT of examples/llm, with keys and values in caches on the device. */

import * as tf from "@tensorflow/tfjs-core";
import type { Run } from "../page";
import type { Tensors } from "../tensors";
import type { Weights } from "./weights";

const [LAYERS, HEADS, EPSILON, LONGEST_WAVE] = [2, 4, 1e-5, 10000];

const gelu = (x: tf.Tensor2D): tf.Tensor2D => {
  const inner = tf.mul(tf.add(x, tf.mul(tf.pow(x, 3), 0.044715)), Math.sqrt(2 / Math.PI));
  return tf.mul(tf.mul(x, 0.5), tf.add(tf.tanh(inner), 1));
};

export function gpt(weights: Weights, inputs: Tensors): Run {
  const embed = weights.tensor("embed.weight") as tf.Tensor2D;
  const width = embed.shape[1];
  const size = width / HEADS;
  const half = size / 2;
  const layers = Array.from({ length: LAYERS }, (_, k) => {
    const part = `blocks.${k}`;
    return {
      norm1: weights.layerNorm(`${part}.norm1`, EPSILON),
      inputs: weights.linear(`${part}.attention.inputs`, { bias: false }),
      output: weights.linear(`${part}.attention.output`, { bias: false }),
      norm2: weights.layerNorm(`${part}.norm2`, EPSILON),
      widen: weights.linear(`${part}.widen`),
      narrow: weights.linear(`${part}.narrow`),
      // (heads, positions so far, size): empty before the first token.
      keys: null as tf.Tensor3D | null,
      values: null as tf.Tensor3D | null,
    };
  });
  const norm = weights.layerNorm("norm", EPSILON);
  const waves = tf.tensor1d(Array.from({ length: half }, (_, k) => LONGEST_WAVE ** (-k / half)));
  const tokens = inputs.integers("tokens").data;

  const append = (cache: tf.Tensor3D | null, x: tf.Tensor3D): tf.Tensor3D => {
    const grown = tf.keep(cache === null ? tf.clone(x) : tf.concat([cache, x], 1));
    cache?.dispose();
    return grown;
  };

  return async (k) => {
    const result = tf.tidy(() => {
      const angles = tf.mul(waves, k);
      const [cosine, sine] = [tf.cos(angles), tf.sin(angles)];
      const rotate = (x: tf.Tensor): tf.Tensor3D => {
        const [a, b] = tf.split(tf.reshape(x, [HEADS, 1, size]), 2, -1) as [tf.Tensor, tf.Tensor];
        return tf.concat(
          [
            tf.sub(tf.mul(a, cosine), tf.mul(b, sine)),
            tf.add(tf.mul(a, sine), tf.mul(b, cosine)),
          ] as tf.Tensor3D[],
          -1,
        );
      };
      let x = tf.gather(embed, tf.tensor1d([tokens[k]!], "int32")) as tf.Tensor2D;
      for (const layer of layers) {
        const [query, key, value] = tf.split(layer.inputs(layer.norm1(x)), 3, 1) as tf.Tensor[];
        layer.keys = append(layer.keys, rotate(key!));
        layer.values = append(layer.values, tf.reshape(value!, [HEADS, 1, size]) as tf.Tensor3D);
        const scores = tf.matMul(rotate(query!), layer.keys, false, true);
        const mixed = tf.matMul(tf.softmax(tf.mul(scores, 1 / Math.sqrt(size))), layer.values);
        x = tf.add(x, layer.output(tf.reshape(mixed, [1, width]) as tf.Tensor2D));
        x = tf.add(x, layer.narrow(gelu(layer.widen(layer.norm2(x)))));
      }
      return tf.matMul(norm(x), embed, false, true);
    });
    const data = await result.data();
    result.dispose();
    return data;
  };
}

/** MiniLM's encoder (BERT's): vectors of sentences. */

import * as tf from "@tensorflow/tfjs-core";
import type { Run } from "../page";
import type { Tensors } from "../tensors";
import type { Weights } from "./weights";

const [LAYERS, HEADS, EPSILON] = [6, 12, 1e-12];

const gelu = (x: tf.Tensor2D): tf.Tensor2D =>
  tf.mul(tf.mul(x, 0.5), tf.add(tf.erf(tf.mul(x, Math.SQRT1_2)), 1));

export function minilm(weights: Weights, inputs: Tensors): Run {
  const [words, places, kinds] = ["word", "position", "token_type"].map((name) =>
    weights.tensor(`embeddings.${name}_embeddings.weight`),
  ) as [tf.Tensor2D, tf.Tensor2D, tf.Tensor2D];
  const embeddingNorm = weights.layerNorm("embeddings.LayerNorm", EPSILON);
  const layers = Array.from({ length: LAYERS }, (_, k) => {
    const part = `encoder.layer.${k}`;
    return {
      query: weights.linear(`${part}.attention.self.query`),
      key: weights.linear(`${part}.attention.self.key`),
      value: weights.linear(`${part}.attention.self.value`),
      output: weights.linear(`${part}.attention.output.dense`),
      attentionNorm: weights.layerNorm(`${part}.attention.output.LayerNorm`, EPSILON),
      widen: weights.linear(`${part}.intermediate.dense`),
      narrow: weights.linear(`${part}.output.dense`),
      norm: weights.layerNorm(`${part}.output.LayerNorm`, EPSILON),
    };
  });
  const ids = inputs.integers("input_ids");
  const mask = inputs.integers("attention_mask");
  const [batch, length] = ids.shape as [number, number];
  const width = words.shape[1];
  const size = width / HEADS;
  const place = tf.add(
    tf.slice(places, [0, 0], [length, width]),
    tf.slice(kinds, [0, 0], [1, width]),
  );

  const split = (x: tf.Tensor): tf.Tensor =>
    tf.transpose(tf.reshape(x, [batch, length, HEADS, size]), [0, 2, 1, 3]);

  return async () => {
    const result = tf.tidy(() => {
      const known = tf.tensor(Float32Array.from(mask.data), [batch, length]);
      const hidden = tf.reshape(tf.mul(tf.sub(known, 1), 1e9), [batch, 1, 1, length]);
      const embedded = tf.gather(words, tf.tensor1d(ids.data, "int32"));
      const placed = tf.add(tf.reshape(embedded, [batch, length, width]), place);
      let x = embeddingNorm(tf.reshape(placed, [batch * length, width]) as tf.Tensor2D);
      for (const layer of layers) {
        const [query, key, value] = [layer.query, layer.key, layer.value].map((f) => split(f(x)));
        const scores = tf.mul(tf.matMul(query!, key!, false, true), 1 / Math.sqrt(size));
        const mixed = tf.matMul(tf.softmax(tf.add(scores, hidden)), value!);
        const joined = tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [batch * length, width]);
        x = layer.attentionNorm(tf.add(layer.output(joined as tf.Tensor2D), x));
        x = layer.norm(tf.add(layer.narrow(gelu(layer.widen(x))), x));
      }
      const counted = tf.reshape(known, [batch, length, 1]);
      const sums = tf.sum(tf.mul(tf.reshape(x, [batch, length, width]), counted), 1);
      const means = tf.div(sums, tf.sum(counted, 1));
      return tf.div(means, tf.sqrt(tf.sum(tf.square(means), 1, true)));
    });
    const data = await result.data();
    result.dispose();
    return data;
  };
}

/** Graph files, by this project's player. */

import { type Input, load } from "../../../player";
import { rows, type Run, start, type Task } from "../page";

const BATCH = 64;

start(async ({ program, inputs, url }: Task): Promise<Run> => {
  const player = await load(url(`files/${program}.twg`));
  // Each file has one function with one output.
  const [name] = Object.keys(player.functions);
  const call = async (given: Record<string, Input>) =>
    Object.values(await player.run(name!, given))[0] as Float32Array;
  switch (program) {
    case "minilm-1":
    case "minilm-32": {
      const [ids, mask] = [inputs.integers("input_ids"), inputs.integers("attention_mask")];
      const given = {
        input_ids: BigInt64Array.from(ids.data, BigInt),
        attention_mask: BigInt64Array.from(mask.data, BigInt),
      };
      return () => call(given);
    }
    case "resnet": {
      const { data } = inputs.floats("pixel_values");
      return () => call({ pixel_values: data });
    }
    case "gpt": {
      const { data } = inputs.integers("tokens");
      return (k) => call({ token: [data[k]!], position: [k] });
    }
    case "digits": {
      const images = inputs.floats("images");
      const labels = inputs.integers("labels");
      const batches = labels.data.length / BATCH;
      return (k) => {
        const [begin, end] = [(k % batches) * BATCH, ((k % batches) + 1) * BATCH];
        const numbers = BigInt64Array.from(rows(labels, begin, end), BigInt);
        return call({ images: rows(images, begin, end), labels: numbers });
      };
    }
    default:
      throw new Error(`there is no program ${program}`);
  }
});

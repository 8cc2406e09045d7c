/** Values as text: tensors as PyTorch prints them, the rest as JavaScript writes it. */

import { nn, Tensor } from "../../torch";

/** The text of a value. Of a tensor it is what the tensor holds at the time of the call. */
export async function format(value: unknown): Promise<string> {
  return typeof value === "string" ? value : inner(value, new Set());
}

async function inner(value: unknown, around: ReadonlySet<unknown>): Promise<string> {
  if (value instanceof Tensor) {
    const text = value.repr();
    return value instanceof nn.Parameter ? `Parameter containing:\n${await text}` : text;
  }
  if (typeof value === "string") {
    return JSON.stringify(value);
  }
  if (value instanceof Error) {
    return `${value.name}: ${value.message}`;
  }
  if (typeof value === "function") {
    return `[function ${value.name}]`;
  }
  if (typeof value !== "object" || value === null) {
    return String(value);
  }
  if (around.has(value)) {
    return "...";
  }
  const within = new Set([...around, value]);
  const list = (values: readonly unknown[]) =>
    Promise.all(values.map((one) => inner(one, within))).then((texts) => texts.join(", "));
  if (Array.isArray(value) || ArrayBuffer.isView(value)) {
    return `[${await list(Array.from(value as unknown as Iterable<unknown>))}]`;
  }
  if (value instanceof nn.Module) {
    const lines = [...value.named_parameters()].map(
      ([name, parameter]) => `  ${name}: [${parameter.shape.join(", ")}]`,
    );
    return `module with the parameters\n${lines.join("\n")}`;
  }
  const pairs =
    value instanceof Map ? [...(value as Map<unknown, unknown>)] : Object.entries(value);
  const texts = pairs.map(async ([name, one]) => `${String(name)}: ${await inner(one, within)}`);
  return `{${(await Promise.all(texts)).join(", ")}}`;
}

// Writes web/torch/generated: wgsl.mjs is what the build knows of the kernels, the rows and the function library
// (torch_webgpu/share/wgsl, see csrc/wgsl/README.md), as far as web/torch uses it, without comments; gradients.mjs has the
// gradients of pointwise rows.
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gradients } from "./gradients.mjs";

const web = dirname(dirname(fileURLToPath(import.meta.url)));
const source = join(web, "..", "torch_webgpu", "share", "wgsl");

const KERNELS = [
  "check_range",
  "check_true",
  "conv_product",
  "fold_col2im",
  "fold_im2col",
  "gemm",
  "gemm_direct",
  "generate",
  "grid_sample",
  "grid_sample_backward",
  "index_combine",
  "index_copy",
  "index_fill",
  "norm_rows",
  "pool_average",
  "pool_average_backward",
  "pool_max",
  "pool_max_backward",
  "reduce",
  "scan",
  "softmax_rows",
  "sort_block",
  "sort_merge",
  "triangular",
  "upsample",
  "upsample_backward",
];

// Comments say nothing to a shader; those that mark regions do.
const stripped = (text) =>
  text
    .split("\n")
    .map((line) => (line.includes("// @region") ? line : line.replace(/\s*\/\/.*$/, "")))
    .filter((line) => line.trim() !== "")
    .join("\n");

const read = async (name) => JSON.parse(await readFile(join(source, name + ".json"), "utf8"));

function kernelData(kernel) {
  return {
    operands: kernel.operands.map(({ name, access, dtypes, optional, like, akin, element }) => ({
      ...{ name, access, dtypes, optional, like, akin, element },
    })),
    consts: kernel.consts,
    requirements: kernel.requirements,
    regions: kernel.regions,
    regionDefaults: kernel.region_defaults,
    params: kernel.params.map(({ name, type, count, offset }) => ({ name, type, count, offset })),
    paramsBytes: kernel.params_bytes,
    workgroup: kernel.workgroup,
    reportsErrors: kernel.reports_errors,
    text: stripped(kernel.text),
  };
}

// Those are functions of gradients.mjs.
const withoutGradients = (rows) =>
  Object.fromEntries(
    Object.entries(rows).map(([name, row]) => [
      name,
      { ...row, grad: undefined, grad_as: undefined },
    ]),
  );

export async function writeTables() {
  const [kernels, library, tables] = await Promise.all(["kernels", "library", "tables"].map(read));
  const data = {
    kernels: Object.fromEntries(
      KERNELS.map((name) => {
        if (kernels[name] === undefined) {
          throw new Error(`the build has no kernel ${name}`);
        }
        return [name, kernelData(kernels[name])];
      }),
    ),
    library: Object.fromEntries(
      Object.entries(library).map(([name, declaration]) => [name, stripped(declaration.text)]),
    ),
    pointwise: withoutGradients(tables.pointwise),
    reduce: tables.reduce,
    scan: tables.scan,
    random: tables.random,
    factory: tables.factory,
  };
  const folder = join(web, "torch", "generated");
  await mkdir(folder, { recursive: true });
  const text = Object.entries(data).map(
    ([name, value]) =>
      `export const ${name} = JSON.parse(${JSON.stringify(JSON.stringify(value))});\n`,
  );
  await writeFile(
    join(folder, "wgsl.mjs"),
    "// Written by web/tools/tables.mjs.\n" + text.join(""),
  );
  await writeFile(
    join(folder, "gradients.mjs"),
    "// Written by web/tools/gradients.mjs.\n" + gradients(tables.pointwise),
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await writeTables();
}

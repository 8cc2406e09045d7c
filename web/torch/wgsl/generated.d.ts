// The modules that tools/tables.mjs writes. They are absent before the first build.
declare module "*/generated/wgsl.mjs" {
  export const kernels: never;
  export const library: never;
  export const pointwise: never;
  export const reduce: never;
  export const scan: never;
  export const random: never;
  export const factory: never;
}
declare module "*/generated/gradients.mjs" {
  export const formulas: never;
}

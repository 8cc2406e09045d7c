// The module that tools/tables.mjs writes. It is absent before the first build.
declare module "*/generated/wgsl.mjs" {
  export const kernels: never;
  export const library: never;
  export const pointwise: never;
  export const reduce: never;
  export const scan: never;
  export const random: never;
  export const factory: never;
}

// gemm.wgsl for large float32 matrices whose elements lie in groups of four: 128 x 128 elements a
// workgroup, 8 x 8 an invocation, K in steps of 8. Both tiles are kept with K outermost and twice:
// the next step is loaded while this one is computed, with one barrier a step.

@group(0) @binding(31) var<uniform> p: GemmParams;

// The same bindings as the operands', four elements at a time.
@group(0) @binding(0) var<storage, read_write> c4: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> a4: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> b4: array<vec4<f32>>;

// @operands
@group(0) @binding(3) var<storage, read> b3: array<u32>;
fn load_d(i: u32) -> f32 { return bitcast<f32>(b3[i]); }
// @end

// Whether groups of four run along K, or across it.
// @hook WALK
const kAAlongK = true;
const kBAlongK = false;
// @end

// `group` is C's group of four that starts at column n.
// @hook EPILOGUE4
fn epilogue4(acc: vec4<f32>, batch: u32, m: u32, n: u32, group: u32) -> vec4<f32> {
  let i = p.d_offset + batch * p.d_batch + m * p.d_row + n * p.d_column;
  let d = vec4<f32>(load_d(i), load_d(i + p.d_column), load_d(i + 2u * p.d_column),
                    load_d(i + 3u * p.d_column));
  return bitcast<f32>(p.alpha.x) * acc + bitcast<f32>(p.beta.x) * d;
}
// @end

const kSide = 128u;
const kStep = 8u;
const kPitch = 33u; // 32 groups and one of padding, against bank conflicts
const kTile = kStep * kPitch;
var<workgroup> tile_a: array<vec4<f32>, 2u * kTile>;
var<workgroup> tile_b: array<vec4<f32>, 2u * kTile>;

// An invocation's share of a tile: one group of four.
fn load_group_a(base: u32, first: u32, k0: u32, k_end: u32, t: u32) -> vec4<f32> {
  if (kAAlongK) {
    let k = k0 + (t & 1u) * 4u;
    let row = min(first + (t >> 1u), p.m - 1u);
    if (k < k_end) {
      return a4[(base + row * p.a_row + k) >> 2u];
    }
  } else {
    let k = k0 + (t >> 5u);
    let row = min(first + (t & 31u) * 4u, p.m - 4u);
    if (k < k_end) {
      return a4[(base + k * p.a_column + row) >> 2u];
    }
  }
  return vec4<f32>();
}

fn load_group_b(base: u32, first: u32, k0: u32, k_end: u32, t: u32) -> vec4<f32> {
  if (kBAlongK) {
    let k = k0 + (t & 1u) * 4u;
    let column = min(first + (t >> 1u), p.n - 1u);
    if (k < k_end) {
      return b4[(base + column * p.b_column + k) >> 2u];
    }
  } else {
    let k = k0 + (t >> 5u);
    let column = min(first + (t & 31u) * 4u, p.n - 4u);
    if (k < k_end) {
      return b4[(base + k * p.b_row + column) >> 2u];
    }
  }
  return vec4<f32>();
}

fn store_group_a(tile: u32, t: u32, v: vec4<f32>) {
  if (kAAlongK) {
    let i = tile + (t & 1u) * 4u * kPitch + (t >> 3u);
    let lane = (t >> 1u) & 3u;
    tile_a[i][lane] = v.x;
    tile_a[i + kPitch][lane] = v.y;
    tile_a[i + 2u * kPitch][lane] = v.z;
    tile_a[i + 3u * kPitch][lane] = v.w;
  } else {
    tile_a[tile + (t >> 5u) * kPitch + (t & 31u)] = v;
  }
}

fn store_group_b(tile: u32, t: u32, v: vec4<f32>) {
  if (kBAlongK) {
    let i = tile + (t & 1u) * 4u * kPitch + (t >> 3u);
    let lane = (t >> 1u) & 3u;
    tile_b[i][lane] = v.x;
    tile_b[i + kPitch][lane] = v.y;
    tile_b[i + 2u * kPitch][lane] = v.z;
    tile_b[i + 3u * kPitch][lane] = v.w;
  } else {
    tile_b[tile + (t >> 5u) * kPitch + (t & 31u)] = v;
  }
}

fn outer_add(a: vec4<f32>, b: vec4<f32>, acc: mat4x4<f32>) -> mat4x4<f32> {
  return mat4x4<f32>(fma(vec4<f32>(a.x), b, acc[0]), fma(vec4<f32>(a.y), b, acc[1]),
                     fma(vec4<f32>(a.z), b, acc[2]), fma(vec4<f32>(a.w), b, acc[3]));
}

fn store_groups(c_batch: u32, batch: u32, m: u32, n: u32, acc: mat4x4<f32>) {
  if (n >= p.n) {
    return;
  }
  let group = (p.c_offset + c_batch * p.c_batch + m * p.c_row + n) >> 2u;
  let step = p.c_row >> 2u;
  if (m < p.m) { c4[group] = epilogue4(acc[0], batch, m, n, group); }
  if (m + 1u < p.m) { c4[group + step] = epilogue4(acc[1], batch, m + 1u, n, group + step); }
  if (m + 2u < p.m) {
    c4[group + 2u * step] = epilogue4(acc[2], batch, m + 2u, n, group + 2u * step);
  }
  if (m + 3u < p.m) {
    c4[group + 3u * step] = epilogue4(acc[3], batch, m + 3u, n, group + 3u * step);
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * groups.x + wid.x;
  let tiles = p.tiles_m * p.tiles_n;
  let c_batch = id / tiles; // piece * batches + batch
  let batch = c_batch % p.batch;
  let piece = c_batch / p.batch;
  if (piece >= p.splits) {
    return;
  }
  // Tiles are numbered down bands of eight rows of tiles, so that workgroups that run at the same time share parts of A
  // and B in the cache.
  let in_batch = id % tiles;
  let band = in_batch / (8u * p.tiles_n);
  let band_rows = min(8u, p.tiles_m - 8u * band);
  let in_band = in_batch % (8u * p.tiles_n);
  let m0 = (8u * band + in_band % band_rows) * kSide;
  let n0 = in_band / band_rows * kSide;
  let k_begin = piece * p.k_piece;
  let k_end = min(k_begin + p.k_piece, p.k);

  // 32 neighbouring invocations compute 4 x 8 groups.
  let row = (t >> 6u) * 4u + ((t & 31u) >> 3u);
  let column = ((t >> 5u) & 1u) * 8u + (t & 7u);
  let a_base = p.a_offset + batch * p.a_batch;
  let b_base = p.b_offset + batch * p.b_batch;
  var acc00 = mat4x4<f32>();
  var acc01 = mat4x4<f32>();
  var acc10 = mat4x4<f32>();
  var acc11 = mat4x4<f32>();
  store_group_a(0u, t, load_group_a(a_base, m0, k_begin, k_end, t));
  store_group_b(0u, t, load_group_b(b_base, n0, k_begin, k_end, t));
  workgroupBarrier();
  var tile = 0u;
  for (var k0 = k_begin; k0 < k_end; k0 += kStep) {
    let next_a = load_group_a(a_base, m0, k0 + kStep, k_end, t);
    let next_b = load_group_b(b_base, n0, k0 + kStep, k_end, t);
    for (var k = 0u; k < kStep; k++) {
      let at = tile + k * kPitch;
      let a0 = tile_a[at + row];
      let a1 = tile_a[at + 16u + row];
      let b0 = tile_b[at + column];
      let b1 = tile_b[at + 16u + column];
      acc00 = outer_add(a0, b0, acc00);
      acc01 = outer_add(a0, b1, acc01);
      acc10 = outer_add(a1, b0, acc10);
      acc11 = outer_add(a1, b1, acc11);
    }
    tile = kTile - tile;
    store_group_a(tile, t, next_a);
    store_group_b(tile, t, next_b);
    workgroupBarrier();
  }

  let m = m0 + 4u * row;
  let n = n0 + 4u * column;
  store_groups(c_batch, batch, m, n, acc00);
  store_groups(c_batch, batch, m, n + 64u, acc01);
  store_groups(c_batch, batch, m + 64u, n, acc10);
  store_groups(c_batch, batch, m + 64u, n + 64u, acc11);
}

// gemm.wgsl for one to eight columns of floating point numbers, such as the products of a language model that writes one
// token after the other. A is read once for all columns, in groups of 16 bytes: of four float32 or eight halves.
// p.lanes invocations share rows and take different parts of K. An invocation computes neighbouring rows. The last group of A
// may end in zeros: where groups run along K, those of B then do, too.
//
// @operand c: words float
// @operand a: in {bits128}
// @operand b: in {bits128, f32, f16, bf16} // bits128: groups run along K, for groups of A that do too
// @operand d: in float optional
// @operand e: in float optional
// @operand f: in float optional
// @operand g: in float optional
// @operand h: in float optional
// @operand i: in float optional
// @const   elements: {elements_f32, elements_f16, elements_bf16} // of A and B
// @const   a_along_k: bool // groups of A run along K, else across it
// @const   rows_along_k: u32 in {1, 2, 4} // that an invocation computes; across K it computes those of a group
// @const   columns: u32 in {1, 2, 4, 8} // at least p.n
// @const   width: u32 in {1, 2, 4, 8, 16, 32} // neighbouring lanes whose sums subgroups add; 1 without subgroups

import package::matmul::product::{Params, acc_t, epilogue};

const threads = 128u;

@if(elements_f32) const unit = 4u;
@else const unit = 8u;

@if(a_along_k) const rows = rows_along_k;
@else const rows = unit;

// A group of elements. Of halves, element i is group[i % 2][i / 2].
@if(elements_f32) alias group_t = vec4<f32>;
@else alias group_t = mat2x4<f32>;

@if(elements_f32)
fn widened(bits: vec4<u32>) -> group_t {
  return bitcast<vec4<f32>>(bits);
}
@elif(elements_f16)
fn widened(bits: vec4<u32>) -> group_t {
  let x = f2_from_f16(bits.x);
  let y = f2_from_f16(bits.y);
  let z = f2_from_f16(bits.z);
  let w = f2_from_f16(bits.w);
  return group_t(vec4<f32>(x.x, y.x, z.x, w.x), vec4<f32>(x.y, y.y, z.y, w.y));
}
@else
fn widened(bits: vec4<u32>) -> group_t {
  return group_t(bitcast<vec4<f32>>(bits << vec4<u32>(16u)), bitcast<vec4<f32>>(bits & vec4<u32>(0xffff0000u)));
}

fn element_of(group: group_t, i: u32) -> f32 {
  @if(elements_f32) return group[i];
  @else return group[i % 2u][i / 2u];
}

fn dot4(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

fn add_dot(a: group_t, b: group_t, sum: f32) -> f32 {
  @if(elements_f32) return dot4(a, b, sum);
  @else return dot4(a[1], b[1], dot4(a[0], b[0], sum));
}

fn add_scaled(a: group_t, b: f32, sum: group_t) -> group_t {
  @if(elements_f32) return fma(a, vec4<f32>(b), sum);
  @else return group_t(fma(a[0], vec4<f32>(b), sum[0]), fma(a[1], vec4<f32>(b), sum[1]));
}

// The elements of a column of B at k, k + 1, ...
@if(b_is_bits128)
fn group_of_b(column: u32, k: u32) -> group_t {
  return widened(load_b(p.b_at + (column + k) / unit));
}
@elif(elements_f32)
fn group_of_b(column: u32, k: u32) -> group_t {
  let i = p.b_at + column + k * p.b_row;
  return group_t(load_b(i), load_b(i + p.b_row), load_b(i + 2u * p.b_row), load_b(i + 3u * p.b_row));
}
@else
fn group_of_b(column: u32, k: u32) -> group_t {
  let i = p.b_at + column + k * p.b_row;
  let j = i + 4u * p.b_row;
  return group_t(load_b(i), load_b(i + 2u * p.b_row), load_b(j), load_b(j + 2u * p.b_row),
                 load_b(i + p.b_row), load_b(i + 3u * p.b_row), load_b(j + p.b_row), load_b(j + 3u * p.b_row));
}

@if(b_is_bits128)
fn element_of_b(column: u32, k: u32) -> f32 {
  return element_of(widened(load_b(p.b_at + (column + k) / unit)), k % unit);
}
@else
fn element_of_b(column: u32, k: u32) -> f32 {
  return load_b(p.b_at + column + k * p.b_row);
}

// Groups of A that an invocation loads before it uses the first, so that the loads take their time together.
const unroll = 2u + 2u / columns;

// Of an invocation: element r * columns + c is a part of the product's element in row r and column c.
alias sums_t = array<f32, rows * columns>;

// `lane` is one of those that share the rows.
@if(a_along_k)
fn part_of_sums(batch: u32, m: u32, k_begin: u32, k_end: u32, lane: u32) -> sums_t {
  var sums = sums_t();
  var row_at = array<u32, rows>();
  for (var r = 0u; r < rows; r++) {
    row_at[r] = p.a_at + (batch * p.a_batch + min(m + r, p.m - 1u) * p.a_row) / unit;
  }
  let end = (k_end + unit - 1u) / unit;
  for (var g0 = k_begin / unit + lane; g0 < end; g0 += unroll * p.lanes) {
    var a = array<vec4<u32>, unroll * rows>();
    for (var i = 0u; i < unroll * rows; i++) {
      a[i] = load_a(row_at[i % rows] + min(g0 + i / rows * p.lanes, end - 1u));
    }
    for (var u = 0u; u < unroll; u++) {
      let g = g0 + u * p.lanes;
      if (g < end) {
        for (var c = 0u; c < columns; c++) {
          let b = group_of_b(batch * p.b_batch + min(c, p.n - 1u) * p.b_column, g * unit);
          for (var r = 0u; r < rows; r++) {
            sums[r * columns + c] = add_dot(widened(a[u * rows + r]), b, sums[r * columns + c]);
          }
        }
      }
    }
  }
  return sums;
}
@else
fn part_of_sums(batch: u32, m: u32, k_begin: u32, k_end: u32, lane: u32) -> sums_t {
  var sums = array<group_t, columns>();
  let a_first = p.a_at + (batch * p.a_batch + min(m, (p.m - 1u) / unit * unit)) / unit;
  for (var k0 = k_begin + lane; k0 < k_end; k0 += unroll * p.lanes) {
    var a = array<vec4<u32>, unroll>();
    for (var u = 0u; u < unroll; u++) {
      a[u] = load_a(a_first + min(k0 + u * p.lanes, k_end - 1u) * (p.a_column / unit));
    }
    for (var u = 0u; u < unroll; u++) {
      let k = k0 + u * p.lanes;
      if (k < k_end) {
        for (var c = 0u; c < columns; c++) {
          let b = element_of_b(batch * p.b_batch + min(c, p.n - 1u) * p.b_column, k);
          sums[c] = add_scaled(widened(a[u]), b, sums[c]);
        }
      }
    }
  }
  var all = sums_t();
  for (var i = 0u; i < rows * columns; i++) {
    all[i] = element_of(sums[i % columns], i / columns);
  }
  return all;
}

// The sum over `width` lanes that lie `distance` invocations apart, in each of them.
fn sum_of_lanes(part: f32, distance: u32) -> f32 {
  var sum = part;
  @if(subgroups) {
    for (var apart = 1u; apart < width; apart *= 2u) {
      sum += subgroupShuffleXor(sum, apart * distance);
    }
  }
  return sum;
}

// What is left is added by way of workgroup memory, so many columns at a time that they fit 16 KiB.
const left = threads / width;
const turns = (rows * columns * left + 4095u) / 4096u;
const columns_at_once = columns / turns;
var<workgroup> parts: array<f32, rows * columns_at_once * left>;

@if(subgroups)
struct Invocation {
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_size) subgroup_size: u32,
  @builtin(subgroup_invocation_id) subgroup_lane: u32,
}
@else
struct Invocation {
  @builtin(local_invocation_index) index: u32,
}

fn store_row(c_batch: u32, batch: u32, m: u32, n: u32, sum: f32) {
  @if(!owns_c) {
    if (m < p.m) {
      store_c(p.c_at + c_batch * p.c_batch + m * p.c_row + n * p.c_column, epilogue(sum, batch, m, n));
    }
  }
}

// Rows m and m + 1, whose elements of C lie side by side where it owns its words. It has an even number of rows then.
fn store_rows(c_batch: u32, batch: u32, m: u32, n: u32, sums: vec2<f32>) {
  @if(owns_c) {
    if (m < p.m) {
      store2_c(p.c_at + c_batch * p.c_batch + m + n * p.c_column, epilogue(sums.x, batch, m, n),
               epilogue(sums.y, batch, m + 1u, n));
    }
  }
  @else {
    store_row(c_batch, batch, m, n, sums.x);
    store_row(c_batch, batch, m + 1u, n, sums.y);
  }
}

// What all lanes of a row have added to column `c` of those at once. `row` counts those of the workgroup.
fn sum_of_row(row: u32, c: u32) -> f32 {
  let shared_by = p.lanes / width;
  let neighbours = threads / p.lanes;
  let first = (row % rows * columns_at_once + c) * left + row / rows;
  var sum = 0.0;
  for (var i = 0u; i < shared_by; i++) {
    sum += parts[first + i * neighbours];
  }
  return sum;
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, at: Invocation) {
  @if(subgroups) let t = at.subgroup * at.subgroup_size + at.subgroup_lane;
  @else let t = at.index;
  let id = wid.y * groups.x + wid.x;
  let c_batch = id / p.tiles_m; // piece * batches + batch
  let batch = c_batch % p.batch;
  let piece = c_batch / p.batch;
  if (piece >= p.splits) {
    return;
  }
  // Along K, the lanes of a row are neighbours; across it, the rows of a lane.
  let neighbours = threads / p.lanes;
  @if(a_along_k) let lane = t % p.lanes;
  @else let lane = t / neighbours;
  @if(a_along_k) let place = t / p.lanes;
  @else let place = t % neighbours;
  @if(a_along_k) let distance = 1u;
  @else let distance = neighbours;
  let m0 = id % p.tiles_m * (neighbours * rows);
  let k_begin = piece * p.k_piece;
  var sums = part_of_sums(batch, m0 + place * rows, k_begin, min(k_begin + p.k_piece, p.k), lane);

  for (var turn = 0u; turn < turns; turn++) {
    let first_column = turn * columns_at_once;
    if (turn > 0u) {
      workgroupBarrier();
    }
    for (var i = 0u; i < rows * columns_at_once; i++) {
      let of_row = i / columns_at_once * columns;
      let sum = sum_of_lanes(sums[of_row + first_column + i % columns_at_once], distance);
      if (lane % width == 0u) {
        parts[i * left + lane / width * neighbours + place] = sum;
      }
    }
    workgroupBarrier();
    let pairs = (neighbours * rows + 1u) / 2u;
    for (var o = t; o < pairs * columns_at_once; o += threads) {
      let row = o % pairs * 2u;
      let c = o / pairs;
      if (first_column + c < p.n) {
        let last = min(row + 1u, neighbours * rows - 1u);
        let pair = vec2<f32>(sum_of_row(row, c), sum_of_row(last, c));
        if (last > row) {
          store_rows(c_batch, batch, m0 + row, first_column + c, pair);
        } else {
          store_row(c_batch, batch, m0 + row, first_column + c, pair.x);
        }
      }
    }
  }
}

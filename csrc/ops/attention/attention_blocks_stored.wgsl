// The gradients of keys and values from what attention_blocks_queries.wgsl stored: the products of transposed weights and
// gradients of the result, and of transposed gradients of scores and queries. A workgroup has 128 keys and 64 dimensions of one
// of the two. An invocation has 8 x 8 sums in registers.
//
// The totals of gradient.wgsl multiply the rows of queries and of gradients of the result.
//
// @operand pairs: in {bits64}
// @operand dk: words {f32, f16, bf16}
// @operand dv: words {f32, f16, bf16}
// @operand stored: in {bits128}
// @const   stored_rows: u32 in {32, 64, 128} // of the other kernel
// @const   stored_columns: u32 in {32, 64, 128}

import package::matmul::outer::{outer_add};
import package::attention::operands::{Params, Matrix, matrix_q, q_group, k_group, v_group};
import package::attention::operands::{operand_q, operand_k, operand_v, operand_g};
import package::attention::groups::{from_halves};
import package::attention::gradient::{Params, matrix_g, g_group, group_of, total_at};
import package::attention::gradient::{store_group_of_dk, store_group_of_dv};
import package::attention::stored_words::{stored_at};
import package::attention::stored::{Params, stored_before, stored_keys, stored_unit, tiles_of_unit, all_stored_keys};
// @require !has_bias
// @require !dropped

struct Params {
  dk_strides: vec4<u32>,
  dv_strides: vec4<u32>,
  tiles: u32,         // of the keys of a head
  tiles_of_dims: u32, // of the wider one of keys and values
  workgroups: u32,
  one: u32,           // 1, which compilers cannot know
}

const threads = 128u;
const lanes = 8u;   // invocations that share keys
const height = 16u; // that share dimensions
const rows = 128u;  // keys
const row_groups = rows / 4u;
const dims = 64u;
const dim_groups = dims / 4u;
const step = 16u; // queries

// Of a step: weights or gradients of scores, [query][group of keys], and rows of the other factor.
var<workgroup> row_part: array<vec4<f32>, step * row_groups>;
var<workgroup> column_part: array<vec4<f32>, step * dim_groups>;

// What a workgroup computes.
const of_values = 0u;

// A group of the step from query `first` on; zero behind the last query, and for keys that its tile does not have.
fn stored_group(head: u32, kind: u32, first: u32, n: u32, first_key: u32) -> vec4<f32> {
  let query = first + n / row_groups;
  let tile = query / stored_rows;
  let keys = stored_keys(tile);
  let key = first_key + n % row_groups * 4u;
  if (query < p.queries && key < keys) {
    let row = kind * stored_rows + query % stored_rows;
    return bitcast<vec4<f32>>(load_stored(p.stored_at + stored_at(head, tile) + (row * keys + key) / 4u));
  }
  return vec4<f32>();
}

// A group of the other factor's rows, times the total of its query.
fn factor_group(m: Matrix, batch: u32, head: u32, first: u32, d0: u32, n: u32) -> vec4<f32> {
  let query = first + n / dim_groups;
  let d = d0 + n % dim_groups * 4u;
  if (query < m.rows && d < m.dims) {
    return group_of(m.operand, m.at + query * m.stride, d) * bitcast<f32>(load_pairs(total_at(batch, head, query)).x);
  }
  return vec4<f32>();
}

fn store_rows(block: mat4x4<f32>, kind: u32, batch: u32, head: u32, key: u32, d: u32) {
  var sums = block;
  for (var i = 0u; i < 4u * p.one; i++) {
    if (key + i < p.keys) {
      if (kind == of_values) {
        if (d < p.value_dims) {
          store_group_of_dv(batch * p.dv_strides.x + head * p.dv_strides.y + (key + i) * p.dv_strides.z, d, sums[i]);
        }
      } else if (d < p.dims) {
        store_group_of_dk(batch * p.dk_strides.x + head * p.dk_strides.y + (key + i) * p.dk_strides.z, d, sums[i] * p.scale);
      }
    }
  }
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * workgroups.x + wid.x;
  if (id >= p.workgroups) {
    return;
  }
  // Both products of the same keys are neighbours. The first keys of all heads come first, because the most queries see them.
  let kind = id % 2u;
  let d0 = id / 2u % p.tiles_of_dims * dims;
  let of_heads = id / 2u / p.tiles_of_dims;
  let heads_of_keys = p.heads_of_dispatch / p.group;
  let of_dispatch = of_heads % heads_of_keys * p.group;
  let first_key = of_heads / heads_of_keys * rows;
  let batch = (p.first_of_call + of_dispatch) / p.heads;
  let first_head = (p.first_of_call + of_dispatch) % p.heads;
  let row = t / lanes;
  let column = t % lanes;

  @repeat(i, 2) @repeat(j, 2) var s$i$j = mat4x4<f32>();
  let begin = select(0u, first_key, causal);
  for (var n = 0u; n < p.group; n++) {
    let head = first_head + n;
    var m = matrix_q(batch, head);
    if (kind == of_values) {
      m = matrix_g(batch, head);
    }
    var a0 = stored_group(of_dispatch + n, kind, begin, t, first_key);
    var a1 = stored_group(of_dispatch + n, kind, begin, t + threads, first_key);
    var a2 = stored_group(of_dispatch + n, kind, begin, t + 2u * threads, first_key);
    var a3 = stored_group(of_dispatch + n, kind, begin, t + 3u * threads, first_key);
    var b0 = factor_group(m, batch, head, begin, d0, t);
    var b1 = factor_group(m, batch, head, begin, d0, t + threads);
    for (var first = begin; first < p.queries; first += step) {
      workgroupBarrier();
      row_part[t] = a0;
      row_part[t + threads] = a1;
      row_part[t + 2u * threads] = a2;
      row_part[t + 3u * threads] = a3;
      column_part[t] = b0;
      column_part[t + threads] = b1;
      workgroupBarrier();
      let next = first + step;
      a0 = stored_group(of_dispatch + n, kind, next, t, first_key);
      a1 = stored_group(of_dispatch + n, kind, next, t + threads, first_key);
      a2 = stored_group(of_dispatch + n, kind, next, t + 2u * threads, first_key);
      a3 = stored_group(of_dispatch + n, kind, next, t + 3u * threads, first_key);
      b0 = factor_group(m, batch, head, next, d0, t);
      b1 = factor_group(m, batch, head, next, d0, t + threads);
      for (var k = 0u; k < step; k++) {
        let x0 = row_part[k * row_groups + row];
        let x1 = row_part[k * row_groups + height + row];
        let y0 = column_part[k * dim_groups + column];
        let y1 = column_part[k * dim_groups + lanes + column];
        @repeat(i, 2) @repeat(j, 2) s$i$j = outer_add(x$i, y$j, s$i$j);
      }
    }
  }
  let key_head = first_head / p.group;
  let upper = first_key + 4u * row;
  let lower = upper + 4u * height;
  let d = d0 + 4u * column;
  store_rows(s00, kind, batch, key_head, upper, d);
  store_rows(s01, kind, batch, key_head, upper, d + 4u * lanes);
  store_rows(s10, kind, batch, key_head, lower, d);
  store_rows(s11, kind, batch, key_head, lower, d + 4u * lanes);
}

// The gradients of keys and values from what attention_matrix_queries.wgsl stored: the products of transposed weights and
// gradients of the result, and of transposed gradients of scores and queries, with sums in float32. A workgroup computes both
// for its keys. Two of its subgroups have the gradients of values, the other two those of keys.
//
// The totals of gradient.wgsl multiply the rows of queries and of gradients of the result, as float16.
//
// @enable  f16 subgroups chromium_experimental_subgroup_matrix
// @operand pairs: in {bits64}
// @operand dk: words {f16, bf16}
// @operand dv: words {f16, bf16}
// @operand q: in {bits128} // groups of eight elements
// @operand k: in {bits128}
// @operand v: in {bits128}
// @operand g: in {bits128}
// @operand stored: in {bits128}

import package::attention::operands::{Params, Matrix, matrix_q, operand_q, operand_k, operand_v, operand_g};
import package::attention::gradient::{Params, matrix_g, total_at};
import package::attention::gradient::{store_group_of_dk, store_group_of_dv};
import package::attention::matrix::{Left, Right, Sum, threads, columns, row_groups, step_group};
import package::attention::matrix::{stage_results, results_of};
import package::attention::matrix::{take_scales, q_top, g_top, v_top};
import package::attention::matrix_gradient::{change_top, group_of};
import package::attention::scales::{head_fits, power_of_two, factor_of, top_of};
import package::attention::stored_halves::{stored_rows, stored_columns, stored_at, weight_exponent};
import package::attention::stored::{Params, stored_before, stored_keys, stored_unit, tiles_of_unit, all_stored_keys};
// @require has_scales == bfloat
// @require converted == bfloat
// @require !has_bias

struct Params {
  dk_strides: vec4<u32>,
  dv_strides: vec4<u32>,
  tiles: u32,      // of the keys of a head
  workgroups: u32,
  one: u32,        // 1, which compilers cannot know
}

const rows = stored_rows;

// Row pitches of what is staged of a step, in groups of eight: one is padding, against bank conflicts.
const left_pitch = rows / 8u + 1u;
const right_pitch = row_groups + 1u;
const left_size = columns * left_pitch;
const right_size = columns * right_pitch;
const right_start = 2u * left_size;

// Of 16 queries: weights and gradients of scores, then gradients of the result and queries. At the end 16 x 16 sums of each
// subgroup are staged here.
var<workgroup> products: array<vec4<u32>, 2u * (left_size + right_size)>;

// Which gradients a subgroup computes.
const of_values = 0u;

// Where group n of a step is staged. A step has `row_groups` groups of each query.
fn place_of_right(n: u32) -> u32 {
  return right_start + n / row_groups * right_pitch + n % row_groups;
}

fn left(kind: u32, m: u32) -> Left {
  return subgroupMatrixLoad<Left, col_major>(&products, kind * left_size + m / 8u, left_pitch);
}

fn right(kind: u32, n: u32) -> Right {
  return subgroupMatrixLoad<Right, row_major>(&products, right_start + kind * right_size + n / 8u, right_pitch);
}

// A query's group times its total. Half of it for bfloat16, whose largest magnitudes are close to the end of float16's range.
fn times_total(group: vec4<u32>, total: f32) -> vec4<u32> {
  @if(bfloat) let factor = vec2<f16>(f16(total * 0.5));
  @else let factor = vec2<f16>(f16(total));
  return vec4<u32>(bitcast<u32>(bitcast<vec2<f16>>(group.x) * factor), bitcast<u32>(bitcast<vec2<f16>>(group.y) * factor),
                   bitcast<u32>(bitcast<vec2<f16>>(group.z) * factor), bitcast<u32>(bitcast<vec2<f16>>(group.w) * factor));
}

// Zero for a step behind the last query, which is loaded and not used.
fn stored_group(at: u32, first: u32) -> vec4<u32> {
  if (first < p.queries) {
    return load_stored(p.stored_at + at);
  }
  return vec4<u32>();
}

fn total_of(batch: u32, head: u32, query: u32) -> f32 {
  var total = 0.0;
  if (query < p.queries) {
    total = bitcast<f32>(load_pairs(total_at(batch, head, query)).x);
  }
  return total;
}

fn store_sums(sums: Sum, kind: u32, batch: u32, head: u32, first_row: u32, d0: u32, subgroup: u32, lane: u32) {
  stage_results(sums, subgroup);
  let row = first_row + lane / 2u;
  let d = d0 + lane % 2u * 8u;
  if (row >= p.keys) {
    return;
  }
  if (kind == of_values) {
    @if(dropped) var factor = p.kept;
    @else var factor = 1.0;
    @if(bfloat) factor *= power_of_two(g_top - 14 - weight_exponent);
    let row_at = batch * p.dv_strides.x + head * p.dv_strides.y + row * p.dv_strides.z;
    if (d < p.value_dims) {
      store_group_of_dv(row_at, d, results_of(subgroup, lane, 0u) * factor);
      store_group_of_dv(row_at, d + 4u, results_of(subgroup, lane, 1u) * factor);
    }
  } else {
    @if(bfloat) let factor = p.scale * power_of_two(q_top - 29 + change_top(g_top));
    @else let factor = p.scale;
    let row_at = batch * p.dk_strides.x + head * p.dk_strides.y + row * p.dk_strides.z;
    if (d < p.dims) {
      store_group_of_dk(row_at, d, results_of(subgroup, lane, 0u) * factor);
      store_group_of_dk(row_at, d + 4u, results_of(subgroup, lane, 1u) * factor);
    }
  }
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) t: u32, @builtin(subgroup_id) subgroup: u32) {
  let id = wid.y * workgroups.x + wid.x;
  if (id >= p.workgroups) {
    return;
  }
  // The first keys of all heads come first, because the most queries see them.
  let heads_of_keys = p.heads_of_dispatch / p.group;
  let of_dispatch = id % heads_of_keys * p.group;
  let tile = id / heads_of_keys;
  let batch = (p.first_of_call + of_dispatch) / p.heads;
  let first_head = (p.first_of_call + of_dispatch) % p.heads;
  let key_head = first_head / p.group;
  let first_row = tile * rows;
  @if(bfloat) {
    if (!head_fits(batch, first_head, t)) {
      return;
    }
    take_scales(batch, first_head);
  }
  let lane = t % 32u;
  let kind = subgroup / 2u;
  let m_own = subgroup % 2u * (rows / 2u);

  // An invocation stages groups of one of the step's queries. Keys behind the last stored ones get a copy of these: their sums are
  // not stored.
  let query_of_step = t % columns;
  let group_of_keys = t / columns;
  let last_group = all_stored_keys() / 8u - 1u;
  let keys_0 = min(first_row / 8u + group_of_keys, last_group) * (2u * stored_rows);
  @if(!wide) let keys_1 = min(first_row / 8u + group_of_keys + 8u, last_group) * (2u * stored_rows);
  let left_at = query_of_step * left_pitch + group_of_keys;

  @repeat(i, 2) {
    @repeat(j, 4) var s$i$j = Sum();
    @repeat(j, 4..8) @if(wide) var s$i$j = Sum();
  }
  @repeat(i, 2..4) @repeat(j, 4) @if(!wide) var s$i$j = Sum();
  // If causal, earlier queries see none of the keys. A tile of keys is as long as one of queries, so that the first queries that see
  // some of the keys start a tile, which has them all.
  let begin = select(0u, first_row, causal);
  for (var n = 0u; n < p.group; n++) {
    let head = first_head + n;
    let q = matrix_q(batch, head);
    let g = matrix_g(batch, head);
    var stored = stored_at(of_dispatch + n, begin / stored_rows) + begin % stored_rows + query_of_step;
    var w_0 = stored_group(stored + keys_0, begin);
    var e_0 = stored_group(stored + keys_0 + stored_rows, begin);
    @if(!wide) var w_1 = stored_group(stored + keys_1, begin);
    @if(!wide) var e_1 = stored_group(stored + keys_1 + stored_rows, begin);
    var g_0 = step_group(g, begin, t);
    var q_0 = step_group(q, begin, t);
    var total_0 = total_of(batch, head, begin + t / row_groups);
    @if(wide) var g_1 = step_group(g, begin, t + threads);
    @if(wide) var q_1 = step_group(q, begin, t + threads);
    @if(wide) var total_1 = total_of(batch, head, begin + (t + threads) / row_groups);
    for (var first = begin; first < p.queries; first += columns * p.one) {
      workgroupBarrier();
      products[left_at] = w_0;
      products[left_size + left_at] = e_0;
      @if(!wide) products[left_at + 8u] = w_1;
      @if(!wide) products[left_size + left_at + 8u] = e_1;
      products[place_of_right(t)] = times_total(g_0, total_0);
      products[right_size + place_of_right(t)] = times_total(q_0, total_0);
      @if(wide) products[place_of_right(t + threads)] = times_total(g_1, total_1);
      @if(wide) products[right_size + place_of_right(t + threads)] = times_total(q_1, total_1);
      workgroupBarrier();
      let next = first + columns;
      stored = stored_at(of_dispatch + n, next / stored_rows) + next % stored_rows + query_of_step;
      w_0 = stored_group(stored + keys_0, next);
      e_0 = stored_group(stored + keys_0 + stored_rows, next);
      @if(!wide) w_1 = stored_group(stored + keys_1, next);
      @if(!wide) e_1 = stored_group(stored + keys_1 + stored_rows, next);
      g_0 = step_group(g, next, t);
      q_0 = step_group(q, next, t);
      total_0 = total_of(batch, head, next + t / row_groups);
      @if(wide) g_1 = step_group(g, next, t + threads);
      @if(wide) q_1 = step_group(q, next, t + threads);
      @if(wide) total_1 = total_of(batch, head, next + (t + threads) / row_groups);

      let a0 = left(kind, m_own + 0u);
      let a1 = left(kind, m_own + 16u);
      @if(!wide) let a2 = left(kind, m_own + 32u);
      @if(!wide) let a3 = left(kind, m_own + 48u);
      @repeat(i, 4) {
        let b$i = right(kind, 16u * $i);
        s0$i = subgroupMatrixMultiplyAccumulate(a0, b$i, s0$i);
        s1$i = subgroupMatrixMultiplyAccumulate(a1, b$i, s1$i);
        @if(!wide) s2$i = subgroupMatrixMultiplyAccumulate(a2, b$i, s2$i);
        @if(!wide) s3$i = subgroupMatrixMultiplyAccumulate(a3, b$i, s3$i);
      }
      @repeat(i, 4..8) {
        @if(wide) let b$i = right(kind, 16u * $i);
        @if(wide) s0$i = subgroupMatrixMultiplyAccumulate(a0, b$i, s0$i);
        @if(wide) s1$i = subgroupMatrixMultiplyAccumulate(a1, b$i, s1$i);
      }
    }
  }

  @repeat(i, 2) {
    @repeat(j, 4) store_sums(s$i$j, kind, batch, key_head, first_row + m_own + 16u * $i, 16u * $j, subgroup, lane);
    @repeat(j, 4..8) @if(wide)
    store_sums(s$i$j, kind, batch, key_head, first_row + m_own + 16u * $i, 16u * $j, subgroup, lane);
  }
  @repeat(i, 2..4) @repeat(j, 4) @if(!wide)
  store_sums(s$i$j, kind, batch, key_head, first_row + m_own + 16u * $i, 16u * $j, subgroup, lane);
}

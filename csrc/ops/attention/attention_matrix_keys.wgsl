// attention_gradient_keys.wgsl for float16 on subgroup matrices, with sums in float32. Rows are keys and columns are
// queries: those of all heads that share the keys, one after the other. Weights and gradients of scores are rounded to
// float16. Heads of bfloat16 that fit in float16 are computed too (scales.wgsl).
//
// A row of bfloat16 gradients may be far below the head's largest one. Its gradients of scores are then staged times a
// larger power of two, and its queries times a smaller one, as far as they stay normal float16.
//
// @enable  f16 subgroups chromium_experimental_subgroup_matrix
// @operand pairs: in {bits64}
// @operand dk: words {f16, bf16}
// @operand dv: words {f16, bf16}
// @operand q: in {bits128} // groups of eight elements
// @operand k: in {bits128}
// @operand v: in {bits128}
// @operand g: in {bits128}

import package::attention::operands::{Draws, draws_of, factors_of};
import package::attention::operands::{Params, Matrix, matrix_q, matrix_k, matrix_v, operand_q, operand_k, operand_v};
import package::attention::operands::{operand_g, sees, score_of};
import package::attention::gradient::{Params, draws_of_call, matrix_g, pair_of, total_at};
import package::attention::gradient::{store_group_of_dk, store_group_of_dv};
import package::attention::matrix_gradient::{rows_each, second, group_of, step_matrix, step_columns, weight_matrix};
import package::attention::matrix::{Left, Right, Sum, threads, columns, log2_e, pitch, staged, product_pitch};
import package::attention::matrix::{weight_pitch, step_group, staged_at, stage_rows, row_matrix, products_of, halves_of};
import package::attention::matrix::{row_groups};
import package::attention::matrix::{gradients_of};
import package::attention::matrix::{four_from, are_seen, scores_of, weights_of, is_masked, stage_results, results_of};
import package::attention::matrix::{q_factor, k_factor, v_factor, g_factor, staged_group, score_unit};
import package::attention::matrix::{take_scales, q_top, k_top, v_top, g_top};
import package::attention::matrix_gradient::{change_top, row_word};
import package::attention::matrix_gradient::{bounded, change_of};
import package::attention::score::{Params, final_scores, query_step_from, enter_query_step};
import package::attention::score::{captured_8, captured_16, captured_32, captured_64};
import package::attention::score_gradient::{final_gradients};
import package::attention::scales::{head_fits, power_of_two, factor_of, top_of, shift_of, halves_from};
// @require has_scales == bfloat
// @require bfloat || !converted

struct Params {
  dk_strides: vec4<u32>,
  dv_strides: vec4<u32>,
  tiles: u32,      // of the keys of a head
  workgroups: u32,
  one: u32,        // 1, which compilers cannot know
}

// Two results leave registers for 16 rows of each subgroup. Each row has two invocations: way 0 has columns 0 to 7 of a
// step, way 1 columns 8 to 15.
const rows = 64u;

var<workgroup> steps: array<vec4<u32>, 2u * staged>; // queries, then gradients of results
var<workgroup> products: array<vec4<u32>, 2u * second>;
// Of the queries of a step: lse, delta and total, as gradient.wgsl has them.
var<workgroup> levels: array<f32, columns>;
var<workgroup> deltas: array<f32, columns>;
var<workgroup> totals: array<f32, columns>;
// Of bfloat16: what products of queries and keys, and of gradients and values, are multiplied with.
@if(bfloat)
var<workgroup> units: array<f32, columns>;
@if(bfloat)
var<workgroup> z_units: array<f32, columns>;

// Weights of bfloat16 are staged times 2^14. They are at most 1 but for rounding.
const weight_exponent = 14;
@if(bfloat) const most_weight = 0x1p15f;
@else const most_weight = 2.0;

fn four_units(c: u32) -> vec4<f32> {
  @if(bfloat) return vec4<f32>(units[c], units[c + 1u], units[c + 2u], units[c + 3u]);
  @else return score_unit();
}

fn four_z_units(c: u32) -> vec4<f32> {
  @if(bfloat) return vec4<f32>(z_units[c], z_units[c + 1u], z_units[c + 2u], z_units[c + 3u]);
  @else return vec4<f32>(1.0);
}

fn four_levels(c: u32) -> vec4<f32> {
  return vec4<f32>(levels[c], levels[c + 1u], levels[c + 2u], levels[c + 3u]);
}

fn four_deltas(c: u32) -> vec4<f32> {
  return vec4<f32>(deltas[c], deltas[c + 1u], deltas[c + 2u], deltas[c + 3u]);
}

fn four_totals(c: u32) -> vec4<f32> {
  return vec4<f32>(totals[c], totals[c + 1u], totals[c + 2u], totals[c + 3u]);
}

// What dropout multiplies the weights of four queries with.
fn factors_of_queries(draws: Draws, batch: u32, head: u32, query: u32, key: u32) -> vec4<f32> {
  let e = key % 4u;
  return vec4<f32>(factors_of(draws, batch, head, query, key)[e], factors_of(draws, batch, head, query + 1u, key)[e],
                   factors_of(draws, batch, head, query + 2u, key)[e],
                   factors_of(draws, batch, head, query + 3u, key)[e]);
}

fn store_results_of_dk(results: Sum, head_at: u32, first_row: u32, row: u32, d0: u32, subgroup: u32, lane: u32) {
  stage_results(results, subgroup);
  let result_row = first_row + row + lane / 2u;
  let d = d0 + lane % 2u * 8u;
  @if(bfloat) let factor = p.scale * power_of_two(q_top - 30 + change_top(g_top));
  @else let factor = p.scale;
  if (result_row < p.keys && d < p.dims) {
    store_group_of_dk(head_at + result_row * p.dk_strides.z, d, results_of(subgroup, lane, 0u) * factor);
    store_group_of_dk(head_at + result_row * p.dk_strides.z, d + 4u, results_of(subgroup, lane, 1u) * factor);
  }
}

fn store_results_of_dv(results: Sum, head_at: u32, first_row: u32, row: u32, d0: u32, subgroup: u32, lane: u32) {
  stage_results(results, subgroup);
  let result_row = first_row + row + lane / 2u;
  let d = d0 + lane % 2u * 8u;
  @if(dropped) var kept = p.kept;
  @else var kept = 1.0;
  @if(bfloat) kept *= power_of_two(g_top - 15 - weight_exponent);
  if (result_row < p.keys && d < p.value_dims) {
    store_group_of_dv(head_at + result_row * p.dv_strides.z, d, results_of(subgroup, lane, 0u) * kept);
    store_group_of_dv(head_at + result_row * p.dv_strides.z, d + 4u, results_of(subgroup, lane, 1u) * kept);
  }
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) t: u32, @builtin(subgroup_id) subgroup: u32) {
  let id = wid.y * workgroups.x + wid.x;
  if (id >= p.workgroups) {
    return;
  }
  let key_heads = p.heads / p.group;
  let key_head = id / p.tiles % key_heads;
  let batch = id / p.tiles / key_heads;
  let first_row = id % p.tiles * rows;
  @if(bfloat) {
    if (!head_fits(batch, key_head * p.group, t)) {
      return;
    }
    take_scales(batch, key_head * p.group);
  }
  @if(bfloat) let change_exponent = 15 - change_top(g_top) - weight_exponent;
  let lane = t % 32u;
  let row = t % rows;
  let way = t / rows;
  let key = first_row + row;
  let k = matrix_k(batch, key_head);
  let v = matrix_v(batch, key_head);

  stage_rows(k, k_factor, first_row + subgroup * rows_each, 0u, subgroup, lane);
  @repeat(i, 4) let k0$i = row_matrix(subgroup, 16u * $i);
  @if(wide) stage_rows(k, k_factor, first_row + subgroup * rows_each, 64u, subgroup, lane);
  @if(wide) let k04 = row_matrix(subgroup, 0u);
  @if(wide) let k05 = row_matrix(subgroup, 16u);
  @if(wide) let k06 = row_matrix(subgroup, 32u);
  @if(wide) let k07 = row_matrix(subgroup, 48u);
  stage_rows(v, v_factor, first_row + subgroup * rows_each, 0u, subgroup, lane);
  @repeat(i, 4) let v0$i = row_matrix(subgroup, 16u * $i);
  @if(wide) stage_rows(v, v_factor, first_row + subgroup * rows_each, 64u, subgroup, lane);
  @if(wide) let v04 = row_matrix(subgroup, 0u);
  @if(wide) let v05 = row_matrix(subgroup, 16u);
  @if(wide) let v06 = row_matrix(subgroup, 32u);
  @if(wide) let v07 = row_matrix(subgroup, 48u);
  @if(dropped) let draws = draws_of_call();
  @repeat(i, 4) var dk0$i = Sum();
  @repeat(i, 4..8) @if(wide) var dk0$i = Sum();
  @repeat(i, 4) var dv0$i = Sum();
  @repeat(i, 4..8) @if(wide) var dv0$i = Sum();
  let begin = select(0u, first_row / columns * columns, causal);
  for (var n = 0u; n < p.group; n++) {
    let head = key_head * p.group + n;
    let q = matrix_q(batch, head);
    let g = matrix_g(batch, head);
    @if(tiled && has_blocks) let start = query_step_from(batch, head, first_row, 0u);
    @else let start = begin;
    var next_queries = step_group(q, start, t);
    var next_gradients = step_group(g, start, t);
    @if(wide) var more_queries = step_group(q, start, t + threads);
    @if(wide) var more_gradients = step_group(g, start, t + threads);
    @if(bfloat) var next_word = row_word(batch, head, start + t / row_groups);
    @if(bfloat && wide) var more_word = row_word(batch, head, start + (t + threads) / row_groups);
    for (var first = start; first < p.queries; first = query_step_from(batch, head, first_row, first + columns * p.one)) {
      @if(tiled && has_blocks) let next = query_step_from(batch, head, first_row, first + columns);
      @else let next = first + columns;
      enter_query_step(batch, head, first_row, first);
      workgroupBarrier();
      @if(bfloat) let factor = q_factor * power_of_two(-shift_of(next_word, q_top, g_top));
      @else let factor = 1.0;
      steps[staged_at(t)] = staged_group(next_queries, factor);
      steps[staged + staged_at(t)] = staged_group(next_gradients, g_factor);
      @if(wide) {
        @if(bfloat) let more_factor = q_factor * power_of_two(-shift_of(more_word, q_top, g_top));
        @else let more_factor = 1.0;
        steps[staged_at(t + threads)] = staged_group(more_queries, more_factor);
        steps[staged + staged_at(t + threads)] = staged_group(more_gradients, g_factor);
      }
      if (t < columns) {
        let pair = pair_of(batch, head, first + t);
        levels[t] = select(pair.x, inf_f(), is_neginf_f(pair.x));
        var total = vec2<u32>();
        if (first + t < p.queries) {
          total = load_pairs(total_at(batch, head, first + t));
        }
        @if(bfloat) {
          let shift = shift_of(total.y, q_top, g_top);
          units[t] = score_unit().x * power_of_two(shift);
          z_units[t] = power_of_two(g_top + v_top - 30 + change_exponent + shift);
          deltas[t] = pair.y * power_of_two(change_exponent + shift);
          totals[t] = bitcast<f32>(total.x) * power_of_two(weight_exponent);
        }
        @else {
          deltas[t] = pair.y;
          totals[t] = bitcast<f32>(total.x);
        }
      }
      workgroupBarrier();
      next_queries = step_group(q, next, t);
      next_gradients = step_group(g, next, t);
      @if(wide) more_queries = step_group(q, next, t + threads);
      @if(wide) more_gradients = step_group(g, next, t + threads);
      @if(bfloat) next_word = row_word(batch, head, next + t / row_groups);
      @if(bfloat && wide) more_word = row_word(batch, head, next + (t + threads) / row_groups);

      // x: products of queries and keys. z: products of the gradients of results and of values.
      var x_0 = Sum();
      var z_0 = Sum();
      @repeat(i, 4) {
        let q$i = step_matrix(0u, 16u * $i);
        x_0 = subgroupMatrixMultiplyAccumulate(q$i, k0$i, x_0);
      }
      @repeat(i, 4..8) {
        @if(wide) let q$i = step_matrix(0u, 16u * $i);
        @if(wide) x_0 = subgroupMatrixMultiplyAccumulate(q$i, k0$i, x_0);
      }
      @repeat(i, 4) {
        let g$i = step_matrix(staged, 16u * $i);
        z_0 = subgroupMatrixMultiplyAccumulate(g$i, v0$i, z_0);
      }
      @repeat(i, 4..8) {
        @if(wide) let g$i = step_matrix(staged, 16u * $i);
        @if(wide) z_0 = subgroupMatrixMultiplyAccumulate(g$i, v0$i, z_0);
      }
      subgroupMatrixStore<row_major>(&products, subgroup * rows_each / 4u, x_0, product_pitch);
      subgroupMatrixStore<row_major>(&products, second + subgroup * rows_each / 4u, z_0, product_pitch);
      workgroupBarrier();

      let keys = vec4<u32>(key);
      let masked = is_masked(first, columns, first_row, rows);
      let c0 = way * 8u;
      let x0 = products_of(0u, row, c0);
      let x1 = products_of(0u, row, c0 + 4u);
      let z0 = products_of(second, row, c0);
      let z1 = products_of(second, row, c0 + 4u);
      workgroupBarrier();
      let queries0 = four_from(first + c0);
      var w_0 = bounded(weights_of(x0, four_units(c0), four_levels(c0), batch, head, queries0, keys) * four_totals(c0),
                        most_weight);
      if (masked) {
        w_0 = select(vec4<f32>(), w_0, are_seen(queries0, keys));
      }
      @if(dropped) let f_0 = factors_of_queries(draws, batch, head, first + c0, key);
      @if(dropped) let change_0 = change_of(w_0, z0 * f_0, four_z_units(c0), four_deltas(c0));
      @else let change_0 = change_of(w_0, z0, four_z_units(c0), four_deltas(c0));
      @if(dropped) w_0 = select(vec4<f32>(), w_0, f_0 > vec4<f32>());
      let queries1 = four_from(first + c0 + 4u);
      var w_1 = bounded(weights_of(x1, four_units(c0 + 4u), four_levels(c0 + 4u), batch, head, queries1, keys) *
                        four_totals(c0 + 4u), most_weight);
      if (masked) {
        w_1 = select(vec4<f32>(), w_1, are_seen(queries1, keys));
      }
      @if(dropped) let f_1 = factors_of_queries(draws, batch, head, first + c0 + 4u, key);
      @if(dropped) let change_1 = change_of(w_1, z1 * f_1, four_z_units(c0 + 4u), four_deltas(c0 + 4u));
      @else let change_1 = change_of(w_1, z1, four_z_units(c0 + 4u), four_deltas(c0 + 4u));
      @if(dropped) w_1 = select(vec4<f32>(), w_1, f_1 > vec4<f32>());
      products[row * weight_pitch + c0 / 8u] = halves_of(w_0, w_1);
      products[second + row * weight_pitch + c0 / 8u] = halves_of(
        gradients_of(x0, four_units(c0), change_0, batch, head, queries0, keys),
        gradients_of(x1, four_units(c0 + 4u), change_1, batch, head, queries1, keys));
      workgroupBarrier();

      let w0 = weight_matrix(0u, subgroup * rows_each);
      @repeat(i, 4) {
        let g_$i = step_columns(staged, 16u * $i);
        dv0$i = subgroupMatrixMultiplyAccumulate(w0, g_$i, dv0$i);
      }
      @repeat(i, 4..8) {
        @if(wide) let g_$i = step_columns(staged, 16u * $i);
        @if(wide) dv0$i = subgroupMatrixMultiplyAccumulate(w0, g_$i, dv0$i);
      }
      let e0 = weight_matrix(second, subgroup * rows_each);
      @repeat(i, 4) {
        let q_$i = step_columns(0u, 16u * $i);
        dk0$i = subgroupMatrixMultiplyAccumulate(e0, q_$i, dk0$i);
      }
      @repeat(i, 4..8) {
        @if(wide) let q_$i = step_columns(0u, 16u * $i);
        @if(wide) dk0$i = subgroupMatrixMultiplyAccumulate(e0, q_$i, dk0$i);
      }
    }
  }

  let dk_at = batch * p.dk_strides.x + key_head * p.dk_strides.y;
  @repeat(i, 4) store_results_of_dk(dk0$i, dk_at, first_row, subgroup * rows_each, 16u * $i, subgroup, lane);
  @repeat(i, 4..8) @if(wide) store_results_of_dk(dk0$i, dk_at, first_row, subgroup * rows_each, 16u * $i, subgroup, lane);
  let dv_at = batch * p.dv_strides.x + key_head * p.dv_strides.y;
  @repeat(i, 4) store_results_of_dv(dv0$i, dv_at, first_row, subgroup * rows_each, 16u * $i, subgroup, lane);
  @repeat(i, 4..8) @if(wide) store_results_of_dv(dv0$i, dv_at, first_row, subgroup * rows_each, 16u * $i, subgroup, lane);
}

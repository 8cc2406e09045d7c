// attention_gradient_queries.wgsl for float16 on subgroup matrices, with sums in float32. It does not write the gradients
// of scores: calls that want the gradient of a bias take the tiled kernel. Rows are queries and columns are keys.
// Gradients of scores are rounded to float16. Heads of bfloat16 that fit in float16 are computed too (scales.wgsl). With
// `stored`, weights and gradients of scores are written for attention_matrix_stored.wgsl.
//
// @enable  f16 subgroups chromium_experimental_subgroup_matrix
// @operand pairs: out {bits64} // also read
// @operand dq: words {f16, bf16}
// @operand q: in {bits128}     // groups of eight elements
// @operand k: in {bits128}
// @operand v: in {bits128}
// @operand g: in {bits128}
// @operand stored: out {bits128} optional // see stored.wgsl

import package::attention::operands::{Draws, draws_of, factors_of};
import package::attention::operands::{Params, Matrix, matrix_q, matrix_k, matrix_v, operand_q, operand_k, operand_v};
import package::attention::operands::{operand_g, sees, score_of, keys_seen};
import package::attention::gradient::{Params, draws_of_call, matrix_g, pair_of, total_at};
import package::attention::gradient::{store_group_of_dq};
import package::attention::matrix_gradient::{rows_each, second, group_of, step_matrix, step_columns, weight_matrix};
import package::attention::matrix::{Left, Right, Sum, threads, columns, log2_e, pitch, staged, product_pitch};
import package::attention::matrix::{weight_pitch, step_group, staged_at, stage_rows, row_matrix, products_of, halves_of};
import package::attention::matrix::{gradients_of};
import package::attention::matrix::{four_from, scores_of, weights_of, is_masked, stage_results, results_of};
import package::attention::matrix::{q_factor, k_factor, v_factor, g_factor, staged_group, score_unit};
import package::attention::matrix::{take_scales, q_top, k_top, v_top, g_top};
import package::attention::matrix_gradient::{change_top, row_word};
import package::attention::matrix_gradient::{bounded, change_of};
import package::attention::score::{Params, final_scores, step_from, enter_step};
import package::attention::score::{captured_8, captured_16, captured_32, captured_64};
import package::attention::score_gradient::{final_gradients};
import package::attention::scales::{head_fits, power_of_two, factor_of, top_of, row_top_of, shift_of, halves_from};
import package::attention::stored_halves::{stored_rows, stored_columns, stored_at, weight_exponent};
import package::attention::stored::{head_of_call, tile_of_queries};
import package::attention::stored::{Params, stored_before, stored_keys, stored_unit, tiles_of_unit, all_stored_keys};
// @require has_scales == bfloat
// @require bfloat || !converted
// @require !has_stored || !modified
// @require !has_stored || converted == bfloat

struct Params {
  dq_strides: vec4<u32>,
  tiles: u32,      // of the queries of a head
  workgroups: u32,
  one: u32,        // 1, which compilers cannot know
}

// What the registers have room for. Of 64 rows each has two invocations: way 0 has columns 0 to 7 of a step, way 1 columns
// 8 to 15. Of 128 rows each has one.
const rows = stored_rows;

var<workgroup> steps: array<vec4<u32>, 2u * staged>; // keys, then values
var<workgroup> products: array<vec4<u32>, 2u * second>;
var<workgroup> parts: array<f32, threads>;

// Weights and gradients of scores of a query and eight keys.
@if(has_stored)
fn store_scores(at: u32, weights_a: vec4<f32>, weights_b: vec4<f32>, changes_a: vec4<f32>, changes_b: vec4<f32>) {
  store_stored(p.stored_at + at, halves_of(weights_a, weights_b));
  store_stored(p.stored_at + at + stored_rows, halves_of(changes_a, changes_b));
}

@if(bfloat && has_stored)
const weight_unit = f32(1u << u32(weight_exponent));

fn store_results_of_dq(results: Sum, head_at: u32, first_row: u32, row: u32, d0: u32, subgroup: u32, lane: u32) {
  stage_results(results, subgroup);
  let result_row = row + lane / 2u;
  let d = d0 + lane % 2u * 8u;
  if (first_row + result_row < p.queries && d < p.dims) {
    let row_at = head_at + (first_row + result_row) * p.dq_strides.z;
    let factor = p.scale * parts[result_row];
    store_group_of_dq(row_at, d, results_of(subgroup, lane, 0u) * factor);
    store_group_of_dq(row_at, d + 4u, results_of(subgroup, lane, 1u) * factor);
  }
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) t: u32, @builtin(subgroup_id) subgroup: u32) {
  let id = wid.y * workgroups.x + wid.x;
  if (id >= p.workgroups) {
    return;
  }
  let of_call = head_of_call(id);
  let head = of_call % p.heads;
  let batch = of_call / p.heads;
  let tile = tile_of_queries(id);
  let first_row = tile * rows;
  @if(bfloat) {
    if (!head_fits(batch, head, t)) {
      return;
    }
    take_scales(batch, head);
  }
  let lane = t % 32u;
  let row = t % rows;
  let way = t / rows;
  let query = first_row + row;
  let q = matrix_q(batch, head);
  let k = matrix_k(batch, head / p.group);
  let v = matrix_v(batch, head / p.group);
  let g = matrix_g(batch, head);

  stage_rows(q, q_factor, first_row + subgroup * rows_each, 0u, subgroup, lane);
  @repeat(i, 4) let q0$i = row_matrix(subgroup, 16u * $i);
  @if(!wide) stage_rows(q, q_factor, first_row + subgroup * rows_each + 16u, 0u, subgroup, lane);
  @repeat(i, 4) @if(!wide) let q1$i = row_matrix(subgroup, 16u * $i);
  @if(wide) stage_rows(q, q_factor, first_row + subgroup * rows_each, 64u, subgroup, lane);
  @if(wide) let q04 = row_matrix(subgroup, 0u);
  @if(wide) let q05 = row_matrix(subgroup, 16u);
  @if(wide) let q06 = row_matrix(subgroup, 32u);
  @if(wide) let q07 = row_matrix(subgroup, 48u);
  stage_rows(g, g_factor, first_row + subgroup * rows_each, 0u, subgroup, lane);
  @repeat(i, 4) let g0$i = row_matrix(subgroup, 16u * $i);
  @if(!wide) stage_rows(g, g_factor, first_row + subgroup * rows_each + 16u, 0u, subgroup, lane);
  @repeat(i, 4) @if(!wide) let g1$i = row_matrix(subgroup, 16u * $i);
  @if(wide) stage_rows(g, g_factor, first_row + subgroup * rows_each, 64u, subgroup, lane);
  @if(wide) let g04 = row_matrix(subgroup, 0u);
  @if(wide) let g05 = row_matrix(subgroup, 16u);
  @if(wide) let g06 = row_matrix(subgroup, 32u);
  @if(wide) let g07 = row_matrix(subgroup, 48u);
  let pair = pair_of(batch, head, query);
  // A query that saw no key has no weights. Of rows behind the last query, the weights are stored, as zeros.
  @if(has_stored) let level = vec4<f32>(select(pair.x, inf_f(), is_neginf_f(pair.x) || query >= p.queries));
  @else let level = vec4<f32>(select(pair.x, inf_f(), is_neginf_f(pair.x)));
  @if(bfloat) let of_row = row_word(batch, head, query);
  @if(bfloat) let change_exponent = 15 - change_top(row_top_of(of_row, g_top));
  @if(bfloat) let z_unit = vec4<f32>(power_of_two(g_top + v_top - 30 + change_exponent));
  @else let z_unit = vec4<f32>(1.0);
  @if(bfloat) let delta = vec4<f32>(pair.y * power_of_two(change_exponent));
  @else let delta = vec4<f32>(pair.y);
  let unit = score_unit();
  @if(bfloat && has_stored) let stored_shift = shift_of(of_row, q_top, g_top) - change_top(g_top) + 15 - change_exponent;
  @if(bfloat && has_stored) let stored_factor = power_of_two(stored_shift);
  @if(has_stored) let stored_tile = stored_at(of_call - p.first_of_call, tile) + row;
  @if(dropped) let draws = draws_of_call();
  var sum = 0.0;
  @repeat(i, 4) var r0$i = Sum();
  @repeat(i, 4) @if(!wide) var r1$i = Sum();
  @repeat(i, 4..8) @if(wide) var r0$i = Sum();
  let limit = keys_seen(query);
  let end = select(p.keys, min(p.keys, first_row + rows), causal);

  @if(tiled && has_blocks) let begin = step_from(batch, head, first_row, 0u, end);
  @else let begin = 0u;
  var next_keys = step_group(k, begin, t);
  var next_values = step_group(v, begin, t);
  @if(wide) var more_keys = step_group(k, begin, t + threads);
  @if(wide) var more_values = step_group(v, begin, t + threads);
  for (var first = begin; first < end; first = step_from(batch, head, first_row, first + columns * p.one, end)) {
    @if(tiled && has_blocks) let next = step_from(batch, head, first_row, first + columns, end);
    @else let next = first + columns;
    enter_step(batch, head, first_row, first);
    workgroupBarrier();
    steps[staged_at(t)] = staged_group(next_keys, k_factor);
    steps[staged + staged_at(t)] = staged_group(next_values, v_factor);
    @if(wide) steps[staged_at(t + threads)] = staged_group(more_keys, k_factor);
    @if(wide) steps[staged + staged_at(t + threads)] = staged_group(more_values, v_factor);
    workgroupBarrier();
    next_keys = step_group(k, next, t);
    next_values = step_group(v, next, t);
    @if(wide) more_keys = step_group(k, next, t + threads);
    @if(wide) more_values = step_group(v, next, t + threads);

    // x: products of queries and keys. z: products of the gradients of results and of values.
    var x_0 = Sum();
    @if(!wide) var x_1 = Sum();
    var z_0 = Sum();
    @if(!wide) var z_1 = Sum();
    @repeat(i, 4) {
      let k$i = step_matrix(0u, 16u * $i);
      x_0 = subgroupMatrixMultiplyAccumulate(k$i, q0$i, x_0);
      @if(!wide) x_1 = subgroupMatrixMultiplyAccumulate(k$i, q1$i, x_1);
    }
    @repeat(i, 4..8) {
      @if(wide) let k$i = step_matrix(0u, 16u * $i);
      @if(wide) x_0 = subgroupMatrixMultiplyAccumulate(k$i, q0$i, x_0);
    }
    @repeat(i, 4) {
      let v$i = step_matrix(staged, 16u * $i);
      z_0 = subgroupMatrixMultiplyAccumulate(v$i, g0$i, z_0);
      @if(!wide) z_1 = subgroupMatrixMultiplyAccumulate(v$i, g1$i, z_1);
    }
    @repeat(i, 4..8) {
      @if(wide) let v$i = step_matrix(staged, 16u * $i);
      @if(wide) z_0 = subgroupMatrixMultiplyAccumulate(v$i, g0$i, z_0);
    }
    subgroupMatrixStore<row_major>(&products, subgroup * rows_each / 4u, x_0, product_pitch);
    @if(!wide) subgroupMatrixStore<row_major>(&products, subgroup * rows_each / 4u + 4u, x_1, product_pitch);
    subgroupMatrixStore<row_major>(&products, second + subgroup * rows_each / 4u, z_0, product_pitch);
    @if(!wide) subgroupMatrixStore<row_major>(&products, second + subgroup * rows_each / 4u + 4u, z_1, product_pitch);
    workgroupBarrier();

    let queries = vec4<u32>(query);
    let masked = is_masked(first_row, rows, first, columns);
    @if(wide) let c0 = way * 8u;
    @else let c0 = 0u;
    let x0 = products_of(0u, row, c0);
    let x1 = products_of(0u, row, c0 + 4u);
    let z0 = products_of(second, row, c0);
    let z1 = products_of(second, row, c0 + 4u);
    @if(!wide) let x2 = products_of(0u, row, 8u);
    @if(!wide) let x3 = products_of(0u, row, 12u);
    @if(!wide) let z2 = products_of(second, row, 8u);
    @if(!wide) let z3 = products_of(second, row, 12u);
    workgroupBarrier();
    let keys0 = four_from(first + c0);
    var w_0 = bounded(weights_of(x0, unit, level, batch, head, queries, keys0), 2.0);
    if (masked) {
      w_0 = select(vec4<f32>(), w_0, keys0 < vec4<u32>(limit));
    }
    @if(dropped) let f_0 = factors_of(draws, batch, head, query, first + c0);
    @if(dropped) let change_0 = change_of(w_0, z0 * f_0, z_unit, delta);
    @else let change_0 = change_of(w_0, z0, z_unit, delta);
    let keys1 = four_from(first + c0 + 4u);
    var w_1 = bounded(weights_of(x1, unit, level, batch, head, queries, keys1), 2.0);
    if (masked) {
      w_1 = select(vec4<f32>(), w_1, keys1 < vec4<u32>(limit));
    }
    @if(dropped) let f_1 = factors_of(draws, batch, head, query, first + c0 + 4u);
    @if(dropped) let change_1 = change_of(w_1, z1 * f_1, z_unit, delta);
    @else let change_1 = change_of(w_1, z1, z_unit, delta);
    let of_eight = w_0 + w_1;
    sum += (of_eight.x + of_eight.y) + (of_eight.z + of_eight.w);
    products[row * weight_pitch + c0 / 8u] = halves_of(gradients_of(x0, unit, change_0, batch, head, queries, keys0),
                                                             gradients_of(x1, unit, change_1, batch, head, queries, keys1));
    @if(has_stored) {
      let at = stored_tile + (first + c0) / 8u * (2u * stored_rows);
      @if(dropped) w_0 = select(vec4<f32>(), w_0, f_0 > vec4<f32>());
      @if(dropped) w_1 = select(vec4<f32>(), w_1, f_1 > vec4<f32>());
      @if(bfloat) store_scores(at, w_0 * weight_unit, w_1 * weight_unit, change_0 * stored_factor, change_1 * stored_factor);
      @else store_scores(at, w_0, w_1, change_0, change_1);
    }
    @if(!wide) {
      let keys2 = four_from(first + 8u);
      var w_2 = bounded(weights_of(x2, unit, level, batch, head, queries, keys2), 2.0);
      if (masked) {
        w_2 = select(vec4<f32>(), w_2, keys2 < vec4<u32>(limit));
      }
      @if(dropped) let f_2 = factors_of(draws, batch, head, query, first + 8u);
      @if(dropped) let change_2 = change_of(w_2, z2 * f_2, z_unit, delta);
      @else let change_2 = change_of(w_2, z2, z_unit, delta);
      let keys3 = four_from(first + 12u);
      var w_3 = bounded(weights_of(x3, unit, level, batch, head, queries, keys3), 2.0);
      if (masked) {
        w_3 = select(vec4<f32>(), w_3, keys3 < vec4<u32>(limit));
      }
      @if(dropped) let f_3 = factors_of(draws, batch, head, query, first + 12u);
      @if(dropped) let change_3 = change_of(w_3, z3 * f_3, z_unit, delta);
      @else let change_3 = change_of(w_3, z3, z_unit, delta);
      let of_next = w_2 + w_3;
      sum += (of_next.x + of_next.y) + (of_next.z + of_next.w);
      products[row * weight_pitch + 1u] = halves_of(gradients_of(x2, unit, change_2, batch, head, queries, keys2),
                                                         gradients_of(x3, unit, change_3, batch, head, queries, keys3));
      @if(has_stored) {
        let at = stored_tile + (first + 8u) / 8u * (2u * stored_rows);
        @if(dropped) w_2 = select(vec4<f32>(), w_2, f_2 > vec4<f32>());
        @if(dropped) w_3 = select(vec4<f32>(), w_3, f_3 > vec4<f32>());
        @if(bfloat) store_scores(at, w_2 * weight_unit, w_3 * weight_unit, change_2 * stored_factor, change_3 * stored_factor);
        @else store_scores(at, w_2, w_3, change_2, change_3);
      }
    }
    workgroupBarrier();

    let changes_0 = weight_matrix(0u, subgroup * rows_each);
    @if(!wide) let changes_1 = weight_matrix(0u, subgroup * rows_each + 16u);
    @repeat(i, 4) {
      let k_$i = step_columns(0u, 16u * $i);
      r0$i = subgroupMatrixMultiplyAccumulate(changes_0, k_$i, r0$i);
      @if(!wide) r1$i = subgroupMatrixMultiplyAccumulate(changes_1, k_$i, r1$i);
    }
    @repeat(i, 4..8) {
      @if(wide) let k_$i = step_columns(0u, 16u * $i);
      @if(wide) r0$i = subgroupMatrixMultiplyAccumulate(changes_0, k_$i, r0$i);
    }
  }

  parts[t] = sum;
  workgroupBarrier();
  @if(wide) sum = parts[row] + parts[rows + row];
  workgroupBarrier();
  let total = select(1.0 / sum, 0.0, sum == 0.0);
  @if(bfloat) parts[t] = total * power_of_two(k_top - 15 - change_exponent);
  @else parts[t] = total;
  if (way == 0u && query < p.queries) {
    @if(bfloat) store_pairs(total_at(batch, head, query), vec2<u32>(bitcast<u32>(total), of_row));
    @else store_pairs(total_at(batch, head, query), vec2<u32>(bitcast<u32>(total), 0u));
  }
  let head_at = batch * p.dq_strides.x + head * p.dq_strides.y;
  @repeat(i, 4) store_results_of_dq(r0$i, head_at, first_row, subgroup * rows_each, 16u * $i, subgroup, lane);
  @repeat(i, 4) @if(!wide) store_results_of_dq(r1$i, head_at, first_row, subgroup * rows_each + 16u, 16u * $i, subgroup, lane);
  @repeat(i, 4..8) @if(wide) store_results_of_dq(r0$i, head_at, first_row, subgroup * rows_each, 16u * $i, subgroup, lane);
}

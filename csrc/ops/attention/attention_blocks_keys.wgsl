// attention_gradient_keys.wgsl with more of a tile in registers, for heads of up to 128 dimensions. Behind
// attention_blocks_queries.wgsl.
//
// @operand pairs: in {bits64}
// @operand dk: words {f32, f16, bf16}
// @operand dv: words {f32, f16, bf16}

import package::attention::operands::{Params, matrix_q, matrix_k, matrix_v, q_group, k_group, v_group};
import package::attention::score::{Params, sees_tile, final_scores};
import package::attention::score::{captured_8, captured_16, captured_32, captured_64};
import package::attention::score_gradient::{final_gradients};
import package::attention::groups::{from_halves};
import package::attention::operands::{operand_q, operand_k, operand_v, operand_g, Matrix, Draws, draws_of, factors_of};
import package::attention::operands::{sees, score_of};
import package::attention::scales::{head_fits};
import package::matmul::outer::{outer_add};
import package::attention::blocks::{Params, Blocks, Share, result_share_of, Place, place_of, rows, columns, height};
import package::attention::blocks::{scores_of, add_results, join_ways, log2_e, four_from, is_masked, scaled};
import package::attention::blocks::{are_seen, exp2_of, weights_of};
import package::attention::gradient::{Params, draws_of_call, g_group, matrix_g, group_of, pair_of, total_at};
import package::attention::gradient::{store_group_of_dk, store_group_of_dv};

struct Params {
  dk_strides: vec4<u32>,
  dv_strides: vec4<u32>,
}

// Of the queries, in groups of four.
var<workgroup> column_lse: array<vec4<f32>, lanes * column_blocks>;
var<workgroup> column_delta: array<vec4<f32>, lanes * column_blocks>;
var<workgroup> column_total: array<vec4<f32>, lanes * column_blocks>;

// Weights, [key][query].
fn block_weights(block: mat4x4<f32>, column: u32, masked: bool, batch: u32, head: u32, query: u32,
                 key: u32) -> mat4x4<f32> {
  let lse = column_lse[column];
  let total = column_total[column];
  let queries = four_from(query);
  return mat4x4<f32>(weights_of(block[0], lse, masked, batch, head, queries, vec4<u32>(key)) * total,
                     weights_of(block[1], lse, masked, batch, head, queries, vec4<u32>(key + 1u)) * total,
                     weights_of(block[2], lse, masked, batch, head, queries, vec4<u32>(key + 2u)) * total,
                     weights_of(block[3], lse, masked, batch, head, queries, vec4<u32>(key + 3u)) * total);
}

@if(dropped)
fn block_factors(draws: Draws, batch: u32, head: u32, query: u32, key: u32) -> mat4x4<f32> {
  return transpose(mat4x4<f32>(factors_of(draws, batch, head, query, key),
                               factors_of(draws, batch, head, query + 1u, key),
                               factors_of(draws, batch, head, query + 2u, key),
                               factors_of(draws, batch, head, query + 3u, key)));
}

fn times(a: mat4x4<f32>, b: mat4x4<f32>) -> mat4x4<f32> {
  return mat4x4<f32>(a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]);
}

// The gradients of scaled products, from the weights and from the gradients of the weights.
fn block_changes(products: mat4x4<f32>, weights: mat4x4<f32>, changes: mat4x4<f32>, column: u32, batch: u32, head: u32,
                 query: u32, key: u32) -> mat4x4<f32> {
  let delta = column_delta[column];
  let queries = four_from(query);
  return mat4x4<f32>(
    final_gradients(products[0], weights[0] * (changes[0] - delta), batch, head, queries, vec4<u32>(key)),
    final_gradients(products[1], weights[1] * (changes[1] - delta), batch, head, queries, vec4<u32>(key + 1u)),
    final_gradients(products[2], weights[2] * (changes[2] - delta), batch, head, queries, vec4<u32>(key + 2u)),
    final_gradients(products[3], weights[3] * (changes[3] - delta), batch, head, queries, vec4<u32>(key + 3u)));
}

fn store_dk_rows(block: mat4x4<f32>, more: mat4x4<f32>, head_at: u32, key: u32, place: Place) {
  var results = block;
  var others = more;
  for (var i = 0u; i < 4u * p.one; i++) {
    if (key + i < p.keys) {
      let row_at = head_at + (key + i) * p.dk_strides.z;
      let d = place.column * 4u;
      if (place.column < lanes / ways && d < p.dims) {
        store_group_of_dk(row_at, d, results[i] * p.scale);
      }
      if (dim_blocks > 1u && d + 4u * lanes < p.dims) {
        store_group_of_dk(row_at, d + 4u * lanes, others[i] * p.scale);
      }
    }
  }
}

fn store_dv_rows(block: mat4x4<f32>, more: mat4x4<f32>, head_at: u32, key: u32, place: Place) {
  var results = block;
  var others = more;
  for (var i = 0u; i < 4u * p.one; i++) {
    if (key + i < p.keys) {
      let row_at = head_at + (key + i) * p.dv_strides.z;
      let d = place.column * 4u;
      if (place.column < lanes / ways && d < p.value_dims) {
        store_group_of_dv(row_at, d, results[i]);
      }
      if (dim_blocks > 1u && d + 4u * lanes < p.value_dims) {
        store_group_of_dv(row_at, d + 4u * lanes, others[i]);
      }
    }
  }
}

@compute @workgroup_size(invocations)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * workgroups.x + wid.x;
  if (id >= p.workgroups) {
    return;
  }
  let key_heads = p.heads / p.group;
  let key_head = id / p.tiles % key_heads;
  let batch = id / p.tiles / key_heads;
  let first_row = id % p.tiles * rows;
  @if(has_scales) {
    if (head_fits(batch, key_head * p.group, t)) {
      return;
    }
  }
  let place = place_of(t);
  let k = matrix_k(batch, key_head);
  let v = matrix_v(batch, key_head);

  @if(dropped) let draws = draws_of_call();
  let upper = first_row + 4u * place.row;
  let lower = upper + 4u * height;
  let near = place.column;
  let far = near + lanes;
  var results_k = Blocks();
  var results_v = Blocks();
  let begin = select(0u, first_row / columns * columns, causal);
  for (var n = 0u; n < p.group; n++) {
    let head = key_head * p.group + n;
    let q = matrix_q(batch, head);
    let g = matrix_g(batch, head);
    for (var first = begin; first < p.queries; first += columns) {
      if (!sees_tile(batch, head, first, first_row)) {
        continue;
      }
      if (t < columns) {
        let pair = pair_of(batch, head, first + t);
        var total = 0.0;
        if (first + t < p.queries) {
          total = bitcast<f32>(load_pairs(total_at(batch, head, first + t)).x);
        }
        column_lse[t / 4u][t % 4u] = pair.x;
        column_delta[t / 4u][t % 4u] = pair.y;
        column_total[t / 4u][t % 4u] = total;
      }
      let masked = is_masked(first, columns, first_row, rows);
      let query = first + 4u * near;
      let further = first + 4u * far;
      var weights = scores_of(k, first_row, q, first, place);
      let products = weights;
      weights[0] = block_weights(weights[0], near, masked, batch, head, query, upper);
      if (column_blocks > 1u) {
        weights[1] = block_weights(weights[1], far, masked, batch, head, further, upper);
      }
      if (row_blocks > 1u) {
        weights[2] = block_weights(weights[2], near, masked, batch, head, query, lower);
        if (column_blocks > 1u) {
          weights[3] = block_weights(weights[3], far, masked, batch, head, further, lower);
        }
      }
      var changes = scores_of(v, first_row, g, first, place);
      let share = result_share_of(g, first, t);
      @if(dropped) {
        // What is dropped has no part in the gradient of the values. It keeps its part of delta.
        var kept = weights;
        let f0 = block_factors(draws, batch, head, query, upper);
        kept[0] = times(weights[0], f0);
        changes[0] = times(changes[0], f0);
        if (column_blocks > 1u) {
          let f1 = block_factors(draws, batch, head, further, upper);
          kept[1] = times(weights[1], f1);
          changes[1] = times(changes[1], f1);
        }
        if (row_blocks > 1u) {
          let f2 = block_factors(draws, batch, head, query, lower);
          kept[2] = times(weights[2], f2);
          changes[2] = times(changes[2], f2);
          if (column_blocks > 1u) {
            let f3 = block_factors(draws, batch, head, further, lower);
            kept[3] = times(weights[3], f3);
            changes[3] = times(changes[3], f3);
          }
        }
        add_results(&results_v, kept, g, first, share, place);
      }
      @else add_results(&results_v, weights, g, first, share, place);
      changes[0] = block_changes(products[0], weights[0], changes[0], near, batch, head, query, upper);
      if (column_blocks > 1u) {
        changes[1] = block_changes(products[1], weights[1], changes[1], far, batch, head, further, upper);
      }
      if (row_blocks > 1u) {
        changes[2] = block_changes(products[2], weights[2], changes[2], near, batch, head, query, lower);
        if (column_blocks > 1u) {
          changes[3] = block_changes(products[3], weights[3], changes[3], far, batch, head, further, lower);
        }
      }
      add_results(&results_k, changes, q, first, result_share_of(q, first, t), place);
    }
  }

  join_ways(&results_k, place);
  join_ways(&results_v, place);
  let dk_at = batch * p.dk_strides.x + key_head * p.dk_strides.y;
  let dv_at = batch * p.dv_strides.x + key_head * p.dv_strides.y;
  store_dk_rows(results_k[0], results_k[1], dk_at, upper, place);
  store_dv_rows(results_v[0], results_v[1], dv_at, upper, place);
  if (row_blocks > 1u) {
    store_dk_rows(results_k[2], results_k[3], dk_at, lower, place);
    store_dv_rows(results_v[2], results_v[3], dv_at, lower, place);
  }
}

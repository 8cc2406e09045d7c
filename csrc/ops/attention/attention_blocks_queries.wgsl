// attention_gradient_queries.wgsl with more of a tile in registers, for heads of up to 128 dimensions. With `stored`, weights and
// gradients of scores are written for attention_blocks_stored.wgsl.
//
// @operand pairs: out {bits64} // also read
// @operand dq: words {f32, f16, bf16}
// @operand stored: out {bits128} optional // see stored.wgsl

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
import package::attention::blocks::{row_sums, scores_of, add_results, join_ways, row_totals, log2_e, four_from};
import package::attention::blocks::{is_masked, scaled, are_seen, exp2_of, weights_of};
import package::attention::gradient::{Params, draws_of_call, g_group, matrix_g, group_of, pair_of, total_at};
import package::attention::gradient::{store_group_of_dq};
import package::attention::stored_words::{stored_at};
import package::attention::stored::{head_of_call, tile_of_queries};
import package::attention::stored::{Params, stored_before, stored_keys, stored_unit, tiles_of_unit, all_stored_keys};
// @require !has_stored || !modified
// @require !has_stored || !has_scales

const stored_rows = rows;

const stored_columns = columns;

struct Params {
  dq_strides: vec4<u32>,
}

// Of four queries.
struct Pairs {
  lse: vec4<f32>,
  delta: vec4<f32>,
}

fn pairs_of(batch: u32, head: u32, query: u32) -> Pairs {
  let a = pair_of(batch, head, query);
  let b = pair_of(batch, head, query + 1u);
  let c = pair_of(batch, head, query + 2u);
  let d = pair_of(batch, head, query + 3u);
  return Pairs(vec4<f32>(a.x, b.x, c.x, d.x), vec4<f32>(a.y, b.y, c.y, d.y));
}

fn block_weights(block: mat4x4<f32>, pairs: Pairs, masked: bool, batch: u32, head: u32, query: u32,
                 key: u32) -> mat4x4<f32> {
  let keys = four_from(key);
  return mat4x4<f32>(weights_of(block[0], pairs.lse.xxxx, masked, batch, head, vec4<u32>(query), keys),
                     weights_of(block[1], pairs.lse.yyyy, masked, batch, head, vec4<u32>(query + 1u), keys),
                     weights_of(block[2], pairs.lse.zzzz, masked, batch, head, vec4<u32>(query + 2u), keys),
                     weights_of(block[3], pairs.lse.wwww, masked, batch, head, vec4<u32>(query + 3u), keys));
}

// The gradients of scaled products, from the weights and from the gradients of the weights.
fn block_changes(products: mat4x4<f32>, weights: mat4x4<f32>, block: mat4x4<f32>, pairs: Pairs, draws: Draws,
                 batch: u32, head: u32, query: u32, key: u32) -> mat4x4<f32> {
  let keys = four_from(key);
  var changes = block;
  @if(dropped) changes = mat4x4<f32>(block[0] * factors_of(draws, batch, head, query, key),
                                     block[1] * factors_of(draws, batch, head, query + 1u, key),
                                     block[2] * factors_of(draws, batch, head, query + 2u, key),
                                     block[3] * factors_of(draws, batch, head, query + 3u, key));
  changes = mat4x4<f32>(weights[0] * (changes[0] - pairs.delta.x), weights[1] * (changes[1] - pairs.delta.y),
                        weights[2] * (changes[2] - pairs.delta.z), weights[3] * (changes[3] - pairs.delta.w));
  return mat4x4<f32>(final_gradients(products[0], changes[0], batch, head, vec4<u32>(query), keys),
                     final_gradients(products[1], changes[1], batch, head, vec4<u32>(query + 1u), keys),
                     final_gradients(products[2], changes[2], batch, head, vec4<u32>(query + 2u), keys),
                     final_gradients(products[3], changes[3], batch, head, vec4<u32>(query + 3u), keys));
}

// Stores four rows of a block. `at`: of the first row.
@if(has_stored)
fn store_block(block: mat4x4<f32>, at: u32, pitch: u32) {
  store_stored(at, bitcast<vec4<u32>>(block[0]));
  store_stored(at + pitch, bitcast<vec4<u32>>(block[1]));
  store_stored(at + 2u * pitch, bitcast<vec4<u32>>(block[2]));
  store_stored(at + 3u * pitch, bitcast<vec4<u32>>(block[3]));
}

// The weights that the gradient of the values takes: those that dropout keeps, times what it multiplies them with.
@if(has_stored)
fn kept_weights(weights: mat4x4<f32>, draws: Draws, batch: u32, head: u32, query: u32, key: u32) -> mat4x4<f32> {
  @if(dropped) return mat4x4<f32>(weights[0] * factors_of(draws, batch, head, query, key),
                                  weights[1] * factors_of(draws, batch, head, query + 1u, key),
                                  weights[2] * factors_of(draws, batch, head, query + 2u, key),
                                  weights[3] * factors_of(draws, batch, head, query + 3u, key));
  @else return weights;
}

fn store_rows(block: mat4x4<f32>, more: mat4x4<f32>, sums: vec4<f32>, batch: u32, head: u32, query: u32,
              place: Place) {
  var results = block;
  var others = more;
  for (var i = 0u; i < 4u * p.one; i++) {
    if (query + i < p.queries) {
      // A query that saw no key has no gradient.
      let total = select(1.0 / sums[i], 0.0, sums[i] == 0.0);
      if (place.column == 0u) {
        store_pairs(total_at(batch, head, query + i), vec2<u32>(bitcast<u32>(total), 0u));
      }
      let row_at = batch * p.dq_strides.x + head * p.dq_strides.y + (query + i) * p.dq_strides.z;
      let d = place.column * 4u;
      if (place.column < lanes / ways && d < p.dims) {
        store_group_of_dq(row_at, d, results[i] * (p.scale * total));
      }
      if (dim_blocks > 1u && d + 4u * lanes < p.dims) {
        store_group_of_dq(row_at, d + 4u * lanes, others[i] * (p.scale * total));
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
  let of_call = head_of_call(id);
  let head = of_call % p.heads;
  let batch = of_call / p.heads;
  let tile = tile_of_queries(id);
  let first_row = tile * rows;
  @if(has_scales) {
    if (head_fits(batch, head, t)) {
      return;
    }
  }
  let place = place_of(t);
  let q = matrix_q(batch, head);
  let k = matrix_k(batch, head / p.group);
  let v = matrix_v(batch, head / p.group);
  let g = matrix_g(batch, head);

  @if(dropped) let draws = draws_of_call();
  @else let draws = Draws();
  let upper = first_row + 4u * place.row;
  let lower = upper + 4u * height;
  let pairs0 = pairs_of(batch, head, upper);
  var pairs1 = Pairs();
  if (row_blocks > 1u) {
    pairs1 = pairs_of(batch, head, lower);
  }
  var sums = array<vec4<f32>, 2>();
  var results = Blocks();
  let end = select(p.keys, min(p.keys, first_row + rows), causal);
  // Rows of what is stored, in groups of four keys.
  @if(has_stored) let pitch = stored_keys(tile) / 4u;
  @if(has_stored) let below = 4u * height * pitch;
  @if(has_stored) let weights_at = p.stored_at + stored_at(of_call - p.first_of_call, tile) + 4u * place.row * pitch + place.column;
  @if(has_stored) let changes_at = weights_at + rows * pitch;
  for (var first = 0u; first < end; first += columns) {
    if (!sees_tile(batch, head, first_row, first)) {
      continue;
    }
    let masked = is_masked(first_row, rows, first, columns);
    let key = first + 4u * place.column;
    let further = key + 4u * lanes;
    var weights = scores_of(q, first_row, k, first, place);
    let products = weights;
    weights[0] = block_weights(weights[0], pairs0, masked, batch, head, upper, key);
    sums[0] += row_sums(weights[0]);
    if (column_blocks > 1u) {
      weights[1] = block_weights(weights[1], pairs0, masked, batch, head, upper, further);
      sums[0] += row_sums(weights[1]);
    }
    if (row_blocks > 1u) {
      weights[2] = block_weights(weights[2], pairs1, masked, batch, head, lower, key);
      sums[1] += row_sums(weights[2]);
      if (column_blocks > 1u) {
        weights[3] = block_weights(weights[3], pairs1, masked, batch, head, lower, further);
        sums[1] += row_sums(weights[3]);
      }
    }
    var changes = scores_of(g, first_row, v, first, place);
    let share = result_share_of(k, first, t);
    changes[0] = block_changes(products[0], weights[0], changes[0], pairs0, draws, batch, head, upper, key);
    if (column_blocks > 1u) {
      changes[1] = block_changes(products[1], weights[1], changes[1], pairs0, draws, batch, head, upper, further);
    }
    if (row_blocks > 1u) {
      changes[2] = block_changes(products[2], weights[2], changes[2], pairs1, draws, batch, head, lower, key);
      if (column_blocks > 1u) {
        changes[3] = block_changes(products[3], weights[3], changes[3], pairs1, draws, batch, head, lower, further);
      }
    }
    @if(has_stored) {
      let at = first / 4u;
      store_block(kept_weights(weights[0], draws, batch, head, upper, key), weights_at + at, pitch);
      store_block(changes[0], changes_at + at, pitch);
      if (column_blocks > 1u) {
        store_block(kept_weights(weights[1], draws, batch, head, upper, further), weights_at + at + lanes, pitch);
        store_block(changes[1], changes_at + at + lanes, pitch);
      }
      if (row_blocks > 1u) {
        store_block(kept_weights(weights[2], draws, batch, head, lower, key), weights_at + below + at, pitch);
        store_block(changes[2], changes_at + below + at, pitch);
        if (column_blocks > 1u) {
          store_block(kept_weights(weights[3], draws, batch, head, lower, further), weights_at + below + at + lanes, pitch);
          store_block(changes[3], changes_at + below + at + lanes, pitch);
        }
      }
    }
    add_results(&results, changes, k, first, share, place);
  }

  join_ways(&results, place);
  let totals = row_totals(sums[0], sums[1], place);
  store_rows(results[0], results[1], totals[0], batch, head, upper, place);
  if (row_blocks > 1u) {
    store_rows(results[2], results[3], totals[1], batch, head, lower, place);
  }
}

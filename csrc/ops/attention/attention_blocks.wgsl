// attention_forward.wgsl with more of a tile in registers, for heads of up to 128 dimensions.
//
// @operand out: words {f32, f16, bf16}
// @operand lse: out {f32}
// @operand seed: in {i64} optional // of dropout
// @operand offset: in {i64} optional

import package::attention::operands::{Draws, draws_of, factors_of};
import package::attention::operands::{Params, matrix_q, matrix_k, matrix_v, q_group, k_group, v_group};
import package::attention::score::{Params, sees_tile, final_scores};
import package::attention::score::{captured_8, captured_16, captured_32, captured_64};
import package::attention::groups::{from_halves};
import package::attention::operands::{operand_q, operand_k, Matrix, sees, score_of};
import package::attention::results::{store_group};
import package::attention::scales::{head_fits};
import package::matmul::outer::{outer_add};
import package::attention::blocks::{Params, Blocks, Share, result_share_of, Place, place_of, rows, columns, height};
import package::attention::blocks::{rows_times, row_sums, scores_of, add_results, join_ways, row_totals, row_maxima};
import package::attention::blocks::{log2_e, four_from, exp2_of, is_masked, scaled, are_seen};
// @require has_seed == dropped && has_offset == dropped

struct Params {
  out_strides: vec4<u32>,
  lse_batch: u32, // strides
  lse_head: u32,
}

// The lowest finite number. A row's maximum starts here, so that differences with it are defined, and rows masked with
// this very number keep their weights.
const lowest = -0x1.fffffep127f;

fn group_of(operand: u32, row_at: u32, d: u32) -> vec4<f32> {
  if (operand == operand_q) {
    return q_group(row_at, d);
  }
  if (operand == operand_k) {
    return k_group(row_at, d);
  }
  return v_group(row_at, d);
}

// Levels: numbers that grow with the scores. Their differences times level_step() are those of scores in units of
// log(2). Without a bias or score_mod they are the products with their scale's sign. So the difference of equal scores is exactly 0,
// however large they are. Where a query does not see a key, the level is -infinity.
fn row_levels(x: vec4<f32>, masked: bool, batch: u32, head: u32, query: u32, key: u32) -> vec4<f32> {
  let queries = vec4<u32>(query);
  let keys = four_from(key);
  @if(has_bias || modified) var levels = scaled(x, batch, head, queries, keys);
  @else var levels = select(x, -x, vec4<bool>(p.scale < 0.0));
  if (masked) {
    levels = select(vec4<f32>(-inf_f()), levels, are_seen(queries, keys));
  }
  return levels;
}

fn levels_of(block: mat4x4<f32>, masked: bool, batch: u32, head: u32, query: u32, key: u32) -> mat4x4<f32> {
  return mat4x4<f32>(row_levels(block[0], masked, batch, head, query, key),
                     row_levels(block[1], masked, batch, head, query + 1u, key),
                     row_levels(block[2], masked, batch, head, query + 2u, key),
                     row_levels(block[3], masked, batch, head, query + 3u, key));
}

// Not 0, so that -infinity stays below all levels.
fn level_step() -> f32 {
  @if(has_bias || modified) return log2_e;
  @else return max(abs(p.scale) * log2_e, 1e-30);
}

// A NaN makes its row NaN by its weight, whatever the maximum is then.
fn largest(block: mat4x4<f32>) -> vec4<f32> {
  let levels = transpose(block);
  return max(max(levels[0], levels[1]), max(levels[2], levels[3]));
}

fn block_weights(block: mat4x4<f32>, maxima: vec4<f32>) -> mat4x4<f32> {
  return mat4x4<f32>(exp2_of((block[0] - maxima.x) * level_step()), exp2_of((block[1] - maxima.y) * level_step()),
                     exp2_of((block[2] - maxima.z) * level_step()), exp2_of((block[3] - maxima.w) * level_step()));
}

@if(dropped)
fn drop(block: mat4x4<f32>, draws: Draws, batch: u32, head: u32, query: u32, key: u32) -> mat4x4<f32> {
  return mat4x4<f32>(block[0] * factors_of(draws, batch, head, query, key),
                     block[1] * factors_of(draws, batch, head, query + 1u, key),
                     block[2] * factors_of(draws, batch, head, query + 2u, key),
                     block[3] * factors_of(draws, batch, head, query + 3u, key));
}

// Stores four rows of a block of results, and ends their statistics.
fn store_rows(block: mat4x4<f32>, more: mat4x4<f32>, maxima: vec4<f32>, sums: vec4<f32>, batch: u32, head: u32,
              query: u32, place: Place) {
  var results = block;
  var others = more;
  for (var i = 0u; i < 4u * p.one; i++) {
    if (query + i < p.queries) {
      // With +infinity or NaN among the scores, the whole row is NaN.
      let is_valid = is_finite_f(maxima[i]);
      let unseen = sums[i] == 0.0 && is_valid;
      let inverse = select(select(nan_f(), 1.0 / sums[i], is_valid), 0.0, unseen);
      if (place.column == 0u) {
        var top = maxima[i];
        @if(!has_bias && !modified) top *= abs(p.scale);
        let value = select(select(nan_f(), top + log_f(sums[i]), is_valid), -inf_f(), unseen);
        store_lse(p.lse_at + batch * p.lse_batch + head * p.lse_head + query + i, value);
      }
      let row_at = batch * p.out_strides.x + head * p.out_strides.y + (query + i) * p.out_strides.z;
      let d = place.column * 4u;
      if (place.column < lanes / ways && d < p.value_dims) {
        store_group(row_at, d, results[i] * inverse);
      }
      if (dim_blocks > 1u && d + 4u * lanes < p.value_dims) {
        store_group(row_at, d + 4u * lanes, others[i] * inverse);
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
  let head = id / p.tiles % p.heads;
  let batch = id / p.tiles / p.heads;
  // Later rows see more keys: their tiles come first.
  let first_row = (p.tiles - 1u - id % p.tiles) * rows;
  @if(has_scales) {
    if (head_fits(batch, head, t)) {
      return;
    }
  }
  let place = place_of(t);
  let q = matrix_q(batch, head);
  let k = matrix_k(batch, head / p.group);
  let v = matrix_v(batch, head / p.group);

  @if(dropped) let draws = draws_of(load_seed(p.seed_at), load_offset(p.offset_at));
  let upper = first_row + 4u * place.row;
  let lower = upper + 4u * height;
  var maxima = array<vec4<f32>, 2>(vec4<f32>(lowest), vec4<f32>(lowest));
  var sums = array<vec4<f32>, 2>();
  var results = Blocks();
  let end = select(p.keys, min(p.keys, first_row + rows), causal);
  for (var first = 0u; first < end; first += columns) {
    if (!sees_tile(batch, head, first_row, first)) {
      continue;
    }
    var scores = scores_of(q, first_row, k, first, place);
    let share = result_share_of(v, first, t); // long before it is needed
    let masked = is_masked(first_row, rows, first, columns);
    let key = first + 4u * place.column;
    let further = key + 4u * lanes;

    scores[0] = levels_of(scores[0], masked, batch, head, upper, key);
    var most0 = max(maxima[0], largest(scores[0]));
    var most1 = maxima[1];
    if (column_blocks > 1u) {
      scores[1] = levels_of(scores[1], masked, batch, head, upper, further);
      most0 = max(most0, largest(scores[1]));
    }
    if (row_blocks > 1u) {
      scores[2] = levels_of(scores[2], masked, batch, head, lower, key);
      most1 = max(most1, largest(scores[2]));
      if (column_blocks > 1u) {
        scores[3] = levels_of(scores[3], masked, batch, head, lower, further);
        most1 = max(most1, largest(scores[3]));
      }
    }
    let most = row_maxima(most0, most1, place);
    let shrink0 = exp2_of((maxima[0] - most[0]) * level_step());
    let shrink1 = exp2_of((maxima[1] - most[1]) * level_step());
    maxima = most;

    results[0] = rows_times(results[0], shrink0);
    if (dim_blocks > 1u) {
      results[1] = rows_times(results[1], shrink0);
    }
    scores[0] = block_weights(scores[0], maxima[0]);
    sums[0] = sums[0] * shrink0 + row_sums(scores[0]);
    if (column_blocks > 1u) {
      scores[1] = block_weights(scores[1], maxima[0]);
      sums[0] += row_sums(scores[1]);
    }
    if (row_blocks > 1u) {
      results[2] = rows_times(results[2], shrink1);
      if (dim_blocks > 1u) {
        results[3] = rows_times(results[3], shrink1);
      }
      scores[2] = block_weights(scores[2], maxima[1]);
      sums[1] = sums[1] * shrink1 + row_sums(scores[2]);
      if (column_blocks > 1u) {
        scores[3] = block_weights(scores[3], maxima[1]);
        sums[1] += row_sums(scores[3]);
      }
    }
    @if(dropped) {
      scores[0] = drop(scores[0], draws, batch, head, upper, key);
      if (column_blocks > 1u) {
        scores[1] = drop(scores[1], draws, batch, head, upper, further);
      }
      if (row_blocks > 1u) {
        scores[2] = drop(scores[2], draws, batch, head, lower, key);
        if (column_blocks > 1u) {
          scores[3] = drop(scores[3], draws, batch, head, lower, further);
        }
      }
    }
    add_results(&results, scores, v, first, share, place);
  }

  join_ways(&results, place);
  let totals = row_totals(sums[0], sums[1], place);
  store_rows(results[0], results[1], maxima[0], totals[0], batch, head, upper, place);
  if (row_blocks > 1u) {
    store_rows(results[2], results[3], maxima[1], totals[1], batch, head, lower, place);
  }
}

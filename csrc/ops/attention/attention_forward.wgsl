// Attention by tiles with a running maximum (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018;
// Dao et al., "FlashAttention", 2022): out = softmax(scale * q @ k^T + bias) @ v, and the logarithm of each row's sum
// of exponentials. Rows that see no key become zeros, and -infinity.
//
// @operand out: words {f32, f16, bf16}
// @operand lse: out {f32}
// @operand seed: in {i64} optional // of dropout
// @operand offset: in {i64} optional

import package::attention::operands::{Draws, draws_of, factors_of};
import package::attention::operands::{Params, matrix_q, matrix_k, matrix_v, q_group, k_group, v_group, score_of};
import package::attention::operands::{operand_q, operand_k, Matrix, sees};
import package::attention::score::{Params, sees_tile, final_score};
import package::attention::score::{captured_8, captured_16, captured_32, captured_64};
import package::attention::groups::{from_halves};
import package::attention::results::{store_group};
import package::attention::tile::{Params, bound, scores_t, results_t, rows, columns, add_scores, add_results, weights};
// @require has_seed == dropped && has_offset == dropped

struct Params {
  out_strides: vec4<u32>,
  lse_batch: u32, // strides
  lse_head: u32,
}

const planes = 1u;

// The lowest finite number. A row's maximum starts here, so that differences with it are defined, and rows masked with
// this very number keep their weights.
const lowest = -0x1.fffffep127f;

var<workgroup> parts: array<f32, ways * rows>; // [way][row]

fn group_of(operand: u32, row_at: u32, d: u32) -> vec4<f32> {
  if (operand == operand_q) {
    return q_group(row_at, d);
  }
  if (operand == operand_k) {
    return k_group(row_at, d);
  }
  return v_group(row_at, d);
}

@compute @workgroup_size(lanes * ways)
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
  let lane = t % lanes;
  let way = t / lanes % ways;
  let q = matrix_q(batch, head);
  let k = matrix_k(batch, head / p.group);
  let v = matrix_v(batch, head / p.group);

  @if(dropped) let draws = draws_of(load_seed(p.seed_at), load_offset(p.offset_at));
  var maxima = array<f32, rows_each>();
  var sums = array<f32, rows_each>();
  for (var i = 0u; i < rows_each; i++) {
    maxima[i] = lowest;
  }
  var results = results_t();
  let end = select(p.keys, min(p.keys, first_row + rows), causal);
  var staged = false;
  for (var first = 0u; first < end; first += columns) {
    if (!sees_tile(batch, head, first_row, first)) {
      continue;
    }
    var scores = scores_t();
    add_scores(&scores, q, first_row, k, first, staged, t);
    staged = true;

    for (var i = 0u; i < rows_each; i++) {
      let row = i * lanes + lane;
      var maximum = lowest;
      for (var c = 0u; c < bound(columns_each); c++) {
        let score = final_score(scores[i * columns_each + c], batch, head, first_row + row, first + way * columns_each + c);
        scores[i * columns_each + c] = score;
        maximum = max_flat_f(maximum, score);
      }
      parts[way * rows + row] = maximum;
    }
    workgroupBarrier();
    for (var i = 0u; i < rows_each; i++) {
      let row = i * lanes + lane;
      var maximum = maxima[i];
      for (var w = 0u; w < ways; w++) {
        maximum = max_flat_f(maximum, parts[w * rows + row]);
      }
      let shrink = exp_falling_f(maxima[i] - maximum);
      maxima[i] = maximum;
      sums[i] *= shrink;
      @if(dropped) var factors = vec4<f32>();
      for (var c = 0u; c < bound(columns_each); c++) {
        var weight = exp_falling_f(scores[i * columns_each + c] - maximum);
        sums[i] += weight;
        @if(dropped) {
          if (c % 4u == 0u) {
            factors = factors_of(draws, batch, head, first_row + row, first + way * columns_each + c);
          }
          weight *= factors[c % 4u];
        }
        weights[(way * columns_each + c) * rows + row] = weight;
      }
      for (var g = 0u; g < bound(groups); g++) {
        results[i * groups + g] *= shrink;
      }
    }
    // A barrier in add_results() is between the weights and their use.
    add_results(&results, 0u, v, first, t);
  }

  workgroupBarrier();
  for (var i = 0u; i < rows_each; i++) {
    parts[way * rows + i * lanes + lane] = sums[i];
  }
  workgroupBarrier();
  for (var i = 0u; i < rows_each; i++) {
    let row = first_row + i * lanes + lane;
    if (row < p.queries) {
      var sum = 0.0;
      for (var w = 0u; w < ways; w++) {
        sum += parts[w * rows + i * lanes + lane];
      }
      // With +infinity or NaN among the scores, the whole row is NaN.
      let unseen = sum == 0.0 && is_finite_f(maxima[i]);
      let inverse = select(select(nan_f(), 1.0 / sum, is_finite_f(maxima[i])), 0.0, unseen);
      if (way == 0u) {
        let value = select(select(nan_f(), maxima[i] + log_f(sum), is_finite_f(maxima[i])), -inf_f(), unseen);
        store_lse(p.lse_at + batch * p.lse_batch + head * p.lse_head + row, value);
      }
      let row_at = batch * p.out_strides.x + head * p.out_strides.y + row * p.out_strides.z;
      for (var g = 0u; g < bound(groups); g++) {
        let d = (way * groups + g) * 4u;
        if (d < p.value_dims) {
          store_group(row_at, d, results[i * groups + g] * inverse);
        }
      }
    }
  }
}

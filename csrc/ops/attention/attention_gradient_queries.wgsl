// The gradient of attention with respect to the queries, and to the scores before they were scaled if `ds` is given.
// `ds` lacks the factor that total_at() of gradient.wgsl describes, which is known only at a row's end.
//
// @operand pairs: out {bits64} // also read
// @operand dq: words {f32, f16, bf16}
// @operand ds: out {f32} optional // [batch, heads, queries, keys], contiguous

import package::attention::operands::{Params, matrix_q, matrix_k, matrix_v, q_group, k_group, v_group};
import package::attention::score::{Params, sees_tile, final_score};
import package::attention::score::{captured_8, captured_16, captured_32, captured_64};
import package::attention::score_gradient::{final_gradient};
import package::attention::groups::{from_halves};
import package::attention::operands::{sees, score_of, operand_q, operand_k, operand_v, operand_g, Matrix};
import package::attention::operands::{Draws, draws_of, factors_of};
import package::attention::tile::{Params, bound, scores_t, results_t, rows, columns, add_scores, add_results, weights};
import package::attention::gradient::{Params, draws_of_call, g_group, matrix_g, group_of, pair_of, total_at, weight_of};
import package::attention::gradient::{store_group_of_dq};

struct Params {
  dq_strides: vec4<u32>,
}

const planes = 1u;

var<workgroup> parts: array<f32, ways * rows>; // of the sums of weights, [way][row]

@compute @workgroup_size(lanes * ways)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * workgroups.x + wid.x;
  if (id >= p.workgroups) {
    return;
  }
  let head = id / p.tiles % p.heads;
  let batch = id / p.tiles / p.heads;
  let first_row = (p.tiles - 1u - id % p.tiles) * rows;
  let lane = t % lanes;
  let way = t / lanes % ways;
  let q = matrix_q(batch, head);
  let k = matrix_k(batch, head / p.group);
  let v = matrix_v(batch, head / p.group);
  let g = matrix_g(batch, head);

  var pairs = array<vec2<f32>, rows_each>();
  for (var i = 0u; i < rows_each; i++) {
    pairs[i] = pair_of(batch, head, first_row + i * lanes + lane);
  }
  @if(dropped) let draws = draws_of_call();
  var sums = array<f32, rows_each>();
  var results = results_t();
  let end = select(p.keys, min(p.keys, first_row + rows), causal);
  for (var first = 0u; first < end; first += columns) {
    if (!sees_tile(batch, head, first_row, first)) {
      continue;
    }
    var scores = scores_t();
    add_scores(&scores, q, first_row, k, first, false, t);
    var changes = scores_t(); // of the weights
    add_scores(&changes, g, first_row, v, first, false, t);
    for (var i = 0u; i < rows_each; i++) {
      let row = i * lanes + lane;
      @if(dropped) var factors = vec4<f32>();
      for (var c = 0u; c < bound(columns_each); c++) {
        let column = way * columns_each + c;
        let product = scores[i * columns_each + c];
        let score = final_score(product, batch, head, first_row + row, first + column);
        var change = changes[i * columns_each + c];
        @if(dropped) {
          if (c % 4u == 0u) {
            factors = factors_of(draws, batch, head, first_row + row, first + column);
          }
          change *= factors[c % 4u];
        }
        let weight = weight_of(score, pairs[i].x);
        sums[i] += weight;
        change = weight * (change - pairs[i].y);
        weights[column * rows + row] = final_gradient(product, change, batch, head, first_row + row, first + column);
        @if(has_ds) {
          if (sees(first_row + row, first + column)) {
            store_ds(p.ds_at + ((batch * p.heads + head) * p.queries + first_row + row) * p.keys + first + column,
                     change);
          }
        }
      }
    }
    add_results(&results, 0u, k, first, t);
  }

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
      // A query that saw no key has no gradient.
      let total = select(1.0 / sum, 0.0, sum == 0.0);
      if (way == 0u) {
        store_pairs(total_at(batch, head, row), vec2<u32>(bitcast<u32>(total), 0u));
      }
      let row_at = batch * p.dq_strides.x + head * p.dq_strides.y + row * p.dq_strides.z;
      for (var n = 0u; n < bound(groups); n++) {
        let d = (way * groups + n) * 4u;
        if (d < p.dims) {
          store_group_of_dq(row_at, d, results[i * groups + n] * (p.scale * total));
        }
      }
    }
  }
}

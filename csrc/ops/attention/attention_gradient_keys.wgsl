// The gradients of attention with respect to keys and values. Rows are keys and columns are queries: those of all heads
// that share the keys, one after the other. Behind attention_gradient_queries.wgsl.
//
// @operand pairs: in {bits64}
// @operand dk: words {f32, f16, bf16}
// @operand dv: words {f32, f16, bf16}

import package::attention::operands::{Params, matrix_q, matrix_k, matrix_v, q_group, k_group, v_group};
import package::attention::score::{Params, sees_tile, final_score};
import package::attention::score::{captured_8, captured_16, captured_32, captured_64};
import package::attention::score_gradient::{final_gradient};
import package::attention::groups::{from_halves};
import package::attention::operands::{sees, score_of, operand_q, operand_k, operand_v, operand_g, Matrix};
import package::attention::operands::{Draws, draws_of, factors_of};
import package::attention::tile::{Params, bound, scores_t, results_t, rows, columns, add_scores, add_results, weights};
import package::attention::gradient::{Params, draws_of_call, g_group, matrix_g, group_of, pair_of, total_at, weight_of};
import package::attention::gradient::{store_group_of_dk, store_group_of_dv};

struct Params {
  dk_strides: vec4<u32>,
  dv_strides: vec4<u32>,
}

const planes = 2u;

var<workgroup> column_triples: array<vec3<f32>, columns>; // lse, delta and total of a query

@compute @workgroup_size(lanes * ways)
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
  let lane = t % lanes;
  let way = t / lanes % ways;
  let k = matrix_k(batch, key_head);
  let v = matrix_v(batch, key_head);

  @if(dropped) let draws = draws_of_call();
  var results_k = results_t();
  var results_v = results_t();
  let begin = select(0u, first_row / columns * columns, causal);
  for (var n = 0u; n < p.group; n++) {
    let head = key_head * p.group + n;
    let q = matrix_q(batch, head);
    let g = matrix_g(batch, head);
    for (var first = begin; first < p.queries; first += columns) {
      if (!sees_tile(batch, head, first, first_row)) {
        continue;
      }
      var scores = scores_t();
      add_scores(&scores, k, first_row, q, first, false, t);
      var changes = scores_t(); // of the weights
      add_scores(&changes, v, first_row, g, first, false, t);
      if (t < columns) {
        var triple = vec3<f32>(pair_of(batch, head, first + t), 0.0);
        if (first + t < p.queries) {
          triple.z = bitcast<f32>(load_pairs(total_at(batch, head, first + t)).x);
        }
        column_triples[t] = triple;
      }
      workgroupBarrier();
      for (var c = 0u; c < bound(columns_each); c++) {
        let column = way * columns_each + c;
        let triple = column_triples[column];
        for (var i = 0u; i < rows_each; i++) {
          let row = i * lanes + lane;
          let product = scores[i * columns_each + c];
          let score = final_score(product, batch, head, first + column, first_row + row);
          let weight = weight_of(score, triple.x) * triple.z;
          @if(dropped) let factor = factors_of(draws, batch, head, first + column, first_row + row)[(first_row + row) % 4u];
          @else let factor = 1.0;
          weights[column * rows + row] = weight * factor;
          let change = weight * (changes[i * columns_each + c] * factor - triple.y);
          weights[(columns + column) * rows + row] =
            final_gradient(product, change, batch, head, first + column, first_row + row);
        }
      }
      add_results(&results_v, 0u, g, first, t);
      add_results(&results_k, 1u, q, first, t);
    }
  }

  for (var i = 0u; i < rows_each; i++) {
    let row = first_row + i * lanes + lane;
    if (row < p.keys) {
      let dk_at = batch * p.dk_strides.x + key_head * p.dk_strides.y + row * p.dk_strides.z;
      let dv_at = batch * p.dv_strides.x + key_head * p.dv_strides.y + row * p.dv_strides.z;
      for (var n = 0u; n < bound(groups); n++) {
        let d = (way * groups + n) * 4u;
        if (d < p.dims) {
          store_group_of_dk(dk_at, d, results_k[i * groups + n] * p.scale);
        }
        if (d < p.value_dims) {
          store_group_of_dv(dv_at, d, results_v[i * groups + n]);
        }
      }
    }
  }
}

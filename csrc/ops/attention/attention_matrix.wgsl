// attention_forward.wgsl for float16 on subgroup matrices, with sums in float32. A workgroup has 128 queries of a head and
// walks the keys in steps of 16. Queries and results stay in subgroup matrices. For the softmax each invocation has one
// query. Heads of bfloat16 that fit in float16 are computed too (scales.wgsl).
//
// There is no running maximum, because rows of a subgroup matrix cannot be scaled. A query subtracts the largest score of
// the first step in which it sees a key. Later weights may exceed 1. Where the weights of a query add up to more than
// 60000, one might not be a float16. The workgroup then walks the keys twice more: for the true maxima, and for the
// results with them.
//
// In large calls a second dispatch makes the two more walks: a kernel with the code of one walk takes a tenth less time. The
// first dispatch stores in `failed` which of its workgroups must walk again. The second one reads that as `redo`, and its other
// workgroups end at once.
//
// @enable  f16 subgroups chromium_experimental_subgroup_matrix
// @operand out: words {f16, bf16}
// @operand lse: out {f32}
// @operand failed: out {i32} optional // of each workgroup: 1 or 0
// @operand seed: in {i64} optional // of dropout
// @operand offset: in {i64} optional
// @operand redo: in {i32} optional // what the dispatch before wrote to failed
// @operand q: in {bits128}         // groups of eight elements
// @operand k: in {bits128}
// @operand v: in {bits128}
// @const   full: bool // heads have 128 dimensions

import package::attention::operands::{Draws, draws_of, factors_of};
import package::attention::operands::{Params, Matrix, matrix_q, matrix_k, matrix_v, operand_q, operand_k, operand_v};
import package::attention::operands::{operand_g, sees, score_of, keys_seen};
import package::attention::matrix::{Left, Right, Sum, threads, columns, log2_e, pitch, staged, product_pitch};
import package::attention::matrix::{weight_pitch, step_group, staged_at, stage_rows, row_matrix, products_of, halves_of};
import package::attention::matrix::{four_from, scores_of, is_masked, stage_results, results_of};
import package::attention::matrix::{q_factor, k_factor, v_factor, v_top, staged_group, product_scale, score_unit};
import package::attention::matrix::{take_scales, row_groups};
@if(!full) import package::attention::matrix::{group_or_zero};
import package::attention::score::{Params, final_scores, block_state, tile_state};
import package::attention::score::{captured_8, captured_16, captured_32, captured_64};
import package::attention::scales::{head_fits, power_of_two, factor_of, top_of, halves_from};
// @require has_seed == dropped && has_offset == dropped && has_scales == bfloat && (wide || !full)
// @require (bfloat || !converted) && !(has_failed && has_redo)

struct Params {
  out_strides: vec4<u32>,
  lse_batch: u32,  // strides
  lse_head: u32,
  tiles: u32,      // of the queries of a head
  workgroups: u32,
  one: u32,        // 1, which compilers cannot know
}

const rows = 128u;

// What a walk over the keys is for.
const first_try = 0u;
const find_maxima = 1u;
const with_maxima = 2u;
@if(has_redo) const first_walk = find_maxima;
@else const first_walk = first_try;
@if(has_failed) const last_walk = first_try;
@else const last_walk = with_maxima;

// The lowest finite number. A query that saw no key has this maximum.
const lowest = -0x1.fffffep127f;

var<workgroup> key_part: array<vec4<u32>, staged>;
var<workgroup> value_part: array<vec4<u32>, staged>;
var<workgroup> products: array<vec4<u32>, 576>;
// Weights, [query][key]. Heads of up to 64 dimensions keep them where the products were.
@if(wide)
var<workgroup> weights: array<vec4<u32>, rows * weight_pitch>;
var<workgroup> overflowed: atomic<u32>;

// The first key of the step at a place of a walk. Scores that a program changes are walked from the last key to the first.
// A bias that falls with the distance makes the scores of near keys the largest. These come first for a query that sees the
// keys before it, so no later weight is too large. Behind the last step the result is above all keys.
fn keys_at(at: u32, end: u32) -> u32 {
  @if(modified) return (end - 1u) / columns * columns - at;
  @else return at;
}

// Whether the walk comes to another block of keys.
fn enters_block(at: u32, key: u32) -> bool {
  return at == 0u || (key + columns) % p.block_keys == 0u;
}

// The place of the first step, at `start` or behind it, that the block mask does not leave out; `end` or more if there is
// none. What lies within a block is a step if its last keys were one.
fn walk_from(batch: u32, head: u32, query: u32, start: u32, end: u32) -> u32 {
  var at = start;
  @if(tiled && has_blocks) {
    while (at < end) {
      let key = keys_at(at, end);
      if (!enters_block(at, key) || block_state(batch, head, query, key) != 0) {
        break;
      }
      at += key % p.block_keys + columns;
    }
  }
  return at;
}

fn enter_block(batch: u32, head: u32, query: u32, at: u32, key: u32) {
  @if(tiled && has_blocks) {
    if (enters_block(at, key)) {
      tile_state = block_state(batch, head, query, key);
    }
  }
}

fn group_of(operand: u32, at: u32) -> vec4<u32> {
  if (operand == operand_q) {
    return load_q(p.q_at + at / 8u);
  }
  if (operand == operand_k) {
    return load_k(p.k_at + at / 8u);
  }
  return load_v(p.v_at + at / 8u);
}

// Behind the last row it gives that row, not zero: queries behind the last are not stored, and scores with keys behind the last are
// replaced. Values behind the last key must be zero: clear_values(). Wide heads take a fifth less time without a test.
@if(full)
fn group_or_zero(m: Matrix, row: u32, d: u32) -> vec4<u32> {
  return group_of(m.operand, m.at + min(row, max(m.rows, 1u) - 1u) * m.stride + d);
}

// Values behind the last key become zero: infinite ones times weights of zero would be NaN. Each invocation clears a group that
// it staged itself, so no barrier is needed.
@if(full)
fn clear_values(first: u32, n: u32) {
  if (first + n / row_groups >= p.keys) {
    value_part[staged_at(n)] = vec4<u32>();
  }
}

fn key_matrix(d: u32) -> Left {
  return subgroupMatrixLoad<Left, row_major>(&key_part, d / 8u, pitch);
}

fn value_matrix(d: u32) -> Right {
  return subgroupMatrixLoad<Right, row_major>(&value_part, d / 8u, pitch);
}

fn weight_matrix(row: u32) -> Left {
  @if(wide) return subgroupMatrixLoad<Left, row_major>(&weights, row * weight_pitch, weight_pitch);
  @else return subgroupMatrixLoad<Left, row_major>(&products, row * weight_pitch, weight_pitch);
}

// The inverses of the sums of weights lie where the keys were. An array of their own would exceed the workgroup memory with
// which two workgroups of wide heads run at once on an NVIDIA GPU.
fn keep_inverse(row: u32, inverse: f32) {
  key_part[row / 4u][row % 4u] = bitcast<u32>(inverse);
}

fn inverse_of(row: u32) -> f32 {
  return bitcast<f32>(key_part[row / 4u][row % 4u]);
}

fn keep_weights(row: u32, column: u32, a: vec4<f32>, b: vec4<f32>) {
  @if(wide) weights[row * weight_pitch + column / 8u] = halves_of(a, b);
  @else products[row * weight_pitch + column / 8u] = halves_of(a, b);
}

// A level is a score. Without a bias it is the product of a query and a key, not yet scaled. Differences of levels times
// level_step() are those of scores in units of log(2). So the difference of equal scores is exactly 0, however large they are.
fn levels_of(x: vec4<f32>, batch: u32, head: u32, query: u32, keys: vec4<u32>) -> vec4<f32> {
  @if(has_bias || modified) return scores_of(x, score_unit(), batch, head, vec4<u32>(query), keys);
  @else return x;
}

fn level_step() -> f32 {
  @if(has_bias || modified) return log2_e;
  @else return product_scale() * log2_e;
}

// Levels, negated where the scale is negative: they grow with the scores.
fn rising(levels: vec4<f32>) -> vec4<f32> {
  @if(has_bias || modified) return levels;
  @else return select(levels, -levels, vec4<bool>(p.scale < 0.0));
}

// The largest of a maximum and of four such levels.
fn largest(maximum: f32, levels: vec4<f32>, seen: vec4<bool>) -> f32 {
  let finite = select(vec4<f32>(lowest), rising(levels), seen);
  return max_flat_f(max_flat_f(max_flat_f(max_flat_f(maximum, finite.x), finite.y), finite.z), finite.w);
}

// Weights relative to the one of the maximum. `top` is the maximum's level, and `shift` is shift_of_weights(top).
fn weights_at(levels: vec4<f32>, top: f32, shift: f32) -> vec4<f32> {
  @if(has_failed) return exp2(fma(levels, vec4<f32>(level_step()), vec4<f32>(shift)));
  @else return exp2((levels - top) * level_step());
}

// The exponent of a weight is its level times level_step() plus this shift. All weights of a query have the same shift, so its
// rounding is a factor that the division by their sum removes. Where fma() rounds the product too, weights at most_shift are
// off by 0.3 %, about as much as by the rounding of such scores. The walk fails for queries whose shift is above most_shift, and
// for those whose scores were all the lowest number or unseen.
fn shift_of_weights(top: f32) -> f32 {
  @if(has_failed) return min(-top * level_step(), -lowest);
  @else return 0.0;
}

const most_shift = 65536.0;

fn is_too_large(maximum: f32, query: u32) -> bool {
  @if(has_failed) {
    @if(has_bias || modified) let of_lowest_bias = query < p.queries;
    @else let of_lowest_bias = false;
    return select(abs(maximum * level_step()) > most_shift, of_lowest_bias, maximum == lowest);
  }
  @else return false;
}

fn store_group(row_at: u32, d: u32, group: vec4<f32>) {
  let i = p.out_at + row_at + d * p.out_strides.w;
  @if(owns_out) {
    store4_out(i, group.x, group.y, group.z, group.w);
  }
  @else {
    for (var k = 0u; k < 4u; k++) {
      store_out(i + k * p.out_strides.w, group[k]);
    }
  }
}

// Stores 16 x 16 results of each subgroup: the rows from `row` on of the workgroup's, which start at query `first_row`.
fn store_results(results: Sum, head_at: u32, first_row: u32, row: u32, d0: u32, subgroup: u32, lane: u32) {
  stage_results(results, subgroup);
  let result_row = row + lane / 2u;
  let d = d0 + lane % 2u * 8u;
  if (first_row + result_row < p.queries && d < p.value_dims) {
    let row_at = head_at + (first_row + result_row) * p.out_strides.z;
    store_group(row_at, d, results_of(subgroup, lane, 0u) * inverse_of(result_row));
    store_group(row_at, d + 4u, results_of(subgroup, lane, 1u) * inverse_of(result_row));
  }
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) t: u32, @builtin(subgroup_id) subgroup: u32) {
  let id = wid.y * workgroups.x + wid.x;
  if (id >= p.workgroups) {
    return;
  }
  let head = id / p.tiles % p.heads;
  let batch = id / p.tiles / p.heads;
  // Later queries see more keys: their tiles come first.
  let first_row = (p.tiles - 1u - id % p.tiles) * rows;
  @if(bfloat) {
    if (!head_fits(batch, head, t)) {
      return;
    }
    take_scales(batch, head);
  }
  @if(has_redo) {
    if (t == 0u) {
      atomicStore(&overflowed, u32(load_redo(p.redo_at + id)));
    }
    if (workgroupUniformLoad(&overflowed) == 0u) {
      return;
    }
  }
  let query = first_row + t;
  let lane = t % 32u;
  let q = matrix_q(batch, head);
  let k = matrix_k(batch, head / p.group);
  let v = matrix_v(batch, head / p.group);
  @if(dropped) let draws = draws_of(load_seed(p.seed_at), load_offset(p.offset_at));

  @repeat(i, 2) {
    stage_rows(q, q_factor, first_row + subgroup * 32u + 16u * $i, 0u, subgroup, lane);
    @repeat(j, 4) let q$i$j = row_matrix(subgroup, 16u * $j);
  }
  @repeat(i, 2) {
    @if(wide) stage_rows(q, q_factor, first_row + subgroup * 32u + 16u * $i, 64u, subgroup, lane);
    @repeat(j, 4..8) @if(wide) let q$i$j = row_matrix(subgroup, 16u * $j - 64u);
  }

  @repeat(i, 2) @repeat(j, 4) var r$i$j = Sum();
  @repeat(i, 2) @repeat(j, 4..8) @if(wide) var r$i$j = Sum();
  var maximum = lowest;
  var sum = 0.0;
  if (t == 0u) {
    atomicStore(&overflowed, 0u);
  }
  let limit = keys_seen(query);
  let end = select(p.keys, min(p.keys, first_row + rows), causal);
  for (var walk = first_walk; walk <= last_walk; walk++) {
    @repeat(i, 2) @repeat(j, 4) r$i$j = Sum();
    @repeat(i, 2) @repeat(j, 4..8) @if(wide) r$i$j = Sum();
    maximum = select(maximum, lowest, walk == find_maxima);
    sum = 0.0;
    let begin = walk_from(batch, head, first_row, 0u, end);
    let second = walk_from(batch, head, first_row, begin + columns, end);
    var next_keys = step_group(k, keys_at(begin, end), t);
    @if(wide) var more_keys = step_group(k, keys_at(begin, end), t + threads);
    workgroupBarrier();
    key_part[staged_at(t)] = staged_group(next_keys, k_factor);
    @if(wide) key_part[staged_at(t + threads)] = staged_group(more_keys, k_factor);
    next_keys = step_group(k, keys_at(second, end), t);
    @if(wide) more_keys = step_group(k, keys_at(second, end), t + threads);
    var next_values = step_group(v, keys_at(begin, end), t);
    @if(wide) var more_values = step_group(v, keys_at(begin, end), t + threads);
    workgroupBarrier();

    for (var at = begin; at < end; at = walk_from(batch, head, first_row, at + columns * p.one, end)) {
      let first = keys_at(at, end);
      enter_block(batch, head, first_row, at, first);
      // The keys of the next step, and of the one after that.
      let next_at = walk_from(batch, head, first_row, at + columns, end);
      let next = keys_at(next_at, end);
      @if(tiled && has_blocks) let after = keys_at(walk_from(batch, head, first_row, next_at + columns, end), end);
      @else let after = keys_at(at + 2u * columns, end);
      var s0 = Sum();
      var s1 = Sum();
      @repeat(i, 4) {
        let k$i = key_matrix(16u * $i);
        s0 = subgroupMatrixMultiplyAccumulate(k$i, q0$i, s0);
        s1 = subgroupMatrixMultiplyAccumulate(k$i, q1$i, s1);
      }
      @if(wide) {
        @repeat(i, 4..8) {
          let k$i = key_matrix(16u * $i);
          s0 = subgroupMatrixMultiplyAccumulate(k$i, q0$i, s0);
          s1 = subgroupMatrixMultiplyAccumulate(k$i, q1$i, s1);
        }
      }
      subgroupMatrixStore<row_major>(&products, subgroup * 8u, s0, product_pitch);
      subgroupMatrixStore<row_major>(&products, subgroup * 8u + 4u, s1, product_pitch);
      workgroupBarrier();

      key_part[staged_at(t)] = staged_group(next_keys, k_factor);
      @if(wide) key_part[staged_at(t + threads)] = staged_group(more_keys, k_factor);
      next_keys = step_group(k, after, t);
      @if(wide) more_keys = step_group(k, after, t + threads);
      let masked = is_masked(first_row, rows, first, columns);
      @repeat(i, 4) let x$i = products_of(0u, t, 4u * $i);
      @repeat(i, 4) let keys$i = four_from(first + 4u * $i);
      @repeat(i, 4) let l$i = levels_of(x$i, batch, head, query, keys$i);
      if (walk == find_maxima || maximum == lowest) {
        var most = largest(maximum, l0, keys0 < vec4<u32>(limit));
        @repeat(i, 1..4) most = largest(most, l$i, keys$i < vec4<u32>(limit));
        // A sum above 0 while the maximum is the lowest number: a bias set scores to it, and they have weights of 1. Now
        // a larger score came, so these weights are wrong. An infinite sum makes the workgroup walk again.
        sum = select(sum, inf_f(), sum > 0.0 && most > maximum);
        maximum = most;
      }
      if (walk != find_maxima) {
        value_part[staged_at(t)] = staged_group(next_values, v_factor);
        @if(wide) value_part[staged_at(t + threads)] = staged_group(more_values, v_factor);
        @if(full) {
          if (first + columns > p.keys) {
            clear_values(first, t);
            clear_values(first, t + threads);
          }
        }
        next_values = step_group(v, next, t);
        @if(wide) more_values = step_group(v, next, t + threads);
        let top = rising(vec4<f32>(maximum)).x;
        let shift = shift_of_weights(top);
        @repeat(i, 4) var w$i = weights_at(l$i, top, shift);
        if (masked) {
          @repeat(i, 4) w$i = select(vec4<f32>(), w$i, keys$i < vec4<u32>(limit));
        }
        let w = (w0 + w1) + (w2 + w3);
        sum += (w.x + w.y) + (w.z + w.w);
        @if(dropped) {
          // Kept weights are multiplied by p.kept at the end, in float32. Here the product could exceed float16.
          @repeat(i, 4) w$i = select(vec4<f32>(), w$i, factors_of(draws, batch, head, query, first + 4u * $i) > vec4<f32>());
        }
        @if(!wide) workgroupBarrier();
        keep_weights(t, 0u, w0, w1);
        keep_weights(t, 8u, w2, w3);
        workgroupBarrier();

        let w_0 = weight_matrix(subgroup * 32u);
        let w_1 = weight_matrix(subgroup * 32u + 16u);
        @repeat(i, 4) {
          let v$i = value_matrix(16u * $i);
          r0$i = subgroupMatrixMultiplyAccumulate(w_0, v$i, r0$i);
          r1$i = subgroupMatrixMultiplyAccumulate(w_1, v$i, r1$i);
        }
        @if(wide) {
          @repeat(i, 4..8) {
            let v$i = value_matrix(16u * $i);
            r0$i = subgroupMatrixMultiplyAccumulate(w_0, v$i, r0$i);
            r1$i = subgroupMatrixMultiplyAccumulate(w_1, v$i, r1$i);
          }
        }
        @if(!wide) workgroupBarrier();
      }
      else {
        workgroupBarrier();
      }
    }

    if (walk == first_try) {
      // A sum is never negative. As bits, infinity and NaN of either sign are larger than 60000.
      if (bitcast<u32>(sum) > bitcast<u32>(60000.0) || is_too_large(maximum, query)) {
        atomicStore(&overflowed, 1u);
      }
      workgroupBarrier();
      @if(has_failed) {
        if (t == 0u) {
          store_failed(p.failed_at + id, i32(atomicLoad(&overflowed)));
        }
      }
      @else {
        if (workgroupUniformLoad(&overflowed) == 0u) {
          break;
        }
      }
    }
  }

  // With +infinity or NaN among the scores, the whole row is NaN.
  let unseen = sum == 0.0 && is_finite_f(maximum);
  var inverse = select(select(nan_f(), 1.0 / sum, is_finite_f(maximum)), 0.0, unseen);
  if (query < p.queries) {
    @if(has_bias || modified) let value = maximum + log_f(sum);
    @else let value = maximum * abs(product_scale()) + log_f(sum);
    store_lse(p.lse_at + batch * p.lse_batch + head * p.lse_head + query,
              select(select(nan_f(), value, is_finite_f(maximum)), -inf_f(), unseen));
  }
  @if(dropped) inverse *= p.kept;
  @if(bfloat) inverse *= power_of_two(v_top - 15);
  workgroupBarrier();
  keep_inverse(t, inverse);
  let head_at = batch * p.out_strides.x + head * p.out_strides.y;
  let row = subgroup * 32u;
  @repeat(i, 2) @repeat(j, 4) store_results(r$i$j, head_at, first_row, row + 16u * $i, 16u * $j, subgroup, lane);
  @if(wide) {
    @repeat(i, 2) @repeat(j, 4..8) store_results(r$i$j, head_at, first_row, row + 16u * $i, 16u * $j, subgroup, lane);
  }
}

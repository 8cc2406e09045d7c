// What the kernels of attention in blocks share. A workgroup computes a tile of scores, `rows` by `columns`, and the
// results of its rows. An invocation has blocks of 4 x 4 of both in registers, up to two by two of each. Rows are queries
// and columns are keys, but in the gradient of keys and values it is the other way round.
//
// The factors of a product pass through workgroup memory in steps, with what is summed over outermost. So a step reads
// two to four groups of four elements for 16 to 64 products. All factors use the same memory one after the other: more
// workgroups share a processor the less memory they take.
//
// Blocks are indexed by literals only, or a compiler may keep them in memory.
//
// A kernel that imports this declares
//   fn group_of(operand: u32, row_at: u32, d: u32) -> vec4<f32>, which calls q_group and the like.
//
// @const   invocations: u32 in {64, 128, 256}
// @const   lanes: u32 in {8, 16} // invocations that share a row
// @const   row_blocks: u32 in {1, 2} // of an invocation
// @const   column_blocks: u32 in {1, 2}
// @const   dim_blocks: u32 in {1, 2} // of results
// @const   ways: u32 in {1, 2} // invocations that share a block of results: each sums over a part of the columns
// @const   rolled: bool // inner loops stay loops: for compilers that take long over long shaders
// @const   step: u32 in {16, 32} // of what is summed over
// @require invocations * row_blocks >= 4 * lanes && invocations * row_blocks <= 32 * lanes
// @require lanes * column_blocks * step <= 4 * invocations && lanes * column_blocks * step >= invocations
// @require step * row_blocks <= 4 * lanes && step * lanes * dim_blocks <= 4 * invocations * ways
// @require lanes == 16 || ways == 1
// @require dim_blocks == 1 || ways == 1

struct Params {
  tiles: u32,      // of the rows of a head
  workgroups: u32,
  one: u32,        // 1, which compilers cannot know
}

alias Blocks = array<mat4x4<f32>, 4>; // [block of rows][block of columns or of dimensions][row]

const height = invocations / lanes; // invocations that share a column
const rows = 4u * height * row_blocks;
const columns = 4u * lanes * column_blocks;
const width = lanes / ways * dim_blocks; // groups of a row of the results
// Groups of a step, and one of padding against bank conflicts.
const row_pitch = height * row_blocks + 1u;
const column_pitch = lanes * column_blocks + 1u;
const most_blocks = (column_blocks + dim_blocks + 1u) / 2u; // of columns and of dimensions

var<workgroup> row_part: array<vec4<f32>, step * row_pitch>; // [step][group of rows]
// [step][group of columns], or [step][group of a row of the results]
var<workgroup> column_part: array<vec4<f32>, step * (lanes * most_blocks + 1u)>;

// Where an invocation's blocks are: 32 neighbours have 4 x 8.
struct Place {
  t: u32,
  row: u32,    // of `height`
  column: u32, // of `lanes`
}

fn place_of(t: u32) -> Place {
  return Place(t, t / (4u * lanes) * 4u + t / 8u % 4u, t / 32u % (lanes / 8u) * 8u + t % 8u);
}

fn bound(count: u32) -> u32 {
  @if(rolled) return count * p.one;
  @else return count;
}

fn group_or_zero(m: Matrix, row: u32, d: u32) -> vec4<f32> {
  if (row < m.rows && d < m.dims) {
    return group_of(m.operand, m.at + row * m.stride, d);
  }
  return vec4<f32>();
}

fn rows_times(block: mat4x4<f32>, factors: vec4<f32>) -> mat4x4<f32> {
  return mat4x4<f32>(block[0] * factors.x, block[1] * factors.y, block[2] * factors.z, block[3] * factors.w);
}

fn row_sums(block: mat4x4<f32>) -> vec4<f32> {
  let sums = transpose(block);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// ---- Steps of the scores: dimensions of all rows and columns.

// An invocation's share of a step: up to four groups.
alias Share = array<vec4<f32>, 4>;

// Group n of a step of `length` rows of an operand. Two neighbouring groups are of one row.
fn step_group(m: Matrix, first: u32, length: u32, d0: u32, n: u32) -> vec4<f32> {
  return group_or_zero(m, first + n / 2u % length, d0 + (n / 2u / length * 2u + n % 2u) * 4u);
}

fn share_of(m: Matrix, first: u32, length: u32, d0: u32, t: u32) -> Share {
  let each = length * step / 4u / invocations;
  var share = Share();
  share[0] = step_group(m, first, length, d0, t);
  if (each > 1u) {
    share[1] = step_group(m, first, length, d0, t + invocations);
  }
  if (each > 2u) {
    share[2] = step_group(m, first, length, d0, t + 2u * invocations);
    share[3] = step_group(m, first, length, d0, t + 3u * invocations);
  }
  return share;
}

fn keep_row_group(group: vec4<f32>, n: u32) {
  let row = n / 2u % rows;
  let i = (n / 2u / rows * 2u + n % 2u) * 4u * row_pitch + row / 4u;
  row_part[i][row % 4u] = group.x;
  row_part[i + row_pitch][row % 4u] = group.y;
  row_part[i + 2u * row_pitch][row % 4u] = group.z;
  row_part[i + 3u * row_pitch][row % 4u] = group.w;
}

fn keep_column_group(group: vec4<f32>, n: u32) {
  let column = n / 2u % columns;
  let i = (n / 2u / columns * 2u + n % 2u) * 4u * column_pitch + column / 4u;
  column_part[i][column % 4u] = group.x;
  column_part[i + column_pitch][column % 4u] = group.y;
  column_part[i + 2u * column_pitch][column % 4u] = group.z;
  column_part[i + 3u * column_pitch][column % 4u] = group.w;
}

fn keep_rows(share: Share, t: u32) {
  let each = rows * step / 4u / invocations;
  keep_row_group(share[0], t);
  if (each > 1u) {
    keep_row_group(share[1], t + invocations);
  }
  if (each > 2u) {
    keep_row_group(share[2], t + 2u * invocations);
    keep_row_group(share[3], t + 3u * invocations);
  }
}

fn keep_columns(share: Share, t: u32) {
  let each = columns * step / 4u / invocations;
  keep_column_group(share[0], t);
  if (each > 1u) {
    keep_column_group(share[1], t + invocations);
  }
  if (each > 2u) {
    keep_column_group(share[2], t + 2u * invocations);
    keep_column_group(share[3], t + 3u * invocations);
  }
}

// The products of rows of `a` and of `b`, summed over their dimensions.
fn scores_of(a: Matrix, first_row: u32, b: Matrix, first_column: u32, place: Place) -> Blocks {
  var scores = Blocks();
  var next_a = share_of(a, first_row, rows, 0u, place.t);
  var next_b = share_of(b, first_column, columns, 0u, place.t);
  for (var d0 = 0u; d0 < a.dims; d0 += step) {
    workgroupBarrier();
    keep_rows(next_a, place.t);
    keep_columns(next_b, place.t);
    workgroupBarrier();
    next_a = share_of(a, first_row, rows, d0 + step, place.t);
    next_b = share_of(b, first_column, columns, d0 + step, place.t);
    for (var k = 0u; k < bound(step); k++) {
      let a0 = row_part[k * row_pitch + place.row];
      let b0 = column_part[k * column_pitch + place.column];
      scores[0] = outer_add(a0, b0, scores[0]);
      if (column_blocks > 1u) {
        let b1 = column_part[k * column_pitch + lanes + place.column];
        scores[1] = outer_add(a0, b1, scores[1]);
        if (row_blocks > 1u) {
          let a1 = row_part[k * row_pitch + height + place.row];
          scores[2] = outer_add(a1, b0, scores[2]);
          scores[3] = outer_add(a1, b1, scores[3]);
        }
      } else if (row_blocks > 1u) {
        let a1 = row_part[k * row_pitch + height + place.row];
        scores[2] = outer_add(a1, b0, scores[2]);
      }
    }
  }
  return scores;
}

// ---- Steps of the results: columns, with the weights of all rows and a row of an operand each.

fn result_share_of(m: Matrix, first: u32, t: u32) -> Share {
  let count = step * width;
  var share = Share();
  if (t < count) {
    share[0] = group_or_zero(m, first + t / width, t % width * 4u);
  }
  if (count > invocations) {
    share[1] = group_or_zero(m, first + (t + invocations) / width, (t + invocations) % width * 4u);
  }
  if (count > 2u * invocations) {
    share[2] = group_or_zero(m, first + (t + 2u * invocations) / width, (t + 2u * invocations) % width * 4u);
    share[3] = group_or_zero(m, first + (t + 3u * invocations) / width, (t + 3u * invocations) % width * 4u);
  }
  return share;
}

fn keep_result_share(share: Share, t: u32) {
  let count = step * width;
  if (t < count) {
    column_part[t] = share[0];
  }
  if (count > invocations) {
    column_part[t + invocations] = share[1];
  }
  if (count > 2u * invocations) {
    column_part[t + 2u * invocations] = share[2];
    column_part[t + 3u * invocations] = share[3];
  }
}

fn keep_weights(block: mat4x4<f32>, at: u32) {
  let of_columns = transpose(block);
  row_part[at] = of_columns[0];
  row_part[at + row_pitch] = of_columns[1];
  row_part[at + 2u * row_pitch] = of_columns[2];
  row_part[at + 3u * row_pitch] = of_columns[3];
}

// Adds the rows of `b` from first_column on, times the weights in a block of columns: those of the upper and the lower
// block of rows. `share`: of the first step.
fn add_results_of(results: ptr<function, Blocks>, upper: mat4x4<f32>, lower: mat4x4<f32>, b: Matrix, first_column: u32,
                  share: Share, place: Place) {
  let way = place.column / (lanes / ways);
  let group = place.column % (lanes / ways);
  let end = min(4u * lanes * p.one, max(b.rows, first_column) - first_column);
  var next = share;
  for (var c0 = 0u; c0 < end; c0 += step) {
    workgroupBarrier();
    if (place.column * 4u / step == c0 / step) {
      let at = place.column * 4u % step * row_pitch + place.row;
      keep_weights(upper, at);
      if (row_blocks > 1u) {
        keep_weights(lower, at + height);
      }
    }
    keep_result_share(next, place.t);
    workgroupBarrier();
    if (c0 + step < end) {
      next = result_share_of(b, first_column + c0 + step, place.t);
    }
    for (var k = 0u; k < bound(step / ways); k++) {
      let column = way * (step / ways) + k;
      let a0 = row_part[column * row_pitch + place.row];
      let b0 = column_part[column * width + group];
      (*results)[0] = outer_add(a0, b0, (*results)[0]);
      if (dim_blocks > 1u) {
        let b1 = column_part[column * width + lanes / ways + group];
        (*results)[1] = outer_add(a0, b1, (*results)[1]);
        if (row_blocks > 1u) {
          let a1 = row_part[column * row_pitch + height + place.row];
          (*results)[2] = outer_add(a1, b0, (*results)[2]);
          (*results)[3] = outer_add(a1, b1, (*results)[3]);
        }
      } else if (row_blocks > 1u) {
        let a1 = row_part[column * row_pitch + height + place.row];
        (*results)[2] = outer_add(a1, b0, (*results)[2]);
      }
    }
  }
}

// Adds the rows of `b` that are columns of the tile, times their weights.
fn add_results(results: ptr<function, Blocks>, weights: Blocks, b: Matrix, first_column: u32, share: Share,
               place: Place) {
  add_results_of(results, weights[0], weights[2], b, first_column, share, place);
  if (column_blocks > 1u) {
    let next = first_column + 4u * lanes;
    add_results_of(results, weights[1], weights[3], b, next, result_share_of(b, next, place.t), place);
  }
}

// Where two invocations share a block of results, the first gets their sum.
fn join_ways(results: ptr<function, Blocks>, place: Place) {
  if (ways > 1u) {
    (*results)[0] = joined((*results)[0], place);
    if (row_blocks > 1u) {
      (*results)[2] = joined((*results)[2], place);
    }
  }
}

fn joined(block: mat4x4<f32>, place: Place) -> mat4x4<f32> {
  let at = place.row * (lanes / 2u) + place.column % (lanes / 2u);
  let next = height * (lanes / 2u);
  workgroupBarrier();
  if (place.column >= lanes / 2u) {
    row_part[at] = block[0];
    row_part[at + next] = block[1];
    column_part[at] = block[2];
    column_part[at + next] = block[3];
  }
  workgroupBarrier();
  return mat4x4<f32>(block[0] + row_part[at], block[1] + row_part[at + next], block[2] + column_part[at],
                     block[3] + column_part[at + next]);
}

// ---- What all invocations of a row know together. Each gives a value for four rows and gets that of all.

fn row_totals(upper: vec4<f32>, lower: vec4<f32>, place: Place) -> array<vec4<f32>, 2> {
  share_parts(upper, lower, place);
  var totals = array<vec4<f32>, 2>();
  for (var i = 0u; i < bound(lanes); i++) {
    totals[0] += row_part[i * height * row_blocks + place.row];
    if (row_blocks > 1u) {
      totals[1] += row_part[i * height * row_blocks + height + place.row];
    }
  }
  return totals;
}

fn row_maxima(upper: vec4<f32>, lower: vec4<f32>, place: Place) -> array<vec4<f32>, 2> {
  share_parts(upper, lower, place);
  var maxima = array<vec4<f32>, 2>(upper, lower);
  for (var i = 0u; i < bound(lanes); i++) {
    maxima[0] = max(maxima[0], row_part[i * height * row_blocks + place.row]);
    if (row_blocks > 1u) {
      maxima[1] = max(maxima[1], row_part[i * height * row_blocks + height + place.row]);
    }
  }
  return maxima;
}

fn share_parts(upper: vec4<f32>, lower: vec4<f32>, place: Place) {
  let at = place.column * height * row_blocks + place.row;
  workgroupBarrier();
  row_part[at] = upper;
  if (row_blocks > 1u) {
    row_part[at + height] = lower;
  }
  workgroupBarrier();
}

// ---- Four scores of a row

const log2_e = 1.4426950408889634;

fn four_from(key: u32) -> vec4<u32> {
  return vec4<u32>(key, key + 1u, key + 2u, key + 3u);
}

// Scores of queries and keys that may lie beyond the end.
fn scaled(products: vec4<f32>, batch: u32, head: u32, queries: vec4<u32>, keys: vec4<u32>) -> vec4<f32> {
  @if(modified) var scores = final_scores(products, batch, head, queries, keys);
  @else var scores = products * p.scale;
  @if(has_bias) {
    let at = p.bias_at + batch * p.bias_strides.x + head * p.bias_strides.y;
    for (var i = 0u; i < 4u; i++) {
      if (queries[i] < p.queries && keys[i] < p.keys) {
        scores[i] += load_bias(at + queries[i] * p.bias_strides.z + keys[i] * p.bias_strides.w);
      }
    }
  }
  return scores;
}

fn are_seen(queries: vec4<u32>, keys: vec4<u32>) -> vec4<bool> {
  @if(causal) return (keys < vec4<u32>(p.keys)) & (queries < vec4<u32>(p.queries)) & (keys <= queries);
  @else return (keys < vec4<u32>(p.keys)) & (queries < vec4<u32>(p.queries));
}

// Whether some query of a tile does not see all its keys.
fn is_masked(first_query: u32, queries: u32, first_key: u32, keys: u32) -> bool {
  return first_query + queries > p.queries || first_key + keys > p.keys ||
         (causal && first_key + keys > first_query + 1u);
}

// 2 to a power of at most about 0. A compiler may assume that there is no NaN, and exp2() of -infinity is not 0 on all
// devices.
fn exp2_of(x: vec4<f32>) -> vec4<f32> {
  let is_nan = (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
  return select(select(exp2(x), vec4<f32>(), x < vec4<f32>(-126.0)), x, is_nan);
}

// The weights of four scores, from their products and the logarithms of their queries. A query that saw no key gives
// none.
fn weights_of(products: vec4<f32>, lse: vec4<f32>, masked: bool, batch: u32, head: u32, queries: vec4<u32>,
              keys: vec4<u32>) -> vec4<f32> {
  let weights = exp2_of((scaled(products, batch, head, queries, keys) - lse) * log2_e);
  var seen = bitcast<vec4<u32>>(lse) != vec4<u32>(0xff800000u);
  if (masked) {
    seen = seen & are_seen(queries, keys);
  }
  return select(vec4<f32>(), weights, seen);
}

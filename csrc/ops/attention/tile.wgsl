// What the tiled kernels of attention share. A workgroup computes a tile of scores: `lanes * rows_each` rows, of which
// each invocation has `rows_each`, by `ways * columns_each` columns. The `ways` invocations of a row have
// `columns_each` of its scores each, and `groups` groups of four elements of its result. Neighbouring invocations have
// neighbouring rows, so that they read the same element of a column at a time.
//
// Rows are queries and columns are keys, but in the gradient of keys and values it is the other way round.
//
// A kernel that imports this declares
//   fn group_of(operand: u32, row_at: u32, d: u32) -> vec4<f32>, which calls q_group and the like, and
//   const planes, the number of tiles of weights that it keeps.
//
// @const   lanes: u32 in {32, 64}
// @const   ways: u32 in {1, 4}
// @const   rows_each: u32 in {1, 2}
// @const   columns_each: u32 in {4, 8, 16}
// @const   groups: u32 in {4, 8, 16, 32}
// @const   chunk: u32 in {4, 16} // groups of a row that are in workgroup memory at a time
// @const   rolled: bool // inner loops stay loops: for compilers that take long over long shaders
// @require ways * groups <= 64 && lanes * ways <= 128 && lanes * rows_each <= 64
// @const   space: u32 in {128, 256} // groups of the columns that are in workgroup memory at a time
// @require ways * columns_each * chunk <= space

struct Params {
  tiles: u32,      // of the rows of a head
  workgroups: u32,
  one: u32,        // 1, which compilers cannot know
}

const threads = lanes * ways;
const rows = lanes * rows_each;
const columns = ways * columns_each;
// Two columns of padding, against bank conflicts.
const pitch = rows + 2u;
// Groups of a row of the result.
const width = ways * groups;
const columns_at_once = min(space / width, columns);

var<workgroup> row_part: array<vec4<f32>, chunk * pitch>; // [group][row]
var<workgroup> column_part: array<vec4<f32>, space>;      // [column][group]
var<workgroup> weights: array<f32, planes * columns * rows>; // [plane][column][row]

alias scores_t = array<f32, rows_each * columns_each>;
alias results_t = array<vec4<f32>, rows_each * groups>;

// The bound of an inner loop. Outer loops always stay loops.
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

fn stage_rows(m: Matrix, first: u32, d0: u32, t: u32) {
  for (var i = t; i < rows * chunk * p.one; i += threads) {
    row_part[i % chunk * pitch + i / chunk] = group_or_zero(m, first + i / chunk, d0 + i % chunk * 4u);
  }
}

fn stage_columns(m: Matrix, first: u32, count: u32, d0: u32, wide: u32, t: u32) {
  for (var i = t; i < count * wide * p.one; i += threads) {
    column_part[i] = group_or_zero(m, first + i / wide, d0 + i % wide * 4u);
  }
}

fn dot4(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

// Adds the products of rows of `a` and of `b`, over their dimensions. `staged`: the rows of `a` are in workgroup memory
// since the last call, if they fit.
fn add_scores(scores: ptr<function, scores_t>, a: Matrix, first_row: u32, b: Matrix, first_column: u32, staged: bool,
              t: u32) {
  let fits = a.dims <= chunk * 4u;
  for (var d0 = 0u; d0 < a.dims; d0 += chunk * 4u) {
    workgroupBarrier();
    if (!(staged && fits)) {
      stage_rows(a, first_row, d0, t);
    }
    stage_columns(b, first_column, columns, d0, chunk, t);
    workgroupBarrier();
    let count = min(chunk * p.one, (a.dims - d0 + 3u) / 4u);
    for (var g = 0u; g < count; g++) {
      var own = array<vec4<f32>, rows_each>();
      for (var i = 0u; i < rows_each; i++) {
        own[i] = row_part[g * pitch + i * lanes + t % lanes];
      }
      for (var c = 0u; c < bound(columns_each); c++) {
        let other = column_part[(t / lanes % ways * columns_each + c) * chunk + g];
        for (var i = 0u; i < rows_each; i++) {
          (*scores)[i * columns_each + c] = dot4(own[i], other, (*scores)[i * columns_each + c]);
        }
      }
    }
  }
}

// Adds the rows of `b` that are columns of the tile, times their weights in a plane.
fn add_results(results: ptr<function, results_t>, plane: u32, b: Matrix, first_column: u32, t: u32) {
  for (var c0 = 0u; c0 < columns * p.one; c0 += columns_at_once) {
    workgroupBarrier();
    stage_columns(b, first_column + c0, columns_at_once, 0u, width, t);
    workgroupBarrier();
    let count = min(columns_at_once * p.one, max(b.rows, first_column + c0) - first_column - c0);
    for (var c = 0u; c < count; c++) {
      var weight = array<f32, rows_each>();
      for (var i = 0u; i < rows_each; i++) {
        weight[i] = weights[(plane * columns + c0 + c) * rows + i * lanes + t % lanes];
      }
      for (var g = 0u; g < bound(groups); g++) {
        let other = column_part[c * width + t / lanes % ways * groups + g];
        for (var i = 0u; i < rows_each; i++) {
          (*results)[i * groups + g] = fma(other, vec4<f32>(weight[i]), (*results)[i * groups + g]);
        }
      }
    }
  }
}

// Reduces a strided tensor along some dimensions. A workgroup makes 256 / lanes results with `lanes` invocations
// each, or, where a result's elements are shared by several workgroups (`splits`), a partial result of each; a
// second dispatch then reduces the partial results.

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read> b1: array<u32>;
alias y_t = f32;
alias x_t = f32;
fn store_y(i: u32, v: y_t) { b0[i] = bitcast<u32>(v); }
fn load_x(i: u32) -> x_t { return bitcast<f32>(b1[i]); }
// @end

struct Params {
  results: u32,
  reduced: u32,     // elements per result
  count: u32,       // the same in the original tensor, when partial results are reduced
  splits: u32,
  chunk: u32,       // elements per result and split
  first_split: u32, // of this dispatch; a tensor larger than a binding takes several
  splits_here: u32,
  lanes_log2: u32,  // invocations per result
  lanes_first: u32, // neighbouring invocations read one result's elements (else neighbouring results')
  outer_rank: u32,
  inner_rank: u32,
  x_at: u32,
  y_at: u32,
  z_at: u32,
  unused0: u32,
  unused1: u32,
  scalars: vec4<u32>,
  more_at: vec4<u32>,
  outer: array<vec4<u32>, 14>, // the results' dimensions: size, strides of x, y and z
  inner: array<vec4<u32>, 14>, // the reduced dimensions: size, stride of x
  outer_more: array<vec4<u32>, 14>, // the same dimensions: strides of further inputs
  inner_more: array<vec4<u32>, 14>,
}
@group(0) @binding(31) var<uniform> p: Params;

// @hook reduction
alias acc_t = f32;
fn identity() -> acc_t { return 0.0; }
fn lift(x: x_t, i: u32) -> acc_t { return x; }
fn combine(a: acc_t, b: acc_t) -> acc_t { return a + b; }
// @end

// @hook inner
// Where element r of a result lies from its first.
fn inner(r: u32) -> u32 {
  var rest = r;
  var at = 0u;
  for (var d = 0u; d + 1u < p.inner_rank; d++) {
    let next = rest / p.inner[d].x;
    at += (rest - next * p.inner[d].x) * p.inner[d].y;
    rest = next;
  }
  return at + rest * p.inner[p.inner_rank - 1u].y;
}
// @end

// @hook access
// Elements are read in groups of `width`. Groups are counted from `origin`: from the result's first element, or,
// where a group is an aligned vector, from the start of the buffer.
const width = 1u;
fn origin(base: u32) -> u32 { return 0u; }
fn fetch(base: u32, e: u32) -> acc_t { return lift(load_x(base + inner(e)), e); }
fn fetch_group(base: u32, g: u32) -> acc_t { return fetch(base, g); }
// @end

// @hook more
// Finds where a result's elements start in further inputs.
fn locate_more(result: u32) {}
// @end

// @hook emit
fn emit(result: u32, split: u32, at: vec3<u32>, a: acc_t) { store_y(at.y, a); }
// @end

var<workgroup> shared_accs: array<acc_t, 256>;

// Combines this lane's share of the elements [begin, end) of the result at `base`.
fn run(base: u32, begin: u32, end: u32, lane: u32, lanes: u32) -> acc_t {
  var acc = identity();
  let first = origin(base) + begin;
  let last = origin(base) + end;
  let groups_begin = (first + width - 1u) / width;
  let groups_end = last / width;
  var g = groups_begin + lane;
  // Four at a time: the loads overlap, and sums of fours round less.
  for (; g + 3u * lanes < groups_end; g += 4u * lanes) {
    let a = fetch_group(base, g);
    let b = fetch_group(base, g + lanes);
    let c = fetch_group(base, g + 2u * lanes);
    let d = fetch_group(base, g + 3u * lanes);
    acc = combine(acc, combine(combine(a, b), combine(c, d)));
  }
  for (; g < groups_end; g += lanes) {
    acc = combine(acc, fetch_group(base, g));
  }
  // Elements of vectors that reach beyond the run.
  let head_end = min(groups_begin * width, last);
  for (var e = first + lane; e < head_end; e += lanes) {
    acc = combine(acc, fetch(base, e));
  }
  for (var e = max(groups_end * width, head_end) + lane; e < last; e += lanes) {
    acc = combine(acc, fetch(base, e));
  }
  return acc;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let workgroup = wid.y * workgroups.x + wid.x;
  let split = p.first_split + workgroup % p.splits_here;
  let lanes = 1u << p.lanes_log2;
  let per_workgroup = 256u >> p.lanes_log2;
  let lanes_first = p.lanes_first != 0u;
  let lane = select(lid / per_workgroup, lid & (lanes - 1u), lanes_first);
  let place = select(lid & (per_workgroup - 1u), lid >> p.lanes_log2, lanes_first);
  let result = (workgroup / p.splits_here) * per_workgroup + place;

  var acc = identity();
  var at = vec3<u32>(p.x_at, p.y_at, p.z_at);
  if (result < p.results) {
    var rest = result;
    for (var d = 0u; d < p.outer_rank; d++) {
      let next = rest / p.outer[d].x;
      at += (rest - next * p.outer[d].x) * p.outer[d].yzw;
      rest = next;
    }
    locate_more(result);
    let begin = split * p.chunk;
    acc = run(at.x, min(begin, p.reduced), min(begin + p.chunk, p.reduced), lane, lanes);
  }
  if (lanes > 1u) {
    shared_accs[lane * per_workgroup + place] = acc;
    for (var step = lanes >> 1u; step > 0u; step >>= 1u) {
      workgroupBarrier();
      if (lane < step) {
        acc = combine(acc, shared_accs[(lane + step) * per_workgroup + place]);
        shared_accs[lane * per_workgroup + place] = acc;
      }
    }
  }
  if (lane == 0u && result < p.results) {
    emit(result, split, at, acc);
  }
}

// Reduces a strided tensor along some dimensions. A workgroup makes 256 / lanes results with `lanes` invocations
// each, or, where a result's elements are shared by several workgroups (`splits`), a partial result of each; a
// second dispatch then reduces the partial results.
//
// @operand y: out any optional // results
// @operand z: out any optional // second results
// @operand x: vectors any optional // vectors: its reduced elements are contiguous
// @operand w: in any optional // further inputs, each with strides of its own (0 where it is broadcast)
// @operand m: in any optional
// @operand r: in any optional
// @operand parts: in of acc_t optional // partial results, those of a result side by side
// @operand new_parts: out of acc_t optional
// @const   row: u32 in 0..63 // of rows.yaml
// @const   element: {floats, ints, longs, complexes} // kind of x
// @const   inner_form: {one_inner, two_inner, any_inner} // number of reduced dimensions
// @require has_x != has_parts
// @require has_y != has_new_parts
// @require !has_z || has_y
// @require has_w == has_m && has_w == has_r
// @require !has_w || has_x
// @require !vectors_x || (one_inner && !has_w)
// @require !has_parts || (has_y && one_inner)

struct Params {
  results: u32,
  reduced: u32,     // elements per result that this dispatch reads
  first: u32,       // index of the first of these in the run of the result's elements
  count: f32,       // elements per result in the tensor
  splits: u32,      // per result
  first_split: u32, // of this dispatch
  splits_here: u32, // of this dispatch
  chunk: u32,       // elements per result and split
  lanes_log2: u32,  // invocations per result
  lanes_first: u32, // neighbouring invocations read one result's elements (else neighbouring results')
  inner_rank: u32,
  rank: u32,        // with the results' dimensions
  scalars: vec4<u32>,
  // The reduced dimensions, then those of the results: size, strides of x, y and z. Then, for further inputs, the
  // strides of w, m and r in the same dimensions.
  dims: array<vec4<u32>, 56>,
}

alias acc_t =
// @region accumulator: a type
;

fn identity() -> acc_t {
  return (
// @region identity: an expression
  );
}

fn combine(a: acc_t, b: acc_t) -> acc_t {
  return (
// @region combine: an expression of a and b
  );
}

@if(floats) fn scalar(words: vec2<u32>) -> f32 { return bitcast<f32>(words.x); }
@elif(ints) fn scalar(words: vec2<u32>) -> i32 { return bitcast<i32>(words.x); }
@elif(longs) fn scalar(words: vec2<u32>) -> vec2<u32> { return words; }
@else fn scalar(words: vec2<u32>) -> vec2<f32> { return bitcast<vec2<f32>>(words); }

// The accumulator of element x, whose index is i; elements of further inputs are at `more`.
@if(has_x)
fn lift(x: x_t, i: u32, more: vec3<u32>) -> acc_t {
  let s0 = scalar(p.scalars.xy);
  let s1 = scalar(p.scalars.zw);
  @if(has_w) let w = load_w(more.x);
  @if(has_m) let m = load_m(more.y);
  @if(has_r) let r = load_r(more.z);
  return (
// @region lift: an expression of x, i, w, m, r, s0 and s1
  );
}

fn emit(result: u32, split: u32, at: vec3<u32>, a: acc_t) {
  @if(has_new_parts) store_new_parts(result * p.splits + split, a);
  @else {
    let n = p.count;
    let s0 = scalar(p.scalars.xy);
    let s1 = scalar(p.scalars.zw);
    store_y(at.y, (
// @region finish: an expression of a, n, s0 and s1
    ));
    @if(has_z) store_z(at.z, (
// @region second: an expression of these
    ));
  }
}

// The offset of a result's element r from its first element.
fn inner(r: u32) -> u32 {
  @if(one_inner) return r * p.dims[0].y;
  @elif(two_inner) {
    let next = r / p.dims[0].x;
    return (r - next * p.dims[0].x) * p.dims[0].y + next * p.dims[1].y;
  }
  @else {
    var rest = r;
    var at = 0u;
    for (var d = 0u; d + 1u < p.inner_rank; d++) {
      let next = rest / p.dims[d].x;
      at += (rest - next * p.dims[d].x) * p.dims[d].y;
      rest = next;
    }
    return at + rest * p.dims[p.inner_rank - 1u].y;
  }
}

// Where a result's elements start in further inputs.
@if(has_w) var<private> more_begin: vec3<u32>;

fn locate_more(result: u32) {
  @if(has_w) {
    var rest = result;
    more_begin = vec3<u32>(p.w_at, p.m_at, p.r_at);
    for (var d = p.inner_rank; d < p.rank; d++) {
      let next = rest / p.dims[d].x;
      more_begin += (rest - next * p.dims[d].x) * p.dims[p.rank + d].xyz;
      rest = next;
    }
  }
}

// Elements are read in groups of `width`. Groups are counted from `origin`: from the result's first element, or,
// where a group is an aligned vector, from the start of the binding.
@if(vectors_x) const width = x_lanes;
@else const width = 1u;

fn origin(base: u32) -> u32 {
  @if(vectors_x) return base;
  @else return 0u;
}

fn fetch(base: u32, e: u32) -> acc_t {
  @if(has_parts) return load_parts(base + e);
  @elif(vectors_x) return lift(load_x(e), p.first + e - base, vec3<u32>());
  @elif(has_w) {
    var rest = e;
    var at = more_begin;
    for (var d = 0u; d + 1u < p.inner_rank; d++) {
      let next = rest / p.dims[d].x;
      at += (rest - next * p.dims[d].x) * p.dims[p.rank + d].xyz;
      rest = next;
    }
    at += rest * p.dims[p.rank + p.inner_rank - 1u].xyz;
    return lift(load_x(base + inner(e)), p.first + e, at);
  }
  @else return lift(load_x(base + inner(e)), p.first + e, vec3<u32>());
}

// The elements of a vector from lane k on; the first lane has index i.
@if(vectors_x)
fn one(v: vec4<u32>, i: u32, k: u32) -> acc_t { return lift(x_in_vector(v, k), i + k, vec3<u32>()); }
@if(vectors_x)
fn two(v: vec4<u32>, i: u32, k: u32) -> acc_t { return combine(one(v, i, k), one(v, i, k + 1u)); }
@if(vectors_x)
fn four(v: vec4<u32>, i: u32, k: u32) -> acc_t { return combine(two(v, i, k), two(v, i, k + 2u)); }
@if(vectors_x)
fn eight(v: vec4<u32>, i: u32, k: u32) -> acc_t { return combine(four(v, i, k), four(v, i, k + 4u)); }

fn fetch_group(base: u32, g: u32) -> acc_t {
  @if(vectors_x) {
    let v = load_vector_x(g);
    let i = p.first + g * width - base;
    @if(x_is_i64 || x_is_c64) return two(v, i, 0u);
    @elif(x_is_f32 || x_is_i32) return four(v, i, 0u);
    @elif(x_is_f16 || x_is_bf16 || x_is_i16) return eight(v, i, 0u);
    @else return combine(eight(v, i, 0u), eight(v, i, 8u));
  }
  @else return fetch(base, g);
}

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
  // Elements at both ends whose vectors reach beyond the run, one at a time.
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
  let split = workgroup % p.splits_here;
  let lanes = 1u << p.lanes_log2;
  let per_workgroup = 256u >> p.lanes_log2;
  let lanes_first = p.lanes_first != 0u;
  let lane = select(lid / per_workgroup, lid & (lanes - 1u), lanes_first);
  let place = select(lid & (per_workgroup - 1u), lid >> p.lanes_log2, lanes_first);
  let result = (workgroup / p.splits_here) * per_workgroup + place;

  var acc = identity();
  @if(has_parts) var at = vec3<u32>(result * p.reduced, p.y_at, p.z_at);
  @else var at = vec3<u32>(p.x_at, p.y_at, p.z_at);
  if (result < p.results) {
    var rest = result;
    for (var d = p.inner_rank; d < p.rank; d++) {
      let next = rest / p.dims[d].x;
      at += (rest - next * p.dims[d].x) * p.dims[d].yzw;
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
    emit(result, p.first_split + split, at, acc);
  }
}

// Distances between the rows of two sets of vectors: of every pair (cdist) or of every pair i < j
// of one set (pdist). One invocation per pair.
//
// As with CUDA, a difference of NaN counts as 1 in the zero norm and is left out of the infinity norm, where the
// CPU's cdist and pdist contradict each other.
//
// @operand out: out float
// @operand x1: in like out
// @operand x2: in like out
// @const   norm: {zero, one, two, below_two, above_two, infinity}
// @const   one_set: bool // x1 is x2, and out a vector

struct Params {
  batches: u32,
  rows1: u32,
  rows2: u32,
  width: u32,
  power: f32,
  x1_strides: vec4<u32>, // of batch, row, element
  x2_strides: vec4<u32>,
  out_strides: vec4<u32>, // of batch, row 1, row 2
}

// For each norm: the term of one difference, how two terms are combined, and the distance from all terms combined.
@if(zero)
fn term(d: f32) -> f32 { return select(0.0, 1.0, b_from_f(d)); }
@elif(one || infinity)
fn term(d: f32) -> f32 { return abs(d); }
@elif(two)
fn term(d: f32) -> f32 { return d * d; }
@else
fn term(d: f32) -> f32 { return pow_f(abs(d), p.power); }

@if(infinity)
fn combine(a: f32, b: f32) -> f32 { return select(a, b, b > a && !is_nan_f(b)); }
@else
fn combine(a: f32, b: f32) -> f32 { return a + b; }

@if(two)
fn finish(total: f32) -> f32 { return sqrt(total); }
@elif(below_two || above_two)
fn finish(total: f32) -> f32 { return pow_f(total, 1.0 / p.power); }
@else
fn finish(total: f32) -> f32 { return total; }

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.batches * p.rows1 * p.rows2) {
    return;
  }
  let row2 = i % p.rows2;
  let row1 = i / p.rows2 % p.rows1;
  let batch = i / p.rows2 / p.rows1;
  var pair = vec3<u32>(batch, row1, row2);
  @if(one_set) {
    if (row2 <= row1) {
      return;
    }
    // The index of the pair in the vector of distances.
    pair = vec3<u32>(row1 * (2u * p.rows1 - row1 - 1u) / 2u + row2 - row1 - 1u, 0u, 0u);
  }
  let at1 = p.x1_at + batch * p.x1_strides.x + row1 * p.x1_strides.y;
  let at2 = p.x2_at + batch * p.x2_strides.x + row2 * p.x2_strides.y;
  var total = 0.0;
  for (var k = 0u; k < p.width; k++) {
    total = combine(total, term(load_x1(at1 + k * p.x1_strides.z) - load_x2(at2 + k * p.x2_strides.z)));
  }
  store_out(p.out_at + dot(pair, p.out_strides.xyz), finish(total));
}

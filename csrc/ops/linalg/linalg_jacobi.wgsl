// One-sided Jacobi rotations (Hestenes 1958): of each pair of columns in the rounds of a
// tournament, so that the pairs of a round share no column. Columns whose product is not small are
// rotated to be orthogonal; below a square matrix lies another, which turns with it. Columns are
// contiguous. A team of invocations works on a pair; one workgroup does all pairs of a matrix, and
// then several rounds in a row, or takes `teams` pairs of one round.

struct Params {
  batches: u32,
  columns: u32,
  first_round: u32,
  rounds: u32,
  groups: u32, // workgroups to a matrix
  w_offset: u32,
  rotations_offset: u32,
  tolerance: f32, // of a product, relative to the columns' lengths
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read_write> b1: array<atomic<u32>>;
fn load_w(i: u32) -> f32 { return bitcast<f32>(b0[i]); }
fn store_w(i: u32, v: f32) { b0[i] = bitcast<u32>(v); }
fn atomic_add_rotations(i: u32, v: i32) { atomicAdd(&b1[i], bitcast<u32>(v)); }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook number
alias num = f32;
fn times(a: num, b: num) -> num { return a * b; }
fn over(a: num, b: num) -> num { return div_f(a, b); }
fn conjugate(a: num) -> num { return a; }
fn real_part(a: num) -> f32 { return a; }
fn imaginary_part(a: num) -> f32 { return 0.0; }
fn from_real(a: f32) -> num { return a; }
fn from_parts(real: f32, imaginary: f32) -> num { return real; }
// @end

const lanes = 256u;
const team = 32u;
const teams = lanes / team;
// Of squared lengths, where the largest elements are about 1: what is shorter is rounding, and may
// have a product that is larger than its length, which is zero.
const negligible = 1e-30;

// Squared lengths of both columns, and their product.
var<workgroup> sums: array<vec4<f32>, lanes>;

// The columns that meet as pair k of a round; the last one stays where it is, the others go round.
fn meeting(k: u32, round: u32, players: u32) -> vec2<u32> {
  let ring = players - 1u;
  if (k == 0u) {
    return vec2<u32>(round, ring);
  }
  return vec2<u32>((round + k) % ring, (round + ring - k) % ring);
}

@compute @workgroup_size(lanes)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let id = wid.y * grid.x + wid.x;
  let batch = id / p.groups;
  if (batch >= p.batches) {
    return;
  }
  let height = 2u * p.columns;
  let matrix = p.w_offset + batch * p.columns * height;
  let players = p.columns + p.columns % 2u; // with an odd number, one has a round off
  let member = lane % team;
  for (var round = p.first_round; round < p.first_round + p.rounds; round++) {
    for (var first = id % p.groups * teams; first < players / 2u; first += p.groups * teams) {
      let k = first + lane / team;
      let pair = meeting(k, round, players);
      let plays = k < players / 2u && max(pair.x, pair.y) < p.columns;
      let left = matrix + pair.x * height;
      let right = matrix + pair.y * height;
      var sum = vec4<f32>();
      if (plays) {
        for (var i = member; i < p.columns; i += team) {
          let x = load_w(left + i);
          let y = load_w(right + i);
          let product = times(conjugate(x), y);
          sum += vec4<f32>(real_part(times(conjugate(x), x)), real_part(times(conjugate(y), y)),
                           real_part(product), imaginary_part(product));
        }
      }
      sums[lane] = sum;
      for (var half = team / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (member < half) {
          sum += sums[lane + half];
          sums[lane] = sum;
        }
      }
      workgroupBarrier();
      let total = sums[lane - member];
      workgroupBarrier();
      let product = hypot_f(total.z, total.w);
      if (plays && min(total.x, total.y) > negligible &&
          product > p.tolerance * sqrt_f(total.x) * sqrt_f(total.y)) {
        // The tangent of the smaller angle: t^2 + 2 ratio t - 1 = 0.
        let ratio = div_f(total.y - total.x, 2.0 * product);
        var tangent = div_f(0.5, abs(ratio));
        if (abs(ratio) < 1e15) {
          tangent = div_f(1.0, abs(ratio) + sqrt_f(1.0 + ratio * ratio));
        }
        tangent = select(tangent, -tangent, ratio < 0.0);
        let cosine = div_f(1.0, sqrt_f(1.0 + tangent * tangent));
        let sine = cosine * tangent;
        let phase = over(from_parts(total.z, total.w), from_real(product));
        for (var i = member; i < height; i += team) {
          let x = load_w(left + i);
          let y = times(conjugate(phase), load_w(right + i));
          store_w(left + i, cosine * x - sine * y);
          store_w(right + i, sine * x + cosine * y);
        }
        if (member == 0u) {
          atomic_add_rotations(p.rotations_offset + batch, 1);
        }
      }
    }
    storageBarrier();
    workgroupBarrier();
  }
}

// One-sided Jacobi rotations (Hestenes 1958). All pairs of columns are visited in the rounds of a
// round-robin tournament, so that the pairs of a round share no column. A pair whose inner product
// is not small is rotated to be orthogonal. A second square matrix is stored below each matrix, and
// the same rotations are applied to it. Columns are contiguous. A team of invocations works on a
// pair. If one workgroup takes all pairs of a matrix, a dispatch runs several rounds; else each
// workgroup takes `teams` pairs of one round.
//
// @operand w: out {f32, c64} // both matrices, column after column; read too
// @operand rotations: sum {i32} // of each matrix
// @const   team: u32 in {32} // invocations to a pair of columns

import package::linalg::matrix::{workgroup_number};
import package::linalg::number::{times, over, conjugate, real_part, imaginary_part, from_real, from_parts};

struct Params {
  batches: u32,
  columns: u32,
  first_round: u32,
  rounds: u32,
  groups: u32, // workgroups per matrix
  tolerance: f32, // of a product, relative to the columns' lengths
}


const lanes = 256u;
const teams = lanes / team;
// Columns with a smaller squared length count as zero (the largest elements are about 1). They
// consist of rounding errors, and their computed product may be larger than their length.
const negligible = 1e-30;

// Squared lengths of both columns, and their product.
var<workgroup> sums: array<vec4<f32>, lanes>;

// The columns of pair k of a round (the circle method: the last column keeps its place, the others rotate).
fn meeting(k: u32, round: u32, players: u32) -> vec2<u32> {
  let ring = players - 1u;
  if (k == 0u) {
    return vec2<u32>(round, ring);
  }
  return vec2<u32>((round + k) % ring, (round + ring - k) % ring);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let id = workgroup_number(wid, grid);
  let batch = id / p.groups;
  if (batch >= p.batches) {
    return;
  }
  let height = 2u * p.columns;
  let matrix = p.w_at + batch * p.columns * height;
  let players = p.columns + p.columns % 2u; // with an odd number of columns, one has no partner in a round
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
          atomic_add_rotations(p.rotations_at + batch, 1);
        }
      }
    }
    storageBarrier();
    workgroupBarrier();
  }
}

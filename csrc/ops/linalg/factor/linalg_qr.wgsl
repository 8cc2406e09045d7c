// QR factors of a panel of at most `block` columns by Householder reflectors, in place as LAPACK
// keeps them: R above, the reflectors' vectors without their leading 1 below. One workgroup per
// matrix.
//
// @operand a: out {f32, c64} // read too
// @operand tau: out like a

import package::linalg::factor::batch::{main};
import package::linalg::matrix::{matrix_begin, element, lanes_with_rows};
import package::linalg::number::{num, times, over, conjugate, real_part, imaginary_part, from_real};

struct Params {
  batches: u32,
  rows: u32,
  columns: u32,
  count: u32, // reflectors
  tau_batch: u32, // between those of neighbouring matrices
  a_strides: vec4<u32>, // of batch, row and column
}

const lanes = 256u;
const team = 32u; // invocations per column
const teams = lanes / team;

// Squares of very large and very small numbers leave the range of float32. Such numbers are scaled, and their squares
// summed separately.
const large = 1e15;
const small = 1e-15;
const scale = 1.1529215e18; // 2^60

var<workgroup> squares: array<vec3<f32>, lanes>;
var<workgroup> products: array<num, lanes>;

fn add_square(sums: vec3<f32>, x: f32) -> vec3<f32> {
  let size = abs_f(x);
  if (size > large) {
    let y = x / scale;
    return vec3<f32>(sums.x + y * y, sums.y, sums.z);
  }
  if (size < small) {
    let y = x * scale;
    return vec3<f32>(sums.x, sums.y, sums.z + y * y);
  }
  return vec3<f32>(sums.x, sums.y + x * x, sums.z); // also for NaN
}

fn root_of(sums: vec3<f32>) -> f32 {
  if (sums.x > 0.0) {
    return scale * sqrt_f(sums.x + sums.y / scale / scale);
  }
  if (sums.y > 0.0 || is_nan_f(sums.y)) {
    return sqrt_f(sums.y);
  }
  return sqrt_f(sums.z) / scale;
}

fn decompose(batch: u32, lane: u32) {
  let a = matrix_begin(p.a_at, p.a_strides, batch);
  let width = lanes_with_rows(lanes, p.rows);
  let member = lane % team;
  for (var j = 0u; j < p.count; j++) {
    let column = element(a, p.a_strides, 0u, j);
    let alpha = load_a(column + j * p.a_strides.y);
    var sums = vec3<f32>(0.0);
    for (var i = j + 1u + lane; i < p.rows; i += lanes) {
      let x = load_a(column + i * p.a_strides.y);
      sums = add_square(add_square(sums, real_part(x)), imaginary_part(x));
    }
    squares[lane] = sums;
    for (var half = width / 2u; half > 0u; half /= 2u) {
      workgroupBarrier();
      if (lane < half) {
        sums += squares[lane + half];
        squares[lane] = sums;
      }
    }
    workgroupBarrier();
    let below = squares[0];
    workgroupBarrier();

    // A column that is zero below the diagonal, and real on it, needs no reflection.
    let reflects = any(below != vec3<f32>(0.0)) || imaginary_part(alpha) != 0.0;
    var tau = num();
    if (reflects) {
      let whole = add_square(add_square(below, real_part(alpha)), imaginary_part(alpha));
      let beta = -copysign_f(root_of(whole), real_part(alpha));
      tau = over(from_real(beta) - alpha, from_real(beta));
      let difference = alpha - from_real(beta);
      for (var i = j + 1u + lane; i < p.rows; i += lanes) {
        let at = column + i * p.a_strides.y;
        store_a(at, over(load_a(at), difference));
      }
      if (lane == 0u) {
        store_a(column + j * p.a_strides.y, from_real(beta));
      }
    }
    if (lane == 0u) {
      store_tau(p.tau_at + batch * p.tau_batch + j, tau);
    }
    workgroupBarrier();
    storageBarrier();

    // Applies the adjoint of the reflection to the columns to the right, with one team per column.
    for (var first = j + 1u; first < p.columns; first += teams) {
      let k = first + lane / team;
      let other = element(a, p.a_strides, 0u, k);
      var sum = num();
      if (k < p.columns) {
        for (var i = j + member; i < p.rows; i += team) {
          let x = load_a(other + i * p.a_strides.y);
          if (i == j) {
            sum += x;
          } else {
            sum += times(conjugate(load_a(column + i * p.a_strides.y)), x);
          }
        }
      }
      products[lane] = sum;
      for (var half = team / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (member < half) {
          sum += products[lane + half];
          products[lane] = sum;
        }
      }
      workgroupBarrier();
      let weight = times(conjugate(tau), products[lane - member]);
      if (k < p.columns) {
        for (var i = j + member; i < p.rows; i += team) {
          let at = other + i * p.a_strides.y;
          if (i == j) {
            store_a(at, load_a(at) - weight);
          } else {
            store_a(at, load_a(at) - times(load_a(column + i * p.a_strides.y), weight));
          }
        }
      }
      workgroupBarrier();
    }
    workgroupBarrier();
    storageBarrier();
  }
}

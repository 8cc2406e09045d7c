// Bessel and Airy functions. The forms are those of NIST's Digital Library (DLMF, chapters 9 and
// 10): power series with the logarithm taken out near zero; scaled exponentials, or modulus and
// phase, at a distance. Coefficients: fit_coefficients.py.

// I0 and I1(x) / x for |x| <= 8, fits "i0" and "i1".
fn i0_near_f(x: f32) -> f32 {
  let t = 0.015625 * x * x;
  return (((((((((0.156409612 * t + 0.358728143) * t + 2.83432926) * t + 10.4327774) * t +
                32.4218387) * t + 72.8022219) * t + 113.780238) * t + 113.777564) * t +
           64.0000089) * t + 15.9999999) * t + 1.0;
}

fn i1_ratio_near_f(x: f32) -> f32 {
  let t = 0.015625 * x * x;
  return (((((((((0.00687983461 * t + 0.0189662765) * t + 0.155524087) * t + 0.654041225) * t +
                2.31462691) * t + 6.06730551) * t + 11.3779227) * t + 14.2222083) * t +
           10.6666673) * t + 3.99999999) * t + 0.5;
}

// sqrt(x) e^-x I0 and I1 for x >= 8, fits "i0_large" and "i1_large".
fn i0_far_f(x: f32) -> f32 {
  let t = div_f(8.0, x);
  return (((((6.98455233e-6 * t - 9.36799576e-6) * t + 2.08342106e-5) * t + 5.31932016e-5) * t +
           4.3899075e-4) * t + 0.0062334262) * t + 0.398942281;
}

fn i1_far_f(x: f32) -> f32 {
  let t = div_f(8.0, x);
  return (((((-7.93378168e-6 * t + 1.034972e-5) * t - 2.53036409e-5) * t - 7.54706605e-5) * t -
           7.31289221e-4) * t - 0.018700365) * t + 0.39894228;
}

const exp_minus_8 = 3.3546262790251185e-4;

// I0 and I1 of an infinity are NaN, as in PyTorch and SciPy.
fn i0_f(x: f32) -> f32 {
  let a = abs(x);
  if (!is_finite_f(x)) {
    return nan_f();
  }
  if (a <= 8.0) {
    return i0_near_f(x);
  }
  // e^a alone overflows before the result does, so a factor e^4 of it is moved into the square root,
  // where a compiler cannot recombine the two.
  return exp_f(a - 4.0) * (i0_far_f(a) / sqrt(a * exp_minus_8));
}

fn i0e_f(x: f32) -> f32 {
  let a = abs(x);
  if (a <= 8.0) {
    return exp_f(-a) * i0_near_f(x);
  }
  return i0_far_f(a) * rsqrt_f(a);
}

fn i1_f(x: f32) -> f32 {
  let a = abs(x);
  if (!is_finite_f(x)) {
    return nan_f();
  }
  if (a <= 8.0) {
    return x * i1_ratio_near_f(x);
  }
  return copysign_f(exp_f(a - 4.0) * (i1_far_f(a) / sqrt(a * exp_minus_8)), x);
}

fn i1e_f(x: f32) -> f32 {
  let a = abs(x);
  if (a <= 8.0) {
    return exp_f(-a) * x * i1_ratio_near_f(x);
  }
  return copysign_f(i1_far_f(a) * rsqrt_f(a), x);
}

// log(x / 2). The half of the smallest normal numbers is denormal, which GPUs may take for 0.
fn log_half_f(x: f32) -> f32 {
  if (x < 1e-30) {
    return log_f(x) - 0.693147181;
  }
  return log_f(0.5 * x);
}

// K0 and K1 for 0 < x <= 2, fits "k0" and "k1".
fn k0_near_f(x: f32) -> f32 {
  let t = x * x;
  let p = ((((1.28020499e-7 * t + 1.01501525e-5) * t + 5.45345406e-4) * t + 0.0144183291) * t +
           0.10569616) * t - 0.57721567;
  return p - log_half_f(x) * i0_near_f(x);
}

fn k1_near_f(x: f32) -> f32 {
  let t = x * x;
  let p = ((((-1.08391693e-8 * t - 1.08630835e-6) * t - 7.49357235e-5) * t - 0.00283710755) * t -
           0.0420490224) * t + 0.0386078326;
  return div_f(1.0, x) + x * (p + log_half_f(x) * i1_ratio_near_f(x));
}

// sqrt(x) e^x K0 and K1 for x >= 2, fits "k0_large" and "k1_large".
fn k0_far_f(x: f32) -> f32 {
  let t = div_f(2.0, x);
  return ((((((-3.92886106e-4 * t + 0.00194153879) * t - 0.00452785876) * t + 0.00733089533) * t -
            0.0111768322) * t + 0.0219989623) * t - 0.0783307714) * t + 1.25331413;
}

fn k1_far_f(x: f32) -> f32 {
  let t = div_f(2.0, x);
  return ((((((4.92518645e-4 * t - 0.00244040425) * t + 0.00575204506) * t - 0.00959295587) * t +
            0.0157182407) * t - 0.0366814683) * t + 0.23499486) * t + 1.25331415;
}

// K and Y have their pole at 0 and are not real for negative x.
fn is_outside_right_f(x: f32) -> bool {
  return is_nan_f(x) || x <= 0.0;
}

fn right_pole_f(x: f32) -> f32 {
  return select(nan_f(), inf_f(), x == 0.0);
}

fn k0_f(x: f32) -> f32 {
  if (is_outside_right_f(x)) {
    return right_pole_f(x);
  }
  if (x <= 2.0) {
    return k0_near_f(x);
  }
  return exp_f(-x) * k0_far_f(x) * rsqrt_f(x);
}

fn k1_f(x: f32) -> f32 {
  if (is_outside_right_f(x)) {
    return right_pole_f(x);
  }
  if (x <= 2.0) {
    return k1_near_f(x);
  }
  return exp_f(-x) * k1_far_f(x) * rsqrt_f(x);
}

fn scaled_k0_f(x: f32) -> f32 {
  if (is_outside_right_f(x)) {
    return right_pole_f(x);
  }
  if (x <= 2.0) {
    return exp_f(x) * k0_near_f(x);
  }
  return k0_far_f(x) * rsqrt_f(x);
}

fn scaled_k1_f(x: f32) -> f32 {
  if (is_outside_right_f(x)) {
    return right_pole_f(x);
  }
  if (x <= 2.0) {
    return exp_f(x) * k1_near_f(x);
  }
  return k1_far_f(x) * rsqrt_f(x);
}

// J0 and J1(x) / x for |x| <= 3, fits "j0" and "j1".
fn j0_near_f(x: f32) -> f32 {
  let t = x * x;
  return (((((3.96273648e-10 * t - 6.68365351e-8) * t + 6.77503019e-6) * t - 4.34003543e-4) * t +
           0.0156249555) * t - 0.249999967) * t + 0.999999996;
}

fn j1_ratio_near_f(x: f32) -> f32 {
  let t = x * x;
  return (((((2.89965572e-11 * t - 5.59187978e-9) * t + 6.77781302e-7) * t - 5.42521549e-5) * t +
           0.00260416448) * t - 0.0624999986) * t + 0.5;
}

// An angle moved by a small amount, without losing digits of the large angle.
fn shift_angle_f(angle: Angle, amount: f32) -> Angle {
  let moved = reduce_angle_f(angle.rest + amount);
  return Angle(moved.rest, moved.quadrant + angle.quadrant);
}

// J + iY = modulus e^(i phase) for x >= 3: the modulus and the phase as an angle.
struct Oscillation {
  modulus: f32,
  phase: Angle,
}

// Fits "j0_modulus" and "j0_phase".
fn oscillation0_f(x: f32) -> Oscillation {
  let t = 3.0 / x;
  let modulus = (((((1.34556603e-4 * t - 6.97519397e-4) * t + 0.00133795527) * t - 7.71417843e-5) *
                  t - 0.00553164896) * t - 4.25133427e-7) * t + 0.797884564;
  let phase = (((((-1.65223848e-4 * t + 7.1985173e-4) * t - 0.001113592) * t + 3.90739922e-5) * t +
                0.00240992848) * t - 1.66873467e-7) * t - 0.0416666615;
  return Oscillation(modulus * inverseSqrt(x),
                     shift_angle_f(reduce_angle_f(x), t * phase - 0.785398163));
}

// Fits "j1_modulus" and "j1_phase".
fn oscillation1_f(x: f32) -> Oscillation {
  let t = 3.0 / x;
  let modulus = (((((-1.82091231e-4 * t + 0.0010805359) * t - 0.00243017021) * t + 1.36039698e-4) *
                  t + 0.0166052206) * t + 8.56614322e-7) * t + 0.797884553;
  let phase = (((((2.40003498e-4 * t - 0.00113878392) * t + 0.00198524568) * t -
                9.47951232e-5) * t - 0.00606755231) * t - 2.21208961e-7) * t + 0.124999997;
  return Oscillation(modulus * inverseSqrt(x),
                     shift_angle_f(reduce_angle_f(x), t * phase - 2.35619449));
}

fn bessel_j0_f(x: f32) -> f32 {
  let a = abs(x);
  if (!is_finite_f(x)) {
    return nan_f();
  }
  if (a <= 3.0) {
    return j0_near_f(x);
  }
  let wave = oscillation0_f(a);
  return wave.modulus * cos_angle_f(wave.phase);
}

fn bessel_j1_f(x: f32) -> f32 {
  let a = abs(x);
  if (!is_finite_f(x)) {
    return nan_f();
  }
  if (a <= 3.0) {
    return x * j1_ratio_near_f(x);
  }
  let wave = oscillation1_f(a);
  let value = wave.modulus * cos_angle_f(wave.phase);
  return select(value, -value, x < 0.0);
}

fn bessel_y0_f(x: f32) -> f32 {
  if (is_outside_right_f(x)) {
    return -right_pole_f(x);
  }
  if (is_inf_f(x)) {
    return nan_f();
  }
  if (x <= 3.0) {
    // fit "y0"
    let t = x * x;
    let p = (((((-4.72286476e-10 * t + 7.25941738e-8) * t - 6.49608011e-6) * t +
              3.47059217e-4) * t - 0.00917907734) * t + 0.0672882018) * t + 0.367466906;
    return p + 0.636619772 * log_half_f(x) * j0_near_f(x);
  }
  let wave = oscillation0_f(x);
  return wave.modulus * sin_angle_f(wave.phase);
}

fn bessel_y1_f(x: f32) -> f32 {
  if (is_outside_right_f(x)) {
    return -right_pole_f(x);
  }
  if (is_inf_f(x)) {
    return nan_f();
  }
  if (x <= 3.0) {
    // fit "y1"
    let t = x * x;
    let p = (((((-3.61095333e-11 * t + 6.37589419e-9) * t - 6.93074454e-7) * t +
              4.77012463e-5) * t - 0.00180616041) * t + 0.0267692376) * t + 0.0245785095;
    return x * (p + 0.636619772 * log_half_f(x) * j1_ratio_near_f(x)) - div_f(0.636619772, x);
  }
  let wave = oscillation1_f(x);
  return wave.modulus * sin_angle_f(wave.phase);
}

fn spherical_bessel_j0_f(x: f32) -> f32 {
  if (x == 0.0) {
    return 1.0;
  }
  return select(div_f(sin_f(x), x), 0.0, is_inf_f(x));
}

fn airy_ai_f(x: f32) -> f32 {
  if (!is_finite_f(x)) {
    return select(nan_f(), 0.0, is_posinf_f(x));
  }
  if (abs(x) <= 2.0) {
    // fit "airy"
    return (((((((((((1.64445971e-7 * x - 3.71816871e-7) * x - 5.25018214e-6) * x + 2.90675462e-5) *
                    x - 1.96329495e-6) * x - 5.17262337e-4) * x + 0.00197644922) * x +
               4.02441904e-6) * x - 0.0215722145) * x + 0.059169562) * x + 1.4220944e-6) * x -
            0.258819209) * x + 0.355027969;
  }
  let a = abs(x);
  let root = sqrt(a);
  let zeta = 0.666666667 * a * root;
  let t = div_f(1.0, zeta);
  if (x > 0.0) {
    // fit "airy_right"
    let p = ((((((-0.0170259061 * t + 0.0449172525) * t - 0.0554873778) * t + 0.0469600448) * t -
               0.0368236855) * t + 0.0370659103) * t - 0.0694428774) * t + 0.999999993;
    return 0.282094792 * p * exp_f(-zeta) * inverseSqrt(root);
  }
  // fits "airy_modulus" and "airy_phase" in 1 / zeta^2
  let s = t * t;
  let modulus = ((((-0.280007188 * s + 0.286222849) * s - 0.133789781) * s + 0.0492788665) * s -
                 0.0346211752) * s + 0.999999699;
  let phase = ((((0.745443706 * s - 0.731845598) * s + 0.312749429) * s - 0.0915281215) * s +
               0.0352022603) * s - 0.0694435038;
  let angle = shift_angle_f(reduce_angle_f(zeta), t * phase - 0.785398163);
  return 0.564189584 * modulus * inverseSqrt(root) * cos_angle_f(angle);
}

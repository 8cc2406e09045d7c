// Winograd's algorithm for correlations of 3 x 3 taps with tiles of 4 x 4 results, and for the gradients of these taps, that
// is correlations of 4 x 4 taps with tiles of 3 x 3 results. Both take 6 x 6 elements of an image, and 36 products for each
// pair of channels in place of 144. (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.)
//
// A tile and the taps are evaluated as polynomials in two variables at 6 x 6 points, multiplied point by point, and
// interpolated. The points of each variable are 0, near, -near, far, -far and infinity. With these two numbers the mean
// float32 error is three to four times that of a plain sum, and half of that with the usual 1 and 2.

const near = 0.625;
const far = 1.5;
const near2 = near * near;
const far2 = far * far;

// A line of six elements, as a matrix because + and * take one. What stands behind a shorter line is not read.
alias line_t = mat2x3<f32>;

struct Square {
  r0: line_t,
  r1: line_t,
  r2: line_t,
  r3: line_t,
  r4: line_t,
  r5: line_t,
}

fn transposed(s: Square) -> Square {
  return Square(
    line_t(s.r0[0].x, s.r1[0].x, s.r2[0].x, s.r3[0].x, s.r4[0].x, s.r5[0].x),
    line_t(s.r0[0].y, s.r1[0].y, s.r2[0].y, s.r3[0].y, s.r4[0].y, s.r5[0].y),
    line_t(s.r0[0].z, s.r1[0].z, s.r2[0].z, s.r3[0].z, s.r4[0].z, s.r5[0].z),
    line_t(s.r0[1].x, s.r1[1].x, s.r2[1].x, s.r3[1].x, s.r4[1].x, s.r5[1].x),
    line_t(s.r0[1].y, s.r1[1].y, s.r2[1].y, s.r3[1].y, s.r4[1].y, s.r5[1].y),
    line_t(s.r0[1].z, s.r1[1].z, s.r2[1].z, s.r3[1].z, s.r4[1].z, s.r5[1].z));
}

// Evaluates a tile of an image along one dimension: each of its six rows is a line of six.
fn image_points(s: Square) -> Square {
  let even_near = s.r4 - far2 * s.r2;
  let odd_near = near * (s.r3 - far2 * s.r1);
  let even_far = s.r4 - near2 * s.r2;
  let odd_far = far * (s.r3 - near2 * s.r1);
  return Square(near2 * far2 * s.r0 - (near2 + far2) * s.r2 + s.r4, even_near + odd_near, even_near - odd_near,
                even_far + odd_far, even_far - odd_far, near2 * far2 * s.r1 - (near2 + far2) * s.r3 + s.r5);
}

// The derivatives of the polynomial that is zero at all finite points, at 0, +-near and +-far.
const slope0 = near2 * far2;
const slope_near = 2.0 * near2 * (near2 - far2);
const slope_far = 2.0 * far2 * (far2 - near2);

// Evaluates three taps along one dimension, or four gradients, divided by these derivatives.
fn values_of_three(s: Square) -> Square {
  let even_near = (1.0 / slope_near) * s.r0 + (near2 / slope_near) * s.r2;
  let odd_near = (near / slope_near) * s.r1;
  let even_far = (1.0 / slope_far) * s.r0 + (far2 / slope_far) * s.r2;
  let odd_far = (far / slope_far) * s.r1;
  return Square((1.0 / slope0) * s.r0, even_near + odd_near, even_near - odd_near, even_far + odd_far,
                even_far - odd_far, s.r2);
}

fn values_of_four(s: Square) -> Square {
  let even_near = (1.0 / slope_near) * s.r0 + (near2 / slope_near) * s.r2;
  let odd_near = (near / slope_near) * s.r1 + (near * near2 / slope_near) * s.r3;
  let even_far = (1.0 / slope_far) * s.r0 + (far2 / slope_far) * s.r2;
  let odd_far = (far / slope_far) * s.r1 + (far * far2 / slope_far) * s.r3;
  return Square((1.0 / slope0) * s.r0, even_near + odd_near, even_near - odd_near, even_far + odd_far,
                even_far - odd_far, s.r3);
}

// Interpolates along one dimension: four results, or three taps, from the products at the points.
fn four_results(s: Square) -> Square {
  let even_near = s.r1 + s.r2;
  let odd_near = s.r1 - s.r2;
  let even_far = s.r3 + s.r4;
  let odd_far = s.r3 - s.r4;
  return Square(s.r0 + even_near + even_far, near * odd_near + far * odd_far, near2 * even_near + far2 * even_far,
                near * near2 * odd_near + far * far2 * odd_far + s.r5, line_t(), line_t());
}

fn three_results(s: Square) -> Square {
  let even_near = s.r1 + s.r2;
  let odd_near = s.r1 - s.r2;
  let even_far = s.r3 + s.r4;
  let odd_far = s.r3 - s.r4;
  return Square(s.r0 + even_near + even_far, near * odd_near + far * odd_far,
                near2 * even_near + far2 * even_far + s.r5, line_t(), line_t(), line_t());
}

// The number type of the kernels of linear algebra: complex if an operand is complex, else f32.

@if(is_complex) alias num = vec2<f32>;
@else alias num = f32;

@if(is_complex)
fn times(a: num, b: num) -> num { return mul_c(a, b); }
@else
fn times(a: num, b: num) -> num { return a * b; }

@if(is_complex)
fn over(a: num, b: num) -> num { return div_c(a, b); }
@else
fn over(a: num, b: num) -> num { return div_f(a, b); }

@if(is_complex)
fn conjugate(a: num) -> num { return conj_c(a); }
@else
fn conjugate(a: num) -> num { return a; }

@if(is_complex)
fn real_part(a: num) -> f32 { return a.x; }
@else
fn real_part(a: num) -> f32 { return a; }

@if(is_complex)
fn imaginary_part(a: num) -> f32 { return a.y; }
@else
fn imaginary_part(a: num) -> f32 { return 0.0; }

@if(is_complex)
fn from_real(a: f32) -> num { return vec2<f32>(a, 0.0); }
@else
fn from_real(a: f32) -> num { return a; }

@if(is_complex)
fn from_parts(real: f32, imaginary: f32) -> num { return vec2<f32>(real, imaginary); }
@else
fn from_parts(real: f32, imaginary: f32) -> num { return real; }

// Compares bits, because a floating point comparison may treat a denormal number as 0.
@if(is_complex)
fn is_zero(a: num) -> bool { return magnitude_bits_f(a.x) == 0u && magnitude_bits_f(a.y) == 0u; }
@else
fn is_zero(a: num) -> bool { return magnitude_bits_f(a) == 0u; }

// Matrices at any strides.

// Where an element lies. `place`: offset, strides of row and column.
fn matrix_index(place: vec4<u32>, row: u32, column: u32) -> u32 {
  return place.x + row * place.y + column * place.z;
}

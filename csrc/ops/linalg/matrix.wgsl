// Batches of matrices of any strides: strides.x is from matrix to matrix, y from row to row, z from column to column.

// The number of a workgroup in a grid that may have been folded into two dimensions.
fn workgroup_number(id: vec3<u32>, grid: vec3<u32>) -> u32 {
  return id.y * grid.x + id.x;
}

// The smaller of `lanes`, a power of two, and of `rows` rounded up to a power of two.
fn lanes_with_rows(lanes: u32, rows: u32) -> u32 {
  var width = lanes;
  while (width / 2u >= rows && width > 1u) {
    width /= 2u;
  }
  return width;
}

// The offset of matrix `batch`, if the first one starts at `begin`.
fn matrix_begin(begin: u32, strides: vec4<u32>, batch: u32) -> u32 {
  return begin + batch * strides.x;
}

// The offset of an element of the matrix that starts at `matrix`.
fn element(matrix: u32, strides: vec4<u32>, row: u32, column: u32) -> u32 {
  return matrix + row * strides.y + column * strides.z;
}

// Batches of matrices at any strides: x from matrix to matrix, y from row to row, z from column to column.

// The number of a workgroup in a grid that may have been folded into two dimensions.
fn workgroup_number(id: vec3<u32>, grid: vec3<u32>) -> u32 {
  return id.y * grid.x + id.x;
}

// Where a matrix of the batch that starts at `begin` starts.
fn matrix_begin(begin: u32, strides: vec4<u32>, batch: u32) -> u32 {
  return begin + batch * strides.x;
}

// Where an element lies of the matrix that starts at `matrix`.
fn element(matrix: u32, strides: vec4<u32>, row: u32, column: u32) -> u32 {
  return matrix + row * strides.y + column * strides.z;
}

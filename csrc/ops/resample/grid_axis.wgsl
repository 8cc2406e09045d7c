// How both kernels of grid_sample read the grid.

// The input's cells for a point of the grid, along dimension d; a dimension that the tensor lacks has one cell.
fn axis(cell: Cell, d: u32) -> GridAxis {
  if (d + p.dims < 3u) {
    return grid_single();
  }
  var at = cell;
  at.channel = 2u - d;
  let coordinate = load_grid(element_of(layout_of(p.grid_at, p.grid_batch, p.grid_step), at));
  let size = p.in_size[d];
  @if(linear) return grid_linear(coordinate, size, p.padding, p.align_corners != 0u);
  @elif(nearest) return grid_nearest(coordinate, size, p.padding, p.align_corners != 0u);
  @else return grid_cubic(coordinate, size, p.padding, p.align_corners != 0u);
}

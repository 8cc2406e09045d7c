"""torch.compile for ``device="webgpu"``: an Inductor backend that writes WGSL.

It costs nothing until torch.compile is used: the modules here import Inductor, so they are imported
when Dynamo or Inductor are.

=================  ===============================================================================
`registration`     what Dynamo and Inductor are told of the device
`interface`        the device as Dynamo sees it
`compat`           functions of Dynamo and Inductor that are replaced, each with its reason
`fake`             strides of the eager kernels' results
`scalars`          numbers that do not fit an integer type
`passes`           changes of a graph before it is lowered
`registers`        element types and the types of values in registers
`tables`           Inductor's ops as rows of the op tables of the eager kernels
`overrides`        Inductor's ops as WGSL
`printer`          index expressions as WGSL
`lanes`            neighbouring elements that an invocation handles together
`reductions`       what is reduced by what, and how over a workgroup
`kernel`           loads, stores and loops of one kernel
`vectors`          products of a vector, as reductions
`products`         products that compute what follows them
`sized_products`   products whose sizes are parameters, for export
`epilogues`        what these compute, as statements of their kernels
`choices`          the kernels of a product, timed by max_autotune
`combo`            several kernels in one dispatch
`packing`          which kernels share a dispatch
`scheduling`       what is fused: a kernel has few storage buffers
`wrapper`          the module that launches the kernels
`accessors`        how a kernel reaches its operands, for one way that they lie in buffers
`runtime`          what that module imports
`entry`            ``backend="webgpu"``
`replay`           ``mode="reduce-overhead"``
=================  ===============================================================================
"""

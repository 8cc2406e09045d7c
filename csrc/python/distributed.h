// The backend of torch.distributed for torch_webgpu/distributed.py.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_webgpu {

/// `has_distributed` is False, and nothing else is there, if PyTorch was built without it.
void register_distributed(pybind11::module_& m);

} // namespace torch_webgpu

// Module::to() for out-of-tree devices.
#pragma once

#include <torch/torch.h>

/// Moves the parameters and buffers of a module to `device`, before it has any gradients.
///
/// Module::to() itself ends in Tensor::set_data(), which lets a tensor change its device only among
/// the backends that PyTorch names (TensorImpl::has_compatible_shallow_copy_type), and PrivateUse1
/// is not one of them. This does what set_data() does behind that check. Python needs none of it.
inline void move_module(torch::nn::Module& module, torch::Device device) {
  torch::NoGradGuard no_grad;
  auto move = [device](const torch::Tensor& tensor) {
    TORCH_CHECK(!tensor.grad().defined(), "move a module before its first backward()");
    tensor.unsafeGetTensorImpl()->shallow_copy_from(tensor.to(device).getIntrusivePtr());
  };
  for (const torch::Tensor& parameter : module.parameters()) {
    move(parameter);
  }
  for (const torch::Tensor& buffer : module.buffers()) {
    move(buffer);
  }
}

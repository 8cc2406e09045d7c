// Tensor.item(): one element to the host.
#include <ATen/EmptyTensor.h>
#include <ATen/ops/_local_scalar_dense.h>

#include "backend/graph.h"
#include "backend/registration.h"
#include "backend/tensor.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

at::Scalar local_scalar_dense(const at::Tensor& self) {
  TORCH_CHECK(self.numel() > 0, "_local_scalar_dense: Empty tensor not supported");
  check_not_capturing("aten::_local_scalar_dense", "it reads a value on the host");
  const at::Tensor host = at::detail::empty_cpu({}, self.scalar_type());
  context_of(self).stream.read(buffer_of(self), byte_offset(self), host.mutable_data_ptr(),
                               self.itemsize());
  return at::_local_scalar_dense(host);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

} // namespace
} // namespace torch_webgpu

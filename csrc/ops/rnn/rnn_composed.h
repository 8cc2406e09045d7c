// The cells of rnn.cpp from other operators, for dtypes without a kernel (float64, complex): these
// cannot fall back as a whole, because PyTorch has no such cells for the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace torch_webgpu {

inline constexpr int64_t kLstmGates = 4;
inline constexpr int64_t kGruGates = 3;
inline constexpr int64_t kGruKept = 5; // parts of GRU's workspace

/// New hidden state, new cell state, activated gates. Biases may be undefined.
std::tuple<at::Tensor, at::Tensor, at::Tensor>
composed_lstm(const at::Tensor& x, const at::Tensor& h, const at::Tensor& cx,
              const at::Tensor& bias_x, const at::Tensor& bias_h);

/// Gradients with respect to the sums that enter the gates, and to the old cell state. One of
/// grad_hy and grad_cy may be undefined.
std::tuple<at::Tensor, at::Tensor>
composed_lstm_backward(const at::Tensor& grad_hy, const at::Tensor& grad_cy, const at::Tensor& cx,
                       const at::Tensor& cy, const at::Tensor& workspace);

/// New hidden state, and what the gradient needs, as rnn_gru.wgsl keeps it.
std::tuple<at::Tensor, at::Tensor> composed_gru(const at::Tensor& x, const at::Tensor& h,
                                                const at::Tensor& hx, const at::Tensor& bias_x,
                                                const at::Tensor& bias_h);

/// Gradients with respect to what the input and the hidden state add to the gates (stacked), and to
/// the old state.
std::tuple<at::Tensor, at::Tensor> composed_gru_backward(const at::Tensor& grad_hy,
                                                         const at::Tensor& workspace);

} // namespace torch_webgpu

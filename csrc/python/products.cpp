// Matrix products beyond ATen's operators, for tests, measurements and compilers: by a named
// strategy, and with a fused expression.
#include "python/products.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "backend/tensor.h"
#include "launch/target_scope.h"
#include "ops/matmul/strategies.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// Name and tile: rows, columns and step of K.
std::vector<std::tuple<std::string, int64_t, int64_t, int64_t>> strategies() {
  std::vector<std::tuple<std::string, int64_t, int64_t, int64_t>> rows;
  for (const Strategy& row : product_strategies()) {
    rows.emplace_back(row.name, row.tile.m, row.tile.n, row.tile.k);
  }
  return rows;
}

// out = expression of value = a @ b, of matrices or of batches of them. Its text and its strategy
// are looked up once.
class FusedProduct {
public:
  // An empty expression: value. An empty strategy: the one of the lowest cost.
  FusedProduct(const std::string& expression, const std::string& strategy)
      : text_(expression.empty() ? 0 : Fusion::number_of(expression)),
        strategy_(strategy.empty() ? nullptr : &strategy_named(strategy)) {}

  void operator()(const Tensor& out, const Tensor& a, const Tensor& b,
                  const std::optional<Tensor>& e, const std::optional<Tensor>& f) const {
    for (const Tensor& input : {a, b, e.value_or(Tensor()), f.value_or(Tensor())}) {
      TORCH_CHECK(!input.defined() || (is_webgpu(input) && !same_buffer(out, input) &&
                                       input.scalar_type() == out.scalar_type()),
                  "the operands of a fused product are other webgpu tensors of out's dtype");
    }
    Gemm problem = product_of(out, a, b);
    Fusion fusion(text_);
    const Tensor expanded_e = e ? e->expand(out.sizes()) : Tensor();
    const Tensor expanded_f = f ? f->expand(out.sizes()) : Tensor();
    fusion.e = e ? MatrixView::of(expanded_e) : MatrixView();
    fusion.f = f ? MatrixView::of(expanded_f) : MatrixView();
    problem.fusion = text_ == 0 ? nullptr : &fusion;
    problem.wanted = strategy_;
    gemm(problem);
  }

  // Whether a call with tensors that lie like these takes the strategy. They may be meta tensors.
  bool accepts(const Tensor& out, const Tensor& a, const Tensor& b) const {
    Gemm problem = product_of(out, a, b);
    problem.wanted = strategy_;
    return strategy_ == nullptr || &gemm_strategy(problem, plan_target(context())) == strategy_;
  }

private:
  static Gemm product_of(const Tensor& out, const Tensor& a, const Tensor& b) {
    TORCH_CHECK(is_gemm_dtype(out.scalar_type()), "no product of ", out.scalar_type());
    const bool batched = out.dim() == 3;
    TORCH_CHECK((batched || out.dim() == 2) && a.dim() == out.dim() && b.dim() == out.dim() &&
                    (!batched || (a.size(0) == out.size(0) && b.size(0) == out.size(0))) &&
                    a.size(-2) == out.size(-2) && b.size(-1) == out.size(-1) &&
                    a.size(-1) == b.size(-2),
                "the sizes of a fused product do not fit: ", out.sizes(), " of ", a.sizes(),
                " and ", b.sizes());
    Gemm problem;
    problem.op = "fused_product";
    problem.batch = batched ? out.size(0) : 1;
    problem.m = out.size(-2);
    problem.n = out.size(-1);
    problem.k = a.size(-1);
    problem.a = MatrixView::of(a);
    problem.b = MatrixView::of(b);
    problem.c = MatrixView::of(out);
    return problem;
  }

  uint32_t text_;
  const Strategy* strategy_;
};

} // namespace

void register_products(pybind11::module_& m) {
  namespace py = pybind11;
  m.def("_product_strategies", &strategies);
  m.def("_force_product_strategy", [](const std::string& name) { force_strategy(name); });
  const py::call_guard<py::gil_scoped_release> without_gil;
  py::class_<FusedProduct>(m, "FusedProduct")
      .def(py::init<const std::string&, const std::string&>(), py::arg("expression") = "",
           py::arg("strategy") = "")
      .def("__call__", &FusedProduct::operator(), py::arg("out"), py::arg("a"), py::arg("b"),
           py::arg("e") = py::none(), py::arg("f") = py::none(), without_gil)
      .def("accepts", &FusedProduct::accepts, py::arg("out"), py::arg("a"), py::arg("b"),
           without_gil);
}

} // namespace torch_webgpu

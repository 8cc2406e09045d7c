#include "distributed/process_group.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/library.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "backend/graph.h"
#include "backend/registration.h"
#include "backend/tensor.h"
#include "distributed/statistics.h"

namespace torch_webgpu {

using c10d::OpType;

/// The tensors of a collective, with their counterparts that the CPU's backend works on.
struct ProcessGroupWebGPU::Collective {
  Collective(OpType op, const char* title) : op(op), title(title) {}

  at::Tensor stage(const at::Tensor& tensor, Access access, bool keeps_strides = false) {
    if (is_webgpu(tensor) && !on_device) {
      TORCH_CHECK(staged.empty(), title, ": expected all tensors to be on one device, got ",
                  tensor.device(), " and ", staged.front().host().device());
      check_not_capturing(title, "it communicates through host memory");
      on_device = true;
    }
    TORCH_CHECK(is_webgpu(tensor) == on_device, title,
                ": expected all tensors to be on one device, got webgpu and ", tensor.device());
    staged.emplace_back(tensor, access, keeps_strides);
    return staged.back().host();
  }
  Tensors stage(const Tensors& tensors, Access access, bool keeps_strides = false) {
    Tensors hosts;
    for (const at::Tensor& tensor : tensors) {
      hosts.push_back(stage(tensor, access, keeps_strides));
    }
    return hosts;
  }
  std::vector<Tensors> stage(const std::vector<Tensors>& lists, Access access) {
    std::vector<Tensors> hosts;
    for (const Tensors& tensors : lists) {
      hosts.push_back(stage(tensors, access));
    }
    return hosts;
  }

  OpType op;
  const char* title;
  bool on_device = false;
  bool reduces = false;
  std::vector<StagedTensor> staged;
  Tensors inputs;               // for the profiler
  std::vector<Tensors> outputs; // of the work
};

namespace {

// Waits for the values of all tensors, and returns what went wrong on the device, if anything did:
// an index out of range in some operator before, say. The collective is started all the same, or
// this process would be one behind the others for good.
std::exception_ptr await(std::vector<StagedTensor>& tensors) {
  std::exception_ptr failure;
  for (StagedTensor& tensor : tensors) {
    try {
      tensor.await();
    } catch (...) {
      failure = failure ? failure : std::current_exception();
    }
  }
  return failure;
}

// Of a lost device there are no values.
bool is_lost(const std::vector<StagedTensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const StagedTensor& tensor) { return tensor.is_lost(); });
}

} // namespace

ProcessGroupWebGPU::ProcessGroupWebGPU(c10::intrusive_ptr<c10d::Backend> cpu)
    : Backend(cpu->getRank(), cpu->getSize()), cpu_(std::move(cpu)), finisher_("webgpu_c10d_end"),
      starter_("webgpu_c10d") {
  init();
}

ProcessGroupWebGPU::~ProcessGroupWebGPU() = default;

void ProcessGroupWebGPU::drain() {
  starter_.drain();
  finisher_.drain();
}

void ProcessGroupWebGPU::shutdown() {
  drain();
  cpu_->shutdown();
}

c10::intrusive_ptr<c10d::Backend>
ProcessGroupWebGPU::split_cpu(const c10::intrusive_ptr<c10d::Store>& store,
                              const std::vector<int>& ranks,
                              const c10::intrusive_ptr<Options>& options) {
  // Processes find each other by keys of the store. PyTorch gives the same one to the group's
  // backend for CPU tensors, and to this one again if it is the backend of both devices. All
  // processes of the group split it together, so that their numbers are the same.
  const std::string prefix = std::string(kProcessGroupName) + "/" + std::to_string(splits_++);
  return cpu_->split(c10::make_intrusive<c10d::PrefixStore>(prefix, store), ranks, options);
}

WorkPtr ProcessGroupWebGPU::start_in_order(const Start& start) {
  starter_.drain();
  const std::lock_guard<std::mutex> lock(cpu_mutex_);
  return start(*cpu_);
}

WorkPtr ProcessGroupWebGPU::run(Collective collective, Start start) {
  if (!collective.on_device) {
    return start_in_order(start);
  }
  ++communication_statistics().collectives;
  auto work = c10::make_intrusive<CollectiveWork>(collective.op, collective.title,
                                                  collective.inputs, std::move(collective.outputs));
  auto shared = std::make_shared<Collective>(std::move(collective));
  starter_.push([this, work, shared, start = std::move(start)]() mutable {
    std::exception_ptr failure;
    {
      const Stopwatch stopwatch(communication_statistics().reading);
      failure = await(shared->staged);
    }
    WorkPtr communication;
    try {
      if (failure && is_lost(shared->staged)) {
        std::rethrow_exception(failure);
      }
      const std::lock_guard<std::mutex> lock(cpu_mutex_);
      communication = start(*cpu_);
    } catch (...) {
      failure = std::current_exception();
      start = nullptr;
      shared.reset();
      starter_.release();
      work->fail(failure);
      return;
    }
    finisher_.push([this, work, shared, communication, failure]() mutable {
      try {
        {
          const Stopwatch stopwatch(communication_statistics().communicating);
          communication->wait();
        }
        const Stopwatch stopwatch(communication_statistics().writing);
        if (!failure) {
          for (StagedTensor& tensor : shared->staged) {
            tensor.write_back(shared->reduces);
          }
        }
      } catch (...) {
        failure = failure ? failure : std::current_exception();
      }
      communication.reset();
      shared.reset();
      // A callback of the future may wait for later collectives.
      finisher_.release();
      if (failure) {
        work->fail(failure);
      } else {
        work->succeed();
      }
    });
  });
  return work;
}

// ---- One to all, all to one

WorkPtr ProcessGroupWebGPU::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Collective collective(OpType::BROADCAST, "webgpu:broadcast");
  Tensors hosts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool is_root = rank_ == options.rootRank && static_cast<int64_t>(i) == options.rootTensor;
    hosts.push_back(collective.stage(tensors[i], is_root ? Access::kRead : Access::kWrite));
  }
  collective.inputs = tensors;
  collective.outputs = {tensors};
  return run(std::move(collective), [hosts, options](c10d::Backend& cpu) mutable {
    return cpu.broadcast(hosts, options);
  });
}

WorkPtr ProcessGroupWebGPU::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Collective collective(OpType::REDUCE, "webgpu:reduce");
  collective.reduces = true;
  Tensors hosts =
      collective.stage(tensors, rank_ == options.rootRank ? Access::kReadWrite : Access::kRead);
  collective.inputs = tensors;
  collective.outputs = {tensors};
  return run(std::move(collective),
             [hosts, options](c10d::Backend& cpu) mutable { return cpu.reduce(hosts, options); });
}

WorkPtr ProcessGroupWebGPU::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                   const c10d::GatherOptions& options) {
  Collective collective(OpType::GATHER, "webgpu:gather");
  Tensors from = collective.stage(inputs, Access::kRead);
  std::vector<Tensors> to = collective.stage(outputs, Access::kWrite);
  collective.inputs = inputs;
  collective.outputs = outputs;
  return run(std::move(collective), [from, to, options](c10d::Backend& cpu) mutable {
    return cpu.gather(to, from, options);
  });
}

WorkPtr ProcessGroupWebGPU::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                    const c10d::ScatterOptions& options) {
  Collective collective(OpType::SCATTER, "webgpu:scatter");
  Tensors to = collective.stage(outputs, Access::kWrite);
  std::vector<Tensors> from = collective.stage(inputs, Access::kRead);
  collective.inputs = inputs.empty() ? Tensors() : inputs.front();
  collective.outputs = {outputs};
  return run(std::move(collective), [from, to, options](c10d::Backend& cpu) mutable {
    return cpu.scatter(to, from, options);
  });
}

// ---- All to all

WorkPtr ProcessGroupWebGPU::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  Collective collective(OpType::ALLREDUCE, "webgpu:all_reduce");
  collective.reduces = true;
  Tensors hosts = collective.stage(tensors, Access::kReadWrite);
  collective.inputs = tensors;
  collective.outputs = {tensors};
  return run(std::move(collective), [hosts, options](c10d::Backend& cpu) mutable {
    return cpu.allreduce(hosts, options);
  });
}

WorkPtr ProcessGroupWebGPU::allreduce_coalesced(Tensors& tensors,
                                                const c10d::AllreduceCoalescedOptions& options) {
  Collective collective(OpType::ALLREDUCE_COALESCED, "webgpu:all_reduce");
  collective.reduces = true;
  Tensors hosts = collective.stage(tensors, Access::kReadWrite);
  collective.inputs = tensors;
  collective.outputs = {tensors};
  return run(std::move(collective), [hosts, options](c10d::Backend& cpu) mutable {
    return cpu.allreduce_coalesced(hosts, options);
  });
}

WorkPtr ProcessGroupWebGPU::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& options) {
  Collective collective(OpType::ALLGATHER, "webgpu:all_gather");
  Tensors from = collective.stage(inputs, Access::kRead);
  std::vector<Tensors> to = collective.stage(outputs, Access::kWrite);
  collective.inputs = inputs;
  collective.outputs = outputs;
  return run(std::move(collective), [from, to, options](c10d::Backend& cpu) mutable {
    return cpu.allgather(to, from, options);
  });
}

WorkPtr ProcessGroupWebGPU::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& options) {
  Collective collective(OpType::ALLGATHER_COALESCED, "webgpu:all_gather");
  Tensors from = collective.stage(inputs, Access::kRead);
  std::vector<Tensors> to = collective.stage(outputs, Access::kWrite);
  collective.inputs = inputs;
  collective.outputs = outputs;
  return run(std::move(collective), [from, to, options](c10d::Backend& cpu) mutable {
    return cpu.allgather_coalesced(to, from, options);
  });
}

WorkPtr ProcessGroupWebGPU::_allgather_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::AllgatherOptions& options) {
  Collective collective(OpType::_ALLGATHER_BASE, "webgpu:_all_gather_base");
  // Flat: from torch 2.14 on, Gloo cuts the result along its first dimension, which may be 1.
  at::Tensor from = collective.stage(input, Access::kRead).view(-1);
  at::Tensor to = collective.stage(output, Access::kWrite).view(-1);
  collective.inputs = {input};
  collective.outputs = {{output}};
  return run(std::move(collective), [from, to, options](c10d::Backend& cpu) mutable {
    return cpu._allgather_base(to, from, options);
  });
}

WorkPtr ProcessGroupWebGPU::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) {
  Collective collective(OpType::COALESCED, "webgpu:_all_gather_base");
  Tensors from = collective.stage(inputs, Access::kRead);
  Tensors to = collective.stage(outputs, Access::kWrite);
  collective.inputs = inputs;
  collective.outputs = {outputs};
  return run(std::move(collective), [from, to, options](c10d::Backend& cpu) mutable {
    return cpu.allgather_into_tensor_coalesced(to, from, options);
  });
}

WorkPtr ProcessGroupWebGPU::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                           const c10d::ReduceScatterOptions& options) {
  Collective collective(OpType::REDUCE_SCATTER, "webgpu:reduce_scatter");
  collective.reduces = true;
  std::vector<Tensors> from = collective.stage(inputs, Access::kRead);
  Tensors to = collective.stage(outputs, Access::kWrite);
  collective.inputs = inputs.empty() ? Tensors() : inputs.front();
  collective.outputs = {outputs};
  return run(std::move(collective), [from, to, options](c10d::Backend& cpu) mutable {
    return cpu.reduce_scatter(to, from, options);
  });
}

WorkPtr ProcessGroupWebGPU::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::ReduceScatterOptions& options) {
  Collective collective(OpType::_REDUCE_SCATTER_BASE, "webgpu:_reduce_scatter_base");
  collective.reduces = true;
  at::Tensor from = collective.stage(input, Access::kRead);
  at::Tensor to = collective.stage(output, Access::kWrite);
  collective.inputs = {input};
  collective.outputs = {{output}};
  return run(std::move(collective), [from, to, options](c10d::Backend& cpu) mutable {
    return cpu._reduce_scatter_base(to, from, options);
  });
}

WorkPtr
ProcessGroupWebGPU::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::ReduceScatterOptions& options) {
  Collective collective(OpType::COALESCED, "webgpu:_reduce_scatter_base");
  collective.reduces = true;
  Tensors from = collective.stage(inputs, Access::kRead);
  Tensors to = collective.stage(outputs, Access::kWrite);
  collective.inputs = inputs;
  collective.outputs = {outputs};
  return run(std::move(collective), [from, to, options](c10d::Backend& cpu) mutable {
    return cpu.reduce_scatter_tensor_coalesced(to, from, options);
  });
}

WorkPtr ProcessGroupWebGPU::alltoall_base(at::Tensor& output, at::Tensor& input,
                                          std::vector<int64_t>& output_counts,
                                          std::vector<int64_t>& input_counts,
                                          const c10d::AllToAllOptions& options) {
  Collective collective(OpType::ALLTOALL_BASE, "webgpu:all_to_all");
  at::Tensor from = collective.stage(input, Access::kRead, /*keeps_strides=*/true);
  at::Tensor to = collective.stage(output, Access::kWrite);
  collective.inputs = {input};
  collective.outputs = {{output}};
  return run(std::move(collective),
             [from, to, output_counts, input_counts, options](c10d::Backend& cpu) mutable {
               return cpu.alltoall_base(to, from, output_counts, input_counts, options);
             });
}

WorkPtr ProcessGroupWebGPU::alltoall(Tensors& outputs, Tensors& inputs,
                                     const c10d::AllToAllOptions& options) {
  Collective collective(OpType::ALLTOALL, "webgpu:all_to_all");
  Tensors from = collective.stage(inputs, Access::kRead);
  Tensors to = collective.stage(outputs, Access::kWrite);
  collective.inputs = inputs;
  collective.outputs = {outputs};
  return run(std::move(collective), [from, to, options](c10d::Backend& cpu) mutable {
    return cpu.alltoall(to, from, options);
  });
}

// ---- One to one

WorkPtr ProcessGroupWebGPU::send(Tensors& tensors, int destination, int tag) {
  auto collective = std::make_shared<Collective>(OpType::SEND, "webgpu:send");
  Tensors hosts = collective->stage(tensors, Access::kRead, /*keeps_strides=*/true);
  if (!collective->on_device) {
    return start_in_order([&](c10d::Backend& cpu) { return cpu.send(hosts, destination, tag); });
  }
  ++communication_statistics().collectives;
  const auto sent = std::make_shared<std::promise<SendWork::Sent>>();
  auto work = c10::make_intrusive<SendWork>(tensors, sent->get_future().share());
  starter_.push([this, collective, hosts, destination, tag, sent]() mutable {
    try {
      const std::exception_ptr failure = await(collective->staged);
      if (failure && is_lost(collective->staged)) {
        std::rethrow_exception(failure);
      }
      const std::lock_guard<std::mutex> lock(cpu_mutex_);
      sent->set_value({cpu_->send(hosts, destination, tag), failure});
    } catch (...) {
      sent->set_exception(std::current_exception());
    }
  });
  return work;
}

WorkPtr ProcessGroupWebGPU::receive(OpType op, Tensors& tensors,
                                    const std::function<WorkPtr(Tensors&)>& start) {
  Collective collective(op, "webgpu:recv");
  Tensors hosts = collective.stage(tensors, Access::kWrite, /*keeps_strides=*/true);
  WorkPtr received;
  {
    // At once, for it needs no values, and out of order: messages are matched by their tags.
    const std::lock_guard<std::mutex> lock(cpu_mutex_);
    received = start(hosts);
  }
  if (!collective.on_device) {
    return received;
  }
  ++communication_statistics().collectives;
  return c10::make_intrusive<RecvWork>(op, std::move(collective.staged), std::move(received));
}

WorkPtr ProcessGroupWebGPU::recv(Tensors& tensors, int source, int tag) {
  return receive(OpType::RECV, tensors,
                 [&](Tensors& hosts) { return cpu_->recv(hosts, source, tag); });
}

WorkPtr ProcessGroupWebGPU::recvAnysource(Tensors& tensors, int tag) {
  return receive(OpType::RECVANYSOURCE, tensors,
                 [&](Tensors& hosts) { return cpu_->recvAnysource(hosts, tag); });
}

// ---- Barriers

WorkPtr ProcessGroupWebGPU::barrier(const c10d::BarrierOptions& options) {
  return start_in_order([&](c10d::Backend& cpu) { return cpu.barrier(options); });
}

void ProcessGroupWebGPU::monitoredBarrier(const c10d::BarrierOptions& options,
                                          bool wait_all_ranks) {
  start_in_order([&](c10d::Backend& cpu) {
    cpu.monitoredBarrier(options, wait_all_ranks);
    return WorkPtr();
  });
}

// ---- Sparse tensors

namespace {

// PyTorch has allreduce_ for sparse tensors of the CPU and CUDA, and for dense ones of all devices.
// Both do the same, which is to ask the device's backend.
void allreduce_as_dense(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
}

TW_LIBRARY_IMPL(c10d, SparsePrivateUse1, m) {
  m.impl("allreduce_", torch::CppFunction::makeFromBoxedFunction<&allreduce_as_dense>());
}

} // namespace

} // namespace torch_webgpu

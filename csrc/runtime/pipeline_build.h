// Pipelines that the runtime builds on threads of its own, several at a time.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "runtime/pipeline.h"

namespace torch_webgpu {

/// A pipeline that is being built. Dawn compiles on a thread for each; wgpu-native has no such way.
class PipelineBuild {
public:
  /// Starts to build. Null if the runtime cannot build in the background, or if the source is
  /// invalid: PipelineCache::create() then builds it, or raises the error. The caller holds the
  /// mutex that `cache` was made with.
  static std::shared_ptr<PipelineBuild> start(const Device& device, PipelineCache& cache,
                                              const PipelineSpec& spec);

  /// Returns when it is built, or has failed. No lock is needed.
  void wait();
  /// Waits, and returns the pipeline; null if it failed, as for start(). To be called once.
  std::unique_ptr<Pipeline> finish();

private:
  std::mutex mutex_; // of the two below
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::unique_ptr<Pipeline> pipeline_; // its handle is set when it is built
};

} // namespace torch_webgpu

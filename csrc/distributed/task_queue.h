// A thread that runs tasks one after another.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace torch_webgpu {

/// Runs tasks in the order in which they are given. The thread starts with the first of them.
class TaskQueue {
public:
  explicit TaskQueue(std::string thread_name) : thread_name_(std::move(thread_name)) {}
  /// Runs what is left.
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  /// The task must not throw.
  void push(std::function<void()> task);
  /// Returns when the tasks that were given before the call have run.
  void drain();

private:
  void run();

  const std::string thread_name_;
  std::mutex mutex_;
  std::condition_variable given_;
  std::condition_variable finished_;
  std::deque<std::function<void()>> tasks_;
  uint64_t num_given_ = 0;
  uint64_t num_finished_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

} // namespace torch_webgpu

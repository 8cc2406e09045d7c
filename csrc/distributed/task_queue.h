// A thread that runs tasks one after another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace torch_webgpu {

/// Runs tasks in the order in which they are given. The thread starts with the first of them.
class TaskQueue {
public:
  explicit TaskQueue(const std::string& thread_name);
  /// Runs what is left. Does not wait for tasks that have called release().
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  /// The task must not throw.
  void push(std::function<void()> task);
  /// Returns when the tasks that were given before the call have run, or have called release().
  void drain();
  /// Called by a task of this queue, before it does what may wait for later tasks: another thread
  /// goes on with them, and the task counts as run. At most once in a task. The queue may be
  /// destroyed meanwhile.
  void release();

private:
  struct State;
  static void run(const std::shared_ptr<State>& state);
  static void start_thread(const std::shared_ptr<State>& state);

  // Shared with the threads, for those that were released may outlive the queue.
  const std::shared_ptr<State> state_;
};

} // namespace torch_webgpu

#include "distributed/task_queue.h"

#include <c10/util/thread_name.h>

#include <utility>

namespace torch_webgpu {

TaskQueue::~TaskQueue() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  given_.notify_one();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void TaskQueue::push(std::function<void()> task) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    ++num_given_;
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { run(); });
    }
  }
  given_.notify_one();
}

void TaskQueue::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  finished_.wait(lock, [this, until = num_given_] { return num_finished_ >= until; });
}

void TaskQueue::run() {
  c10::setThreadName(thread_name_);
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    given_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) {
      return;
    }
    {
      // The task lets go of its tensors here, before it counts as finished.
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
    lock.lock();
    ++num_finished_;
    finished_.notify_all();
  }
}

} // namespace torch_webgpu

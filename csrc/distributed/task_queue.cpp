#include "distributed/task_queue.h"

#include <c10/util/thread_name.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace torch_webgpu {
namespace {

// Whether the task that this thread runs has called release().
thread_local bool is_released = false;

} // namespace

struct TaskQueue::State {
  std::string thread_name;
  std::mutex mutex;
  std::condition_variable given;
  std::condition_variable finished;
  std::deque<std::function<void()>> tasks;
  uint64_t num_given = 0;
  uint64_t num_finished = 0;
  bool stop = false;
  std::thread thread; // the one that takes tasks
};

TaskQueue::TaskQueue(const std::string& thread_name) : state_(std::make_shared<State>()) {
  state_->thread_name = thread_name;
}

TaskQueue::~TaskQueue() {
  std::thread last;
  {
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->stop = true;
    state_->finished.wait(lock, [this] { return state_->num_finished >= state_->num_given; });
    last = std::move(state_->thread);
  }
  state_->given.notify_all();
  if (last.joinable()) {
    last.join();
  }
}

// With the lock held.
void TaskQueue::start_thread(const std::shared_ptr<State>& state) {
  state->thread = std::thread([state] { run(state); });
}

void TaskQueue::push(std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->tasks.push_back(std::move(task));
    ++state_->num_given;
    if (!state_->thread.joinable()) {
      start_thread(state_);
    }
  }
  state_->given.notify_one();
}

void TaskQueue::drain() {
  State& state = *state_;
  std::unique_lock<std::mutex> lock(state.mutex);
  state.finished.wait(lock,
                      [&state, until = state.num_given] { return state.num_finished >= until; });
}

void TaskQueue::release() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  is_released = true;
  state_->thread.detach();
  ++state_->num_finished;
  state_->finished.notify_all();
  start_thread(state_);
}

void TaskQueue::run(const std::shared_ptr<State>& state) {
  c10::setThreadName(state->thread_name);
  std::unique_lock<std::mutex> lock(state->mutex);
  for (;;) {
    state->given.wait(lock, [&state] { return state->stop || !state->tasks.empty(); });
    if (state->tasks.empty()) {
      return;
    }
    {
      // The task lets go of its tensors here, before it counts as finished.
      const std::function<void()> task = std::move(state->tasks.front());
      state->tasks.pop_front();
      lock.unlock();
      task();
    }
    if (is_released) {
      return; // another thread has taken over
    }
    lock.lock();
    ++state->num_finished;
    state->finished.notify_all();
  }
}

} // namespace torch_webgpu

// The bounded queue where threads meet: any number of producers, one consumer.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "base/time.h"

namespace shoal {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // False if as many as the capacity wait that came this way, or the queue is closed; the caller keeps the refusal visible
  // (503, dropped hint), never spins. What must arrive does not count: it turns nobody away.
  bool try_push(T item) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || refusable_ >= capacity_) return false;
      ++refusable_;
      items_.push_back({std::move(item), true});
    }
    ready_.notify_one();
    return true;
  }

  // For items that must arrive, and that something else bounds: completions by what they answer, cancels by what they end,
  // messages of peers by transport/peer_budget.h. Whatever the capacity. False if closed.
  bool push(T item) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      items_.push_back({std::move(item), false});
    }
    ready_.notify_one();
    return true;
  }

  // Waits for an item until `timeout` has passed; nullopt on time-out, or when closed and empty.
  std::optional<T> pop(Duration timeout) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, timeout, [&] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    Entry entry = std::move(items_.front());
    items_.pop_front();
    refusable_ -= entry.refusable;
    return std::move(entry.item);
  }

  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  struct Entry {
    T item;
    bool refusable;  // came by try_push()
  };

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Entry> items_;
  size_t refusable_ = 0;  // of the items
  bool closed_ = false;
};

}  // namespace shoal

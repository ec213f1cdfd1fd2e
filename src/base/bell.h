// Wakes a thread that sleeps until something comes, from any thread or process.
#pragma once

#include <memory>

#include "base/status.h"
#include "base/time.h"

namespace shoal {

// An eventfd: any number of rings before a wait end one wait.
class Bell {
 public:
  static StatusOr<std::shared_ptr<Bell>> make();
  static std::shared_ptr<Bell> of(int fd) { return std::make_shared<Bell>(fd); }  // takes it over
  explicit Bell(int fd) : fd_(fd) {}
  ~Bell();
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;

  void ring() const;
  void wait(Duration most) const;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace shoal

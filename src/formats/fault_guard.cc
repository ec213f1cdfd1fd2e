#include "formats/fault_guard.h"

#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

namespace shoal {
namespace {

constexpr size_t kSlots = 16'384;
constexpr uintptr_t kSystemPage = 4096;

struct Slot {
  std::atomic<uintptr_t> begin{0};  // 0: free
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> lost{false};
};
static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);  // a handler reads them

std::array<Slot, kSlots> slots;
std::atomic<size_t> slots_used{0};  // no slot at or above this has ever been taken
std::mutex taking;                  // of slots; never held by the handler
struct sigaction before;

// Zeros from the page of the fault to the end: what lies behind a missing byte is not to be believed either.
void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (size_t i = 0; i < slots_used.load(); ++i) {
    const uintptr_t begin = slots[i].begin.load(), end = slots[i].end.load();
    if (begin == 0 || at < begin || at >= end) continue;
    void* const page = reinterpret_cast<void*>(at / kSystemPage * kSystemPage);
    const size_t bytes = end - reinterpret_cast<uintptr_t>(page);
    slots[i].lost.store(true);
    if (mmap(page, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) break;
    errno = saved_errno;
    return;
  }
  errno = saved_errno;
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) return before.sa_sigaction(signal, info, context);
  sigaction(signal, &before, nullptr);  // an access is repeated, and ends the process as it would have
  if (info->si_code <= 0) raise(signal);  // sent by a process
}

bool install() {
  struct sigaction action {};
  action.sa_sigaction = &on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  return sigaction(SIGBUS, &action, &before) == 0;
}

}  // namespace

StatusOr<size_t> guard_memory(const void* memory, size_t bytes) {
  static const bool installed = install();
  if (!installed) return unavailable("the handler of SIGBUS cannot be set");
  std::lock_guard lock(taking);
  for (size_t i = 0; i < kSlots; ++i) {
    if (slots[i].begin.load() != 0) continue;
    slots[i].lost.store(false);
    slots[i].end.store(reinterpret_cast<uintptr_t>(memory) + bytes);
    slots[i].begin.store(reinterpret_cast<uintptr_t>(memory));
    if (i >= slots_used.load()) slots_used.store(i + 1);
    return i;
  }
  return resource_exhausted(kSlots, " files are mapped already");
}

void unguard_memory(size_t slot) {
  slots[slot].end.store(0);
  slots[slot].begin.store(0);
}

bool memory_was_lost(size_t slot) { return slots[slot].lost.load(); }

}  // namespace shoal

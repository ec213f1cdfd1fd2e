#include "experts/link.h"

#include <algorithm>
#include <bit>
#include <thread>

#include "base/clock.h"

namespace shoal {
namespace {

constexpr uint64_t kKnown = 8;    // round trips, before they say anything
constexpr uint64_t kRenewed = 8;  // between looks at the percentile
constexpr int kTimes = 5;         // of the 99th percentile
constexpr Duration kLook = std::chrono::microseconds(200);

}  // namespace

size_t RoundTrips::size_of(uint32_t rows) { return std::min<size_t>(std::bit_width(rows), kSizes - 1); }

int64_t RoundTrips::percentile_of(const Size& size, double q) {
  const size_t count = std::min<uint64_t>(size.count, kKept);
  if (count == 0) return 0;
  std::array<int64_t, kKept> took;
  for (size_t i = 0; i < count; ++i) took[i] = size.took[i];
  const size_t at = std::min(count - 1, static_cast<size_t>(q * static_cast<double>(count)));
  std::nth_element(took.begin(), took.begin() + static_cast<ptrdiff_t>(at), took.begin() + static_cast<ptrdiff_t>(count));
  return took[at];
}

void RoundTrips::add(uint32_t rows, Duration took) {
  Size& size = sizes_[size_of(rows)];
  const uint64_t count = size.count;
  size.took[count % kKept] = took.count();
  size.count = count + 1;
  if (count % kRenewed == 0) size.p99 = percentile_of(size, 0.99);
}

Duration RoundTrips::timeout(uint32_t rows, Duration min, Duration first) const {
  const Size& size = sizes_[size_of(rows)];
  if (size.count < kKnown) return first;
  return std::clamp(Duration(size.p99 * kTimes), min, std::max(min, first));
}

double RoundTrips::percentile(double q) const {
  for (size_t i = 1; i < kSizes; ++i) {
    if (sizes_[i].count >= kKnown) return to_seconds(Duration(percentile_of(sizes_[i], q)));
  }
  return 0;
}

Status probe(ExpertLink& link, Duration most) {
  const TimePoint until = steady_now() + most;
  for (uint32_t lane = 0; lane < link.slots.size(); ++lane) {
    const std::span<std::byte> half = link.channel->outbox(lane);
    const ControlWord word = link.slots[lane].submit(SlotKind::kEmpty, 0, 0, 0);
    const RequestHead head{.lane = static_cast<uint16_t>(lane), .client = link.welcome.client, .seq = word.seq, .epoch = word.epoch};
    RETURN_IF_ERROR(write_request(head, {}, half).status());
    seal_request(half);
    link.channel->publish(lane, word, request_bytes(0, 0, 0));
    ResponseView view;
    Status why;
    while (true) {
      const auto heard = link.slots[lane].hear(link.channel->control(lane), link.channel->inbox(lane), view, why);
      if (heard == ClientSlot::Heard::kAnswer) break;
      if (heard == ClientSlot::Heard::kBad) return why;
      if (link.channel->broken() || steady_now() > until) return unavailable("'", link.name, "' does not answer a probe");
      std::this_thread::sleep_for(kLook);  // the bell is for who polls later
    }
  }
  return OkStatus();
}

}  // namespace shoal

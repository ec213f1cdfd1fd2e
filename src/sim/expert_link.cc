#include "sim/expert_link.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace shoal {

void ExpertWorldState::violate(std::string what) {
  if (outcome.violations.size() < 8) outcome.violations.push_back(absl::StrCat("at ", seconds(), " s: ", what));
}

double ExpertServiceTimes::seconds(double active, double rows) const { return fixed_s + std::max(active * active_s, rows * row_s); }

double ExpertWorldOutcome::rate(double from, double to) const {
  const auto count = std::count_if(done.begin(), done.end(), [&](const Pass& p) { return p.ended >= from && p.ended < to; });
  return to > from ? static_cast<double>(count) / (to - from) : 0;
}

double ExpertWorldOutcome::longest(double from, double to) const {
  double longest = 0;
  for (const Pass& p : done) {
    if (p.ended >= from && p.ended < to) longest = std::max(longest, p.seconds);
  }
  return longest;
}

double ExpertWorldOutcome::quantile(double share, double from, double to) const {
  std::vector<double> all;
  for (const Pass& p : done) {
    if (p.ended >= from && p.ended < to) all.push_back(p.seconds);
  }
  if (all.empty()) return 0;
  const auto at = all.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(all.size() - 1));
  std::nth_element(all.begin(), at, all.end());
  return *at;
}

uint64_t SimExpertLink::word_of(const std::vector<std::byte>& half) {
  uint64_t word = 0;
  std::memcpy(&word, half.data(), sizeof(word));
  return word;
}

void SimExpertLink::connect(uint64_t client_number) {
  ++life_, ++epoch_;
  up_ = true;
  const ExpertWorldSetup& s = world_.setup;
  const uint32_t rows = s.tokens * s.experts_per_token;
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    lane.client.connect(epoch_, client_number, static_cast<uint16_t>(i));
    lane.server.attach(epoch_);
    lane.request.assign(request_bytes(s.tokens, rows, 1), std::byte{0});
    lane.response.assign(response_bytes(rows, 1), std::byte{0});
    lane.under_way.reset();
    lane.queue.clear();
  }
}

void SimExpertLink::disconnect() {
  ++life_;
  up_ = false;
  for (Lane& lane : lanes_) {
    lane.server.detach();
    lane.under_way.reset();
    lane.queue.clear();
  }
}

void SimExpertLink::write(bool to_server, uint32_t lane, std::vector<std::byte> half, uint64_t word, const Leaving& leaving, std::function<void()> arrived) {
  if (lossy() || cut()) return;
  std::memcpy(half.data(), &word, sizeof(word));
  const auto shared = std::make_shared<const std::vector<std::byte>>(std::move(half));
  std::vector<std::pair<size_t, size_t>> pieces{{sizeof(word), shared->size()}, {0, sizeof(word)}};
  if (world_.setup.torn) {
    const size_t middle = std::min(kSlotPayloadAt + 8, shared->size());
    pieces = {{sizeof(word), middle}, {middle, shared->size()}, {0, sizeof(word)}};
  }
  for (size_t i = pieces.size(); world_.setup.any_order && i > 1; --i) std::swap(pieces[i - 1], pieces[world_.rng.below(i)]);
  const auto lands = [this, to_server, lane, shared, arrived, life = life_, generation = generation_[to_server]](size_t begin, size_t end) {
    if (life != life_ || generation != generation_[to_server] || lossy()) return false;
    std::vector<std::byte>& memory = to_server ? lanes_[lane].request : lanes_[lane].response;
    std::copy(shared->begin() + static_cast<std::ptrdiff_t>(begin), shared->begin() + static_cast<std::ptrdiff_t>(end), memory.begin() + static_cast<std::ptrdiff_t>(begin));
    return true;
  };
  if (!world_.setup.torn && !world_.setup.any_order) {  // one event for all
    world_.after(leaving.begins + leaving.takes, [lands, arrived, size = shared->size()] {
      if (lands(0, size)) arrived();
    });
    return;
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const double part = static_cast<double>(i + 1) / static_cast<double>(pieces.size());
    world_.after(leaving.begins + leaving.takes * part, [lands, arrived, piece = pieces[i]] {
      if (lands(piece.first, piece.second)) arrived();
    });
  }
}

}  // namespace shoal

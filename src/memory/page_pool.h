// Pages of one device: who holds which is decided here, where they are is not known here. Ids only, no bytes.
//
// A free page may still hold what its last owner had there. Such pages *stand by*: they are free like any other, but they are
// given out after those that hold nothing, and until then their owner may take them back as they are (the standby list of an
// operating system's memory).
//
//   |- held -|- standing by -|- blank -|- vacant -|      free() = capacity() - held, whatever stands by
//   |<------ capacity() + spare() -------->|
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/page.h"

namespace shoal {

// Pages [first, first + count).
struct PageRun {
  PageId first;
  uint32_t count = 0;
  friend bool operator==(const PageRun&, const PageRun&) = default;
};

uint32_t page_count(std::span<const PageRun> runs);

// Pages [first, first + count) of one owner's memory, by their place in it.
struct PageSpan {
  uint32_t first = 0;
  uint32_t count = 0;
  friend bool operator==(const PageSpan&, const PageSpan&) = default;
};

uint32_t page_count(std::span<const PageSpan> spans);

class PagePool {
 public:
  // `spare`: so many pages beyond the `pages` that can be held. They let more stand by, as far as set_spare() allows: all of
  // them at first.
  explicit PagePool(uint32_t pages, uint32_t spare = 0);

  // `count` pages in as few runs as possible (one of the smallest that fits, else the largest first), or nullopt when
  // fewer are free. A single run needs no mapping on the device, so contiguity is worth looking for.
  std::optional<std::vector<PageRun>> allocate(uint32_t count);

  // REQUIRES: every page was returned by allocate() or take_back() and not released since.
  void release(std::span<const PageRun> runs);

  // ---- what stands by -------------------------------------------------------------------------------------------------

  // Releases the memory of `owner`, which may want it back; of these pages, in this order, only `whole` are worth that, the
  // others are blank. What stood by of it before is blank. REQUIRES: as release(); `whole` is ascending and apart.
  void stand_by(ModelId owner, std::span<const PageRun> pages, std::span<const PageSpan> whole);

  // Memory of `count` pages for `owner`, with what is left of it in its place; nullopt when fewer are free. Nothing is left
  // where it is so little that to lay the pages side by side is worth more. REQUIRES: `count` is the size it stood by with,
  // if it did.
  struct Memory {
    std::vector<PageRun> pages;
    std::vector<PageSpan> whole;  // these are as they were
  };
  std::optional<Memory> take_back(ModelId owner, uint32_t count);

  uint32_t standing_by(ModelId owner) const;    // pages of it
  uint32_t standing_by() const { return standing_by_; }
  // Whether it is known to come back. When pages are taken from those that stand by, those that nobody waits for go first, of
  // these what was left longest ago; then, as turns go round, what was left last: its turn is the furthest. Each from
  // its end, so that few are nibbled at.
  void set_awaited(ModelId owner, bool awaited);
  void forget(ModelId owner);                    // it does not come back: its pages are blank

  // ---- spare pages ----------------------------------------------------------------------------------------------------

  // From now on `spare` of the spare pages may hold something. Returned: pages that no longer may, whose memory is to be given
  // back. REQUIRES: spare <= what the pool was made with.
  std::vector<PageRun> set_spare(uint32_t spare);
  uint32_t spare() const { return spare_; }

  // One past the last page that was given out: those from there on have never been used. Until forget_reached(): REQUIRES that
  // nothing is held or stands by.
  uint32_t reached() const { return reached_; }
  void forget_reached();

  uint32_t capacity() const { return capacity_; }
  uint32_t free() const { return capacity_ - held_; }

  // Runs are disjoint and within the pool, and what is held, stands by, is blank or vacant sums up to it.
  void check() const;

 private:
  using Runs = std::map<uint32_t, uint32_t>;  // first page -> count; neighbours are always merged
  struct Part {
    uint32_t at = 0;  // of its first page in the owner's memory
    PageRun run;
  };
  struct Standby {
    std::vector<Part> parts;  // ascending
    uint32_t pages = 0;
    uint64_t since = 0;       // rises with every stand_by()
    bool awaited = false;
  };
  void take(Runs::iterator run, uint32_t count, std::vector<PageRun>& out);
  std::vector<PageRun> take_blank(uint32_t count);
  void make_blank(uint32_t count);  // so many are, at least: others stop standing by
  std::map<ModelId, Standby>::iterator least_awaited();
  void shorten(Standby& standby, uint32_t count);
  static void insert(Runs& runs, PageRun run);
  void blank(PageRun run);

  const uint32_t capacity_, spare_max_;
  uint32_t spare_;
  uint32_t held_ = 0;
  uint32_t standing_by_ = 0;
  uint32_t blank_count_;
  uint32_t reached_ = 0;
  Runs blank_, vacant_;
  std::map<ModelId, Standby> standby_;
  uint64_t stood_by_ = 0;
};

}  // namespace shoal

// How a model shares its device with others: every setting once, and the one table of them. From a row come the flag of
// `shoal serve` and its environment variable, the key in shoal.yaml and in the files of `shoal simulate`, the JSON schema, what
// `shoal config` says, what a reload compares and sends, and the bytes on the wire. Who adds a setting adds a field and a row
// here, and uses it where it counts; docs/OPERATING.md has the row's meaning, and a test that it has.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "base/time.h"

namespace shoal {

// What a reader of one model's answers may expect.
struct SloTarget {
  Duration ttft = std::chrono::seconds(10);        // time to the first token
  Duration tbt = std::chrono::milliseconds(100);   // time between tokens
  friend bool operator==(const SloTarget&, const SloTarget&) = default;
};

struct PoolingSettings {
  SloTarget slo;
  // A request is refused if its first step is predicted to begin later, and ends if it did not begin by then.
  Duration max_wait = Duration::max();
  Duration idle_ttl = Duration::max();  // without a request for so long, it leaves the device
  int32_t priority = 0;                 // among models that wait for the device: higher first in a round
  bool pinned = false;                  // loaded at once, and stays
  int32_t ttft_loads = 4;               // turns aim at a first token within so many loads of the model, if that is longer than slo.ttft
  friend bool operator==(const PoolingSettings&, const PoolingSettings&) = default;
};

struct PoolingField {
  // Its kind is that of the field: a time, a whole number or a switch.
  using Place = std::variant<Duration& (*)(PoolingSettings&), int32_t& (*)(PoolingSettings&), bool& (*)(PoolingSettings&)>;

  uint32_t number;           // on the wire, for ever
  const char* key;           // of flag and file; in files "_" is "-"
  Place place;
  double min, max;           // what users may say: seconds, or whole numbers
  const char* help;          // of the flag. A switch is set by naming models, the others are VALUE or MODEL=VALUE
  const char* adjective;     // of a model whose switch is on
  const char* meaning;       // for the page on operating

  bool is_time() const { return place.index() == 0; }
  bool is_number() const { return place.index() == 1; }
  bool is_switch() const { return place.index() == 2; }
};

std::span<const PoolingField> pooling_fields();
// Null if there is none of this key, or number.
const PoolingField* pooling_field(std::string_view key);
const PoolingField* pooling_field(uint32_t number);

// Nanoseconds, the number, or 0 and 1.
int64_t value_of(const PoolingField& field, const PoolingSettings& settings);
// REQUIRES: the value fits the field's type.
void set_value(const PoolingField& field, int64_t value, PoolingSettings& settings);
// Likewise, of what a user said: seconds, the number, or 0 and 1. Who says a ttft means it, unless ttft_loads is said as well, later.
void set_said(const PoolingField& field, double said, PoolingSettings& settings);

}  // namespace shoal

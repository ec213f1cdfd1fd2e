#include "base/pooling_settings.h"

#include <gtest/gtest.h>

#include <set>

namespace shoal {
namespace {

// Converts to anything: how many of it an aggregate takes is how many fields it has.
struct Any {
  template <typename T>
  operator T() const;  // NOLINT
};

template <typename T, typename... Fields>
constexpr size_t fields_of() {
  if constexpr (requires { T{Fields{}..., Any{}}; }) {
    return fields_of<T, Fields..., Any>();
  } else {
    return sizeof...(Fields);
  }
}

TEST(PoolingSettings, EveryFieldHasARowOfItsOwn) {
  EXPECT_EQ(pooling_fields().size(), fields_of<PoolingSettings>() - 1 + fields_of<SloTarget>()) << "a field without a row, or two rows for one";
  std::set<uint32_t> numbers;
  PoolingSettings settings;
  for (const PoolingField& field : pooling_fields()) {
    EXPECT_TRUE(numbers.insert(field.number).second) << field.key;
    EXPECT_EQ(pooling_field(field.number), &field);
    EXPECT_EQ(pooling_field(field.key), &field);
    const PoolingSettings before = settings;
    set_value(field, 1, settings);
    EXPECT_FALSE(settings == before) << field.key << " changes what another row changed, or nothing";
    EXPECT_EQ(value_of(field, settings), 1);
    EXPECT_EQ(field.is_switch(), field.adjective != nullptr) << field.key;
  }
  EXPECT_EQ(pooling_field("max_wait"), nullptr);
  EXPECT_EQ(pooling_field(1u), nullptr);
}

TEST(PoolingSettings, TimesAreSaidInSeconds) {
  PoolingSettings settings;
  set_said(*pooling_field("max-wait"), 1.5, settings);
  set_said(*pooling_field("priority"), -7, settings);
  EXPECT_EQ(settings.max_wait, std::chrono::milliseconds(1500));
  EXPECT_EQ(settings.priority, -7);
  EXPECT_EQ(settings.idle_ttl, Duration::max());
}

TEST(PoolingSettings, WhoSaysADeadlineMeansIt) {
  PoolingSettings settings;
  EXPECT_EQ(settings.ttft_loads, 4);
  set_said(*pooling_field("tbt"), 0.05, settings);
  EXPECT_EQ(settings.ttft_loads, 4);
  set_said(*pooling_field("ttft"), 10, settings);
  EXPECT_EQ(settings.ttft_loads, 0);
  set_said(*pooling_field("ttft-loads"), 2, settings);
  EXPECT_EQ(settings.ttft_loads, 2);
  EXPECT_EQ(settings.slo.ttft, std::chrono::seconds(10));
}

}  // namespace
}  // namespace shoal

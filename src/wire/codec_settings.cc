// The settings of a model on the wire: the rows of their table that are not at their defaults.
#include <limits>

#include "wire/codec_parts.h"

namespace shoal {
namespace {

Status check_value(const PoolingField& field, int64_t value) {
  using Limits = std::numeric_limits<int32_t>;
  if (field.is_time() && (value < 0 || (value == 0 && field.min > 0))) return invalid_argument("message: '", field.key, "' of no time");
  if (field.is_number() && (value < Limits::min() || value > Limits::max())) return invalid_argument("message: '", field.key, "' of ", value, " is out of range");
  return OkStatus();
}

}  // namespace

void to_pb(const PoolingSettings& from, PbSettings* to) {
  const PoolingSettings defaults;
  for (const PoolingField& field : pooling_fields()) {
    const int64_t value = value_of(field, from);
    if (value == value_of(field, defaults)) continue;
    pb::Setting* setting = to->Add();
    setting->set_number(field.number);
    setting->set_value(value);
  }
}

StatusOr<PoolingSettings> settings_from(const PbSettings& from) {
  PoolingSettings to;
  for (const pb::Setting& setting : from) {
    const PoolingField* field = pooling_field(setting.number());
    if (field == nullptr) continue;
    RETURN_IF_ERROR(check_value(*field, setting.value()));
    set_value(*field, setting.value(), to);
  }
  return to;
}

}  // namespace shoal

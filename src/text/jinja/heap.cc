#include "text/jinja/heap.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace shoal::jinja {

void Heap::exhausted(std::string_view what) const {
  throw Fault{StatusCode::kResourceExhausted, absl::StrCat("line ", line_, ": the template exceeds ", std::string(what))};
}

void Heap::charge(uint64_t steps) {
  if (steps > steps_left_) exhausted(absl::StrCat("its budget of ", options_.limits.steps_max, " steps"));
  steps_left_ -= steps;
}

void Heap::check_size(size_t bytes) const {
  if (bytes > options_.limits.output_bytes_max) {
    exhausted(absl::StrCat("the output limit of ", options_.limits.output_bytes_max, " bytes"));
  }
}

Value Heap::make_list(std::vector<Value> items, Kind kind, bool untrusted, const char* view) {
  auto* list = make<ListObject>();
  charge(items.size());  // they bound memory too: a budget of steps is a budget of items
  for (const Value& item : items) {
    list->depth = std::max(list->depth, depth_of(item) + 1);
    list->weight = add_weights(list->weight, weight_of(item));
  }
  if (list->depth > kValueDepthMax) fail("containers are nested deeper than ", kValueDepthMax);
  list->items = std::move(items);
  list->untrusted = untrusted;
  list->view = view;
  return Value::list(list, kind);
}

Value Heap::make_string(MarkedText text) {
  check_size(text.text.size());
  charge_bytes(text.text.size());
  return Value::string(std::move(text));
}

Value Heap::make_string(std::string_view text, bool untrusted) {
  check_size(text.size());
  charge_bytes(text.size());
  return Value::string(text, untrusted);
}

MarkedText Heap::text_of(const Value& v) {
  charge(weight_of(v));
  MarkedText text = to_text(v);
  check_size(text.text.size());
  return text;
}

}  // namespace shoal::jinja

// The objects of one rendering and the work that it may do. Both are bounded by the same budget: what is made is charged.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/chat_template.h"
#include "text/jinja/value.h"

namespace shoal::jinja {

class Heap {
 public:
  // `options` outlive this.
  explicit Heap(const RenderOptions& options) : options_(options), steps_left_(options.limits.steps_max) {}

  const RenderOptions& options() const { return options_; }
  // Counts work; fails with ResourceExhausted when the budget is spent. Bytes count less than evaluations.
  void charge(uint64_t steps);
  void charge_bytes(size_t bytes) { charge(bytes / kBytesPerStep + 1); }
  void check_size(size_t bytes) const;  // of a text, before it is allocated

  // Objects live until the rendering ends.
  template <typename T, typename... A>
  T* make(A&&... args) {
    charge_bytes(sizeof(T));
    auto owned = std::make_unique<T>(std::forward<A>(args)...);
    T* object = owned.get();
    arena_.push_back(std::move(owned));
    return object;
  }
  Value make_list(std::vector<Value> items, Kind kind = Kind::kList, bool untrusted = false, const char* view = "");
  DictObject* make_dict() { return make<DictObject>(); }
  // A string that counts against the budget and the bound on sizes.
  Value make_string(MarkedText text);
  Value make_string(std::string_view text, bool untrusted = false);
  MarkedText text_of(const Value& v);  // str(v), counted

 protected:
  // Throws a Fault that names `what` and the line.
  [[noreturn]] void exhausted(std::string_view what) const;

  uint32_t line_ = 0;  // of what is being evaluated, for messages

 private:
  static constexpr size_t kBytesPerStep = 64;

  const RenderOptions& options_;
  uint64_t steps_left_;
  std::vector<std::unique_ptr<Object>> arena_;
};

}  // namespace shoal::jinja

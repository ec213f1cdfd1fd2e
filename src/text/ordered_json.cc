#include "text/ordered_json.h"

#include <memory>
#include <unordered_set>
#include <vector>

#include "base/bytes.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

// nlohmann's ordered objects look for a key by scanning, so keys are put at the end here and doubles found by a set.
class BoundedOrderedDom : public nlohmann::json_sax<OrderedJson> {
 public:
  explicit BoundedOrderedDom(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(int64_t v) override { return put(v); }
  bool number_unsigned(uint64_t v) override { return put(v); }
  bool number_float(double v, const std::string&) override { return put(v); }
  bool string(std::string& v) override { return put(std::move(v)); }
  bool binary(OrderedJson::binary_t&) override { return fail("binary value"); }
  bool start_object(size_t) override { return open(OrderedJson::object()); }
  bool start_array(size_t) override { return open(OrderedJson::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& k) override {
    if (!count()) return false;
    if (!stack_.back().keys->insert(k).second && limits_.refuse_duplicate_keys) return fail(absl::StrCat("duplicate key '", k, "'"));
    auto& object = stack_.back().value->get_ref<OrderedJson::object_t&>();
    static_cast<OrderedJson::object_t::Container&>(object).emplace_back(k, nullptr);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const OrderedJson::exception& e) override {
    std::string cause = e.what();
    if (const size_t at = cause.find("] "); at != std::string::npos) cause = cause.substr(at + 2);
    error_ = absl::StrCat(cause, " (byte ", position, ")");
    return false;
  }

  OrderedJson root;
  const std::string& error() const { return error_; }

 private:
  struct Open {
    OrderedJson* value;
    std::unique_ptr<std::unordered_set<std::string>> keys;
  };
  bool fail(std::string cause) {
    error_ = std::move(cause);
    return false;
  }
  bool count() { return ++values_ <= limits_.values_max || fail(absl::StrCat("more than ", limits_.values_max, " values")); }
  template <typename T>
  bool put(T&& value) {
    return count() && (place(OrderedJson(std::forward<T>(value))), true);
  }
  OrderedJson* place(OrderedJson value) {
    if (stack_.empty()) {
      root = std::move(value);
      return &root;
    }
    OrderedJson& parent = *stack_.back().value;
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    OrderedJson& slot = parent.get_ref<OrderedJson::object_t&>().back().second;
    slot = std::move(value);
    return &slot;
  }
  bool open(OrderedJson container) {
    if (!count()) return false;
    if (stack_.size() >= limits_.depth_max) return fail(absl::StrCat("nested deeper than ", limits_.depth_max));
    const bool is_object = container.is_object();
    OrderedJson* placed = place(std::move(container));
    stack_.push_back({placed, is_object ? std::make_unique<std::unordered_set<std::string>>() : nullptr});
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  std::vector<Open> stack_;  // pointers stay valid: a container grows only while it is the innermost open one
  size_t values_ = 0;
  std::string error_;
};

}  // namespace

StatusOr<OrderedJson> parse_ordered_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return invalid_argument("JSON of ", format_bytes(text.size()), "; the limit is ", format_bytes(limits.bytes_max));
  }
  BoundedOrderedDom dom(limits);
  if (!OrderedJson::sax_parse(text.begin(), text.end(), &dom)) return invalid_argument("invalid JSON: ", dom.error());
  return std::move(dom.root);
}

}  // namespace shoal

// The parts of json_schema.h; internal to the folder. Every function returns a GBNF expression that can stand within a
// sequence (a rule's name, a literal, a class, or something in parentheses), or an error "#/path: cause".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "text/grammar/gbnf_builder.h"

namespace shoal::grammar {

// The end of a range of numbers.
struct NumberBound {
  OrderedJson value;       // a number
  bool exclusive = false;
};
struct NumberRange {
  std::optional<NumberBound> low, high;
  bool open() const { return !low && !high; }
};

// InvalidArgument without a path if the range is empty or its numbers have too many digits.
StatusOr<std::string> integer_expression(const NumberRange& range);
StatusOr<std::string> number_expression(const NumberRange& range);

std::string parenthesised(const std::vector<std::string>& alternatives);

// One schema document on its way into a builder.
class SchemaLowering {
 public:
  SchemaLowering(GbnfBuilder& builder, const OrderedJson& root) : out_(builder), root_(root) {}
  StatusOr<std::string> expression(const OrderedJson& schema, const std::string& path);

 private:
  using Result = StatusOr<std::string>;

  Status check_keywords(const OrderedJson& schema, const std::string& path) const;
  Result plain(const OrderedJson& schema, const std::string& path);          // without $ref, allOf, anyOf, oneOf
  Result of_type(std::string_view type, const OrderedJson& schema, const std::string& path);
  Result enumeration(const OrderedJson& schema, const std::string& path);
  Result reference(const OrderedJson& ref, const std::string& path);
  Result any_of(const OrderedJson& schema, const char* keyword, const std::string& path);
  Result string(const OrderedJson& schema, const std::string& path);
  Result number(bool integer, const OrderedJson& schema, const std::string& path);
  Result array(const OrderedJson& schema, const std::string& path);
  Result object(const OrderedJson& schema, const std::string& path);

  std::string named(std::string_view name, std::string expression);

  // Of an object: a property with what follows its name.
  struct Member {
    std::string text;      // "key": value
    bool required = false;
  };
  StatusOr<std::vector<Member>> members(const OrderedJson& schema, const std::string& path);
  // key: value of the properties that are not declared; empty if there may be none.
  Result additional_member(const OrderedJson& schema, const std::string& path);
  std::string key_other_than(const std::vector<std::string>& names);
  Result map_object(const std::string& member, const OrderedJson& schema, const std::string& path);
  std::string member_chain(const std::vector<Member>& members, const std::string& additional);

  // The schema that allows what both allow; false where that is nothing. In schema_merge.cc, as are the next two.
  StatusOr<OrderedJson> merge(const OrderedJson& a, const OrderedJson& b, const std::string& path);
  StatusOr<OrderedJson> merge_value(const std::string& key, const OrderedJson& a, const OrderedJson& b, const std::string& path);
  Status merge_objects(const OrderedJson& a, const OrderedJson& b, OrderedJson& out, const std::string& path);
  StatusOr<const OrderedJson*> resolve(const OrderedJson& ref, const std::string& path) const;
  StatusOr<OrderedJson> dereferenced(const OrderedJson& schema, const std::string& path);
  // Whether no value can be valid under both; false also means "cannot tell".
  bool disjoint(const OrderedJson& a, const OrderedJson& b, int depth) const;

  Status count_step(const std::string& path);

  GbnfBuilder& out_;
  const OrderedJson& root_;
  absl::flat_hash_map<std::string, std::string> refs_;  // pointer -> rule
  int depth_ = 0;
  size_t steps_ = 0;
  mutable size_t looks_ = 0;                            // of disjoint()
};

// The names of the types that `schema` allows, from "type" or from the keywords it uses; empty: any.
std::vector<std::string> allowed_types(const OrderedJson& schema);
bool has_type(const OrderedJson& value, std::string_view type);
// A child of `path`, as a JSON pointer.
std::string child(const std::string& path, std::string_view key);
// Whether anything but annotations and the given keywords is in `schema`.
bool restricts_beyond(const OrderedJson& schema, std::initializer_list<std::string_view> keywords);
// "minItems" and its like. InvalidArgument if it is not an integer from 0 to 100000.
StatusOr<std::optional<uint32_t>> count_keyword(const OrderedJson& schema, const char* key, const std::string& path);

}  // namespace shoal::grammar

// Filters over sequences and mappings.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/strings.h"
#include "text/tokenizer/string_map.h"

namespace shoal::jinja {
namespace {

// "a.b.0" of an item, as `attribute=` arguments name it; an integer names an index.
Value resolve_path(Interpreter& in, const Value& item, const Value& path, const Value* fallback) {
  if (path.is_integral()) return in.item(item, path);
  Value value = item;
  const std::string& text = require_string(path, "attribute").text;
  for (const TextRange part : split_on(text, ".", -1, false)) {
    const std::string name = text.substr(part.begin, part.end - part.begin);
    const bool index = !name.empty() && name.size() < 10 && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (value.is(Kind::kUndefined)) fail_undefined(value);
    value = in.item(value, index ? Value::integer(std::atoll(name.c_str())) : Value::string(name));
    if (value.is(Kind::kUndefined) && fallback != nullptr) value = *fallback;
  }
  return value;
}

// What sort, min, max, unique and groupby compare: text without regard to case unless asked.
Value fold_case(Interpreter& in, const Value& v, bool case_sensitive) {
  Args none;
  return v.is(Kind::kString) && !case_sensitive ? in.call_method(v, "lower", none) : v;
}

Value key_of(Interpreter& in, const Value& item, const Value* path, bool case_sensitive) {
  const bool has_path = path != nullptr && !path->is(Kind::kNone);
  return fold_case(in, has_path ? resolve_path(in, item, *path, nullptr) : item, case_sensitive);
}

// Several comma-separated attributes give a tuple of keys.
Value sort_key(Interpreter& in, const Value& item, const Value* path, bool case_sensitive) {
  if (path == nullptr || !path->is(Kind::kString) || path->str().find(',') == std::string::npos) {
    return key_of(in, item, path, case_sensitive);
  }
  std::vector<Value> keys;
  for (const TextRange part : split_on(path->str(), ",", -1, false)) {
    keys.push_back(fold_case(in, resolve_path(in, item, Value::string(path->text().sub(part.begin, part.end)), nullptr), case_sensitive));
  }
  return in.make_list(std::move(keys), Kind::kTuple);
}

// Stable merge sort: every comparison is charged, and an inconsistent order (NaN) does no harm.
void sort_by_keys(Interpreter& in, std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
  std::vector<std::pair<Value, Value>> buffer(keyed.size());
  for (size_t width = 1; width < keyed.size(); width *= 2) {
    for (size_t begin = 0; begin < keyed.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, keyed.size()), end = std::min(begin + 2 * width, keyed.size());
      size_t left = begin, right = middle;
      for (size_t out = begin; out < end; ++out) {
        const bool take_right = left == middle || (right < end && (reverse ? in.compare(Op::kLt, keyed[left].first, keyed[right].first)
                                                                           : in.compare(Op::kLt, keyed[right].first, keyed[left].first)));
        buffer[out] = std::move(keyed[take_right ? right++ : left++]);
      }
    }
    keyed.swap(buffer);
  }
}

std::vector<Value> sorted(Interpreter& in, std::vector<Value> items, const Value* path, bool case_sensitive, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items) keyed.emplace_back(sort_key(in, item, path, case_sensitive), item);
  sort_by_keys(in, keyed, reverse);
  for (size_t i = 0; i < keyed.size(); ++i) items[i] = std::move(keyed[i].second);
  return items;
}

Value length(Interpreter& in, const Value& v, Args&) {
  switch (v.kind()) {
    case Kind::kUndefined: return Value::integer(0);
    case Kind::kString: return Value::integer(static_cast<int64_t>(unicode::length(v.str())));
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView: return Value::integer(static_cast<int64_t>(v.items().items.size()));
    case Kind::kDict: return Value::integer(static_cast<int64_t>(v.entries().entries.size()));
    case Kind::kLoop: return Value::integer(static_cast<int64_t>(v.loop_state().items.size()));
    default: fail("object of type '", type_name(v), "' has no len()");
  }
}

Value first(Interpreter& in, const Value& v, Args&) {
  if (v.is(Kind::kGenerator)) {
    ListObject& rest = v.items();
    return rest.next < rest.items.size() ? rest.items[rest.next++] : Value::undefined("No first item, sequence was empty.");
  }
  const std::vector<Value> items = in.iterate(v);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value last(Interpreter& in, const Value& v, Args&) {
  if (v.is(Kind::kGenerator)) fail("'generator' object is not reversible");
  const std::vector<Value> items = in.iterate(v);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value join(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("join", args, {"d", "attribute"});
  const MarkedText separator = bound.has(0) ? in.text_of(*bound.get(0)) : MarkedText();
  MarkedText out;
  bool is_first = true;
  for (const Value& item : in.iterate(v)) {
    if (!std::exchange(is_first, false)) append(out, separator);
    const bool by_path = bound.has(1) && !bound.get(1)->is(Kind::kNone);
    append(out, in.text_of(by_path ? resolve_path(in, item, *bound.get(1), nullptr) : item));
    in.check_size(out.text.size());
  }
  return in.make_string(std::move(out));
}

Value list(Interpreter& in, const Value& v, Args&) { return in.make_list(in.iterate(v), Kind::kList, v.untrusted()); }

Value reverse(Interpreter& in, const Value& v, Args&) {
  std::vector<Value> items = in.iterate(v);
  std::reverse(items.begin(), items.end());
  if (!v.is(Kind::kString)) return in.make_list(std::move(items), Kind::kGenerator);
  MarkedText out;
  for (const Value& c : items) append(out, c.text());
  return in.make_string(std::move(out));
}

Value sort(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("sort", args, {"reverse", "case_sensitive", "attribute"});
  return in.make_list(sorted(in, in.iterate(v), bound.get(2), bound.boolean(1, false), bound.boolean(0, false)), Kind::kList,
                      v.untrusted());
}

Value dictsort(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.string(1, "key");
  if (by != "key" && by != "value") fail("you can only sort by either \"key\" or \"value\"");
  if (!v.is(Kind::kDict)) fail("'", type_name(v), "' object has no attribute 'items'");
  Args none;
  const Value position = Value::integer(by == "key" ? 0 : 1);
  return in.make_list(
      sorted(in, in.iterate(in.call_method(v, "items", none)), &position, bound.boolean(0, false), bound.boolean(2, false)));
}

Value items(Interpreter& in, const Value& v, Args&) {
  if (v.is(Kind::kUndefined)) return in.make_list({}, Kind::kGenerator);
  if (!v.is(Kind::kDict)) fail("can only get item pairs from a mapping");
  Args none;
  return in.make_list(in.iterate(in.call_method(v, "items", none)), Kind::kGenerator, v.untrusted());
}

Value unique(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("unique", args, {"case_sensitive", "attribute"});
  DictObject* seen = in.make_dict();
  std::vector<Value> out;
  for (Value& item : in.iterate(v)) {
    Value key = key_of(in, item, bound.get(1), bound.boolean(0, false));
    in.charge(weight_of(key));
    if (seen->set(std::move(key), Value::none())) out.push_back(std::move(item));
  }
  return in.make_list(std::move(out), Kind::kGenerator);
}

template <Op Better>
Value extreme(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("min/max", args, {"case_sensitive", "attribute"});
  Value best = Value::undefined("No aggregated item, sequence was empty."), best_key;
  bool any = false;
  for (Value& item : in.iterate(v)) {
    Value key = key_of(in, item, bound.get(1), bound.boolean(0, false));
    if (any && !in.compare(Better, key, best_key)) continue;
    any = true;
    best = std::move(item);
    best_key = std::move(key);
  }
  return best;
}

Value sum(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("sum", args, {"attribute", "start"});
  Value total = bound.has(1) ? *bound.get(1) : Value::integer(0);
  for (const Value& item : in.iterate(v)) {
    const bool by_path = bound.has(0) && !bound.get(0)->is(Kind::kNone);
    total = in.arithmetic(Op::kAdd, total, by_path ? resolve_path(in, item, *bound.get(0), nullptr) : item);
  }
  return total;
}

Value groupby(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = bound.boolean(2, false);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : in.iterate(v)) {
    keyed.emplace_back(fold_case(in, resolve_path(in, item, *bound.get(0), bound.get(1)), case_sensitive), item);
  }
  sort_by_keys(in, keyed, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    const size_t begin = i;
    for (; i < keyed.size() && in.compare(Op::kEq, keyed[i].first, keyed[begin].first); ++i) members.push_back(keyed[i].second);
    const Value grouper = resolve_path(in, members[0], *bound.get(0), bound.get(1));
    groups.push_back(in.make_list({grouper, in.make_list(std::move(members))}, Kind::kTuple, false, kGroupTuple));
  }
  return in.make_list(std::move(groups));
}

// map(attribute=..., default=...) or map("filter", arguments...).
Value map(Interpreter& in, const Value& v, Args& args) {
  std::vector<Value> out;
  if (!truthy(v)) return in.make_list({}, Kind::kGenerator);  // none and 0 too, as in the reference
  if (args.positional.empty()) {
    const Bound bound("map", args, {"", "attribute", "default"});
    if (!bound.has(1)) fail("map requires a filter argument");
    for (const Value& item : in.iterate(v)) out.push_back(resolve_path(in, item, *bound.get(1), bound.get(2)));
    return in.make_list(std::move(out), Kind::kGenerator);
  }
  const std::string name = require_string(args.positional[0], "map filter").text;
  args.positional.erase(args.positional.begin());
  for (const Value& item : in.iterate(v)) {
    Args each = args;
    out.push_back(in.filter(name, item, each));
  }
  return in.make_list(std::move(out), Kind::kGenerator);
}

// select, reject, selectattr, rejectattr: by truth or by a test with arguments.
template <bool Keep, bool ByAttribute>
Value select(Interpreter& in, const Value& v, Args& args) {
  Value path;
  if (!truthy(v)) return in.make_list({}, Kind::kGenerator);
  if (ByAttribute) {
    if (args.positional.empty()) fail("missing the attribute to select by");
    path = args.positional[0];
    args.positional.erase(args.positional.begin());
  }
  std::string test_name;
  if (!args.positional.empty()) {
    test_name = require_string(args.positional[0], "test name").text;
    args.positional.erase(args.positional.begin());
  }
  std::vector<Value> out;
  for (Value& item : in.iterate(v)) {
    const Value subject = ByAttribute ? resolve_path(in, item, path, nullptr) : item;
    const bool holds = test_name.empty() ? truthy(subject) : in.test(test_name, subject, args);
    if (holds == Keep) out.push_back(std::move(item));
  }
  return in.make_list(std::move(out), Kind::kGenerator);
}

Value batch(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("batch", args, {"linecount", "fill_with"}, 1);
  const int64_t size = bound.integer(0, 1);
  if (size < 1) fail("batch size must be positive");
  std::vector<Value> batches, row;
  const auto flush = [&] { batches.push_back(in.make_list(std::exchange(row, {}))); };
  for (Value& item : in.iterate(v)) {
    if (static_cast<int64_t>(row.size()) == size) flush();
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    const bool fill = bound.has(1) && !bound.get(1)->is(Kind::kNone);
    if (fill) in.charge(static_cast<uint64_t>(size));
    while (fill && static_cast<int64_t>(row.size()) < size) row.push_back(*bound.get(1));
    flush();
  }
  return in.make_list(std::move(batches), Kind::kGenerator);
}

Value slice(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("slice", args, {"slices", "fill_with"}, 1);
  const int64_t slices = bound.integer(0, 1);
  if (slices < 1) fail("the number of slices must be positive");
  in.charge(static_cast<uint64_t>(slices));
  const std::vector<Value> all = in.iterate(v);
  const size_t count = static_cast<size_t>(slices), per_slice = all.size() / count, longer = all.size() % count;
  std::vector<Value> out;
  size_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t end = at + per_slice + (i < longer ? 1 : 0);
    std::vector<Value> row(all.begin() + static_cast<ptrdiff_t>(at), all.begin() + static_cast<ptrdiff_t>(end));
    if (bound.has(1) && !bound.get(1)->is(Kind::kNone) && i >= longer) row.push_back(*bound.get(1));
    out.push_back(in.make_list(std::move(row)));
    at = end;
  }
  return in.make_list(std::move(out), Kind::kGenerator);
}

Value attr(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("attr", args, {"name"}, 1);
  if (v.is(Kind::kDict)) {  // attributes only, never items
    const std::string name = bound.string(0, "");
    if (find_container_method(Kind::kDict, name) != nullptr) return in.attribute(v, name);
    return Value::undefined(absl::StrCat("'dict object' has no attribute '", name, "'"));
  }
  return in.attribute(v, bound.string(0, ""));
}

}  // namespace

FilterFn find_sequence_filter(std::string_view name) {
  static const StringMap<FilterFn> filters = {
      {"attr", attr},
      {"batch", batch},
      {"count", length},
      {"dictsort", dictsort},
      {"first", first},
      {"groupby", groupby},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", length},
      {"list", list},
      {"map", map},
      {"max", extreme<Op::kGt>},
      {"min", extreme<Op::kLt>},
      {"reject", select<false, false>},
      {"rejectattr", select<false, true>},
      {"reverse", reverse},
      {"select", select<true, false>},
      {"selectattr", select<true, true>},
      {"slice", slice},
      {"sort", sort},
      {"sum", sum},
      {"unique", unique},
  };
  const auto it = filters.find(name);
  return it == filters.end() ? nullptr : it->second;
}

}  // namespace shoal::jinja

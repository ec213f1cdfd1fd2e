#include "apps/table.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace shoal {
namespace {

constexpr std::string_view kGap = "  ", kRule = " | ";
constexpr size_t kFirstMin = 8;  // columns that are left of the first one's cells
constexpr char kCut[] = "…";

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

// Bytes of the first `count` characters.
size_t bytes_of(std::string_view text, size_t count) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if (begins_character(text[at]) && count-- == 0) break;
  }
  return at;
}

std::string padded(std::string text, size_t width, bool right) {
  const size_t used = columns_of(text);
  if (used < width) text.insert(right ? 0 : text.size(), width - used, ' ');
  return text;
}

}  // namespace

size_t columns_of(std::string_view text) { return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_character)); }

std::string cut_text(std::string_view text, size_t width) {
  if (columns_of(text) <= width) return std::string(text);
  return width == 0 ? "" : std::string(text.substr(0, bytes_of(text, width - 1))) + kCut;
}

std::string count_text(double number, std::string_view one) { return absl::StrFormat("%.0f %s%s", number, std::string(one), number == 1 ? "" : "s"); }

std::vector<std::string> wrap_text(std::string_view text, size_t width, size_t indent) {
  std::vector<std::string> lines;
  std::string before;
  while (width > indent && columns_of(text) > width - before.size()) {
    const size_t room = bytes_of(text, width - before.size());
    const size_t space = text.rfind(' ', room);
    const size_t end = space == std::string_view::npos || space == 0 ? room : space;
    lines.push_back(before + std::string(text.substr(0, end)));
    text.remove_prefix(std::min(text.find_first_not_of(' ', end), text.size()));
    before.assign(indent, ' ');
  }
  if (!text.empty() || lines.empty()) lines.push_back(before + std::string(text));
  return lines;
}

Table::Lines Table::lines(size_t width) const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(std::max(columns_of(columns_[i].heading), columns_[i].width_min));
    for (const auto& row : rows_) {
      if (i == 0 || row.size() == columns_.size()) widths[i] = std::max(widths[i], columns_of(row.at(i)));
    }
  }
  std::vector<size_t> shown(columns_.size());
  std::iota(shown.begin(), shown.end(), 0);
  const auto gap = [&](size_t i) { return i == 0 ? std::string_view() : columns_[i].rule ? kRule : kGap; };
  const auto used = [&] {
    size_t sum = 0;
    for (const size_t i : shown) sum += gap(i).size() + widths[i];
    return sum;
  };
  Lines out;
  while (width > 0 && used() > width) {
    const auto last = std::max_element(shown.begin(), shown.end(), [&](size_t a, size_t b) { return columns_[a].rank < columns_[b].rank; });
    if (columns_[*last].rank == 0) break;
    shown.erase(last);
  }
  if (width > 0 && used() > width) {
    widths[0] = std::max({kFirstMin, columns_of(columns_[0].heading), widths[0] - std::min(widths[0], used() - width)});
  }
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (std::find(shown.begin(), shown.end(), i) == shown.end()) out.left_out.push_back(columns_[i].heading);
  }
  const auto line_of = [&](const auto& cell) {
    std::string line;
    for (const size_t i : shown) {
      absl::StrAppend(&line, std::string(gap(i)), padded(i == 0 ? cut_text(cell(i), widths[0]) : cell(i), widths[i], columns_[i].right));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  };
  out.heading = line_of([&](size_t i) { return columns_[i].heading; });
  for (const auto& row : rows_) {
    const bool whole = row.size() == columns_.size();
    out.rows.push_back(whole ? line_of([&](size_t i) { return row[i]; })
                             : absl::StrJoin(wrap_text(padded(cut_text(row[0], widths[0]), widths[0], false) + std::string(gap(1)) + row[1], width, kGap.size()), "\n"));
  }
  return out;
}

std::string Table::text(size_t width) const {
  const Lines all = lines(width);
  std::string out = all.heading + "\n";
  for (const std::string& row : all.rows) absl::StrAppend(&out, row, "\n");
  for (const std::string& line : left_out_lines(all.left_out, width)) absl::StrAppend(&out, line, "\n");
  return out;
}

std::vector<std::string> left_out_lines(const std::vector<std::string>& headings, size_t width) {
  if (headings.empty()) return {};
  return wrap_text(absl::StrCat("not shown: ", absl::StrJoin(headings, ", "), " (--json, or a wider terminal)"), width, 2);
}

}  // namespace shoal

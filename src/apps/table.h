// Tables and text for people, as wide as their terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

// Characters of UTF-8, each taken for one column.
size_t columns_of(std::string_view text);

// At most `width` columns; what is cut off shows as "…".
std::string cut_text(std::string_view text, size_t width);

// "1 request", "2 requests".
std::string count_text(double number, std::string_view one);

// Lines of at most `width` columns (0: no limit), broken at spaces where there are any; those after the first begin with
// `indent` spaces.
std::vector<std::string> wrap_text(std::string_view text, size_t width, size_t indent = 0);

struct TableColumn {
  std::string heading;
  int rank = 0;          // 0: always there. Of the others the highest is the first to be left out
  bool right = false;    // numbers
  size_t width_min = 0;  // for tables that are drawn again and again and should not jump
  bool rule = false;     // a group begins here: " | " before it
};

// Columns are as wide as what is in them. No heading is ever cut.
class Table {
 public:
  explicit Table(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

  // A cell for each column; or the first alone, with a text that takes the place of the others and may go on in further lines.
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  struct Lines {
    std::string heading;
    std::vector<std::string> rows;
    std::vector<std::string> left_out;  // headings of columns that there was no room for
  };
  // Fits `width` columns (0: no limit) by leaving out columns, then by cutting the cells of the first.
  Lines lines(size_t width) const;
  // As one text, with a line that names what was left out.
  std::string text(size_t width) const;

 private:
  std::vector<TableColumn> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// What the table leaves out, and where it is, as lines; none if it is all there.
std::vector<std::string> left_out_lines(const std::vector<std::string>& headings, size_t width);

}  // namespace shoal

// The page that reports are: tiles, tables and charts as data, and one template (page.html) that draws whatever they hold. Styles
// and script are within the page, nothing is fetched; light and dark, wide and narrow.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "nlohmann/json.hpp"

namespace shoal {

using Points = std::vector<std::pair<double, double>>;

struct Axis {
  std::string label;               // with its unit: "time (s)"
  double low = 0, high = 1;
  bool logarithmic = false;        // REQUIRES: low > 0
  bool share = false;              // of 1, shown in percent
  bool whole = false;              // counts: no ticks between
  std::vector<std::string> names;  // of the rows 0..1, 1..2, ... instead of ticks
};

enum class Mark { kLine, kArea, kBars, kSpans, kDots, kLabels, kGoal, kMarks };

struct Series {
  std::string name;                // in the key; series of one name share an entry
  Mark mark = Mark::kLine;
  std::string colour = "c0";       // c0..c11, or a word of the template's: bad, good, soft, fg
  OrderedJson points = OrderedJson::array();  // see the functions below
  bool steps = false;              // of lines and areas: the value holds until the next point
  bool large = false;              // of dots
};
// [x, y]: of lines, areas and goals (whose first y is drawn across).
OrderedJson points_of(const Points& points);
// To be appended to `points`.
OrderedJson bar_of(double from, double to, double value);
OrderedJson span_of(double from, double to, double row_low, double row_high);
OrderedJson dot_of(double x, double y, const std::string& hint = "");  // the hint of a label is the label
OrderedJson mark_of(double x, const std::string& label);  // a dashed line up from x

struct Chart {
  std::string title, note;
  Axis x, y;
  uint32_t height = 230;           // pixels; the width is the reader's
  std::vector<Series> series;
};

struct Tile {
  std::string value, name;
  bool bad = false;
  std::string about;               // shown when it is pointed at
};

struct PageTable {
  std::string title, note;
  std::vector<std::string> columns;  // all empty: no head
  struct Row {
    std::vector<std::string> cells;  // fewer than columns: the last one spans the rest
    std::string look = {};           // "best", "note-row"
  };
  std::vector<Row> rows;
  bool words = false;              // text, to the left and wrapped, rather than figures
};

class HtmlPage {
 public:
  HtmlPage(const std::string& title, const std::vector<std::string>& lede);
  void heading(const std::string& text, const std::string& note = "");
  void tiles(const std::vector<Tile>& tiles);
  void table(const PageTable& table);
  void charts(const std::vector<Chart>& side_by_side);  // on a wide screen

  const OrderedJson& data() const { return data_; }
  std::string html() const;

 private:
  OrderedJson data_;
};

// Three digits or so; thousands apart.
std::string number(double value);
// "97.3 %" of 0.973.
std::string percent(double share);
// At most about `points_max` of a staircase over [0, end]; none of its highest steps is lost.
Points thinned(const Points& steps, double end, size_t points_max);

// page.html.
std::string_view page_template();

}  // namespace shoal

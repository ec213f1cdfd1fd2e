// Small charts as SVG text: axes with units, lines, areas, bars and dots. Colours are CSS classes of the page around them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shoal {

using Points = std::vector<std::pair<double, double>>;

struct AxisSpec {
  double low = 0, high = 1;
  std::string label;     // with its unit: "time (s)"
  bool logarithmic = false;
};

// Round values within [low, high] to put ticks at, about `wanted` of them.
std::vector<double> axis_ticks(const AxisSpec& axis, size_t wanted);
// "1,250", "0.35", "12.5k" as short as a tick needs.
std::string tick_text(double value);
// For text and attribute values of HTML and SVG.
std::string html_escaped(std::string_view text);

class SvgChart {
 public:
  // `title` is for people who do not see the picture.
  SvgChart(double width, double height, AxisSpec x, AxisSpec y, std::string title);

  void line(const Points& points, const char* css_class);
  void area(const Points& points, const char* css_class);     // down to the x axis
  void bar(double from, double to, double value, const char* css_class);
  void span(double from, double to, double row_low, double row_high, const char* css_class);  // a box in both axes
  void dot(double x, double y, const char* css_class, const std::string& hint);
  void marker(double x, const std::string& label);            // a dashed vertical line

  std::string svg() const;

 private:
  double px(double x) const;
  double py(double y) const;
  std::string axes() const;

  double width_, height_;
  AxisSpec x_, y_;
  std::string title_;
  std::string body_;
  double marker_text_y_ = 0;
};

}  // namespace shoal

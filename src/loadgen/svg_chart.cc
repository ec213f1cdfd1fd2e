#include "loadgen/svg_chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "workload/views.h"

namespace shoal {
namespace {

constexpr double kLeft = 64, kRight = 16, kTop = 14, kBottom = 44;
constexpr double kMarkerTextStep = 13;

double fraction(const AxisSpec& axis, double value) {
  const double v = std::clamp(value, axis.low, axis.high);
  if (axis.logarithmic) return std::log(v / axis.low) / std::log(axis.high / axis.low);
  return (v - axis.low) / (axis.high - axis.low);
}

// 1, 2 or 5 times a power of ten, near `rough`.
double round_step(double rough) {
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double lead = rough / power;
  return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
}

AxisSpec usable(AxisSpec axis) {
  if (axis.logarithmic && axis.low <= 0) axis.low = 1e-3;
  if (!(axis.high > axis.low)) axis.high = axis.logarithmic ? axis.low * 10 : axis.low + 1;
  return axis;
}

}  // namespace

std::vector<double> axis_ticks(const AxisSpec& axis, size_t wanted) {
  std::vector<double> ticks;
  if (axis.logarithmic) {
    const bool few = axis.high / axis.low < 300;
    for (double power = std::pow(10, std::floor(std::log10(axis.low))); power <= axis.high; power *= 10) {
      for (const double lead : few ? std::vector<double>{1, 2, 5} : std::vector<double>{1}) {
        if (power * lead >= axis.low && power * lead <= axis.high) ticks.push_back(power * lead);
      }
    }
    return ticks;
  }
  const double step = round_step((axis.high - axis.low) / static_cast<double>(wanted));
  for (double i = std::ceil(axis.low / step); i * step <= axis.high * (1 + 1e-9); ++i) ticks.push_back(i * step);
  return ticks;
}

std::string tick_text(double value) {
  const double size = std::fabs(value);
  if (size >= 1e6) return absl::StrFormat("%.3gM", value / 1e6);
  if (size >= 1e4) return absl::StrFormat("%.4gk", value / 1e3);
  return absl::StrFormat("%.4g", value);
}

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

SvgChart::SvgChart(double width, double height, AxisSpec x, AxisSpec y, std::string title)
    : width_(width), height_(height), x_(usable(std::move(x))), y_(usable(std::move(y))), title_(std::move(title)), marker_text_y_(height - kBottom - 3 * kMarkerTextStep) {}

double SvgChart::px(double x) const { return kLeft + fraction(x_, x) * (width_ - kLeft - kRight); }
double SvgChart::py(double y) const { return height_ - kBottom - fraction(y_, y) * (height_ - kTop - kBottom); }

void SvgChart::line(const Points& points, const char* css_class) {
  absl::StrAppend(&body_, "<polyline class=\"", css_class, "\" points=\"");
  for (const auto& [x, y] : points) absl::StrAppendFormat(&body_, "%.1f,%.1f ", px(x), py(y));
  body_ += "\"/>\n";
}

void SvgChart::area(const Points& points, const char* css_class) {
  if (points.empty()) return;
  absl::StrAppendFormat(&body_, "<polygon class=\"%s\" points=\"%.1f,%.1f ", css_class, px(points.front().first), py(y_.low));
  for (const auto& [x, y] : points) absl::StrAppendFormat(&body_, "%.1f,%.1f ", px(x), py(y));
  absl::StrAppendFormat(&body_, "%.1f,%.1f\"/>\n", px(points.back().first), py(y_.low));
}

void SvgChart::bar(double from, double to, double value, const char* css_class) { span(from, to, y_.low, value, css_class); }

void SvgChart::span(double from, double to, double row_low, double row_high, const char* css_class) {
  const double width = std::max(0.5, px(to) - px(from));
  absl::StrAppendFormat(&body_, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", css_class, px(from),
                        py(row_high), width, std::max(0.0, py(row_low) - py(row_high)));
}

void SvgChart::dot(double x, double y, const char* css_class, const std::string& hint) {
  absl::StrAppendFormat(&body_, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2\"><title>%s</title></circle>\n", css_class, px(x), py(y),
                        html_escaped(hint));
}

void SvgChart::marker(double x, const std::string& label) {
  const bool left = px(x) > width_ - 130;
  absl::StrAppendFormat(&body_, "<line class=\"mark\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", px(x), kTop, px(x), height_ - kBottom);
  absl::StrAppendFormat(&body_, "<text class=\"mark-text\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", px(x) + (left ? -4 : 4),
                        marker_text_y_, left ? "end" : "start", html_escaped(label));
  marker_text_y_ += kMarkerTextStep;
}

std::string SvgChart::axes() const {
  std::string out;
  const double bottom = height_ - kBottom;
  for (const double tick : axis_ticks(y_, 5)) {
    absl::StrAppendFormat(&out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", kLeft, py(tick), width_ - kRight, py(tick));
    absl::StrAppendFormat(&out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", kLeft - 6, py(tick) + 4, tick_text(tick));
  }
  for (const double tick : axis_ticks(x_, std::max<size_t>(4, static_cast<size_t>(width_ / 90)))) {
    absl::StrAppendFormat(&out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", px(tick), kTop, px(tick), bottom);
    absl::StrAppendFormat(&out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", px(tick), bottom + 16, tick_text(tick));
  }
  absl::StrAppendFormat(&out, "<text class=\"axis\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", (kLeft + width_ - kRight) / 2,
                        height_ - 8, html_escaped(x_.label));
  const double middle = (kTop + bottom) / 2;
  absl::StrAppendFormat(&out, "<text class=\"axis\" x=\"14\" y=\"%.1f\" text-anchor=\"middle\" transform=\"rotate(-90 14 %.1f)\">%s</text>\n", middle,
                        middle, html_escaped(y_.label));
  return out;
}

std::string SvgChart::svg() const {
  return absl::StrFormat("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n", width_, height_, html_escaped(title_)) + axes() + body_ +
         absl::StrFormat("<path class=\"frame\" d=\"M%.1f %.1fV%.1fH%.1f\"/></svg>\n", kLeft, kTop, height_ - kBottom, width_ - kRight);
}

}  // namespace shoal

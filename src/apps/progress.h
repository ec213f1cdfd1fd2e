// A line on stderr that is rewritten while something goes on; nothing where stderr is no terminal.
#pragma once

#include <string>
#include <string_view>

namespace shoal {

class ProgressLine {
 public:
  ~ProgressLine() { clear(); }

  // "[=====>    ] TEXT", cut to the width of the terminal. `done` of `total`: the bar; total 0: no bar.
  void show(double done, double total, std::string_view text);
  void clear();

 private:
  bool shown_ = false;
};

// The line itself, for a terminal of `columns` columns.
std::string progress_text(double done, double total, std::string_view text, size_t columns);

}  // namespace shoal

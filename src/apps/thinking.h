// What a model thinks before it answers, between <think> and </think>, apart from the answer, as the text streams by.
#pragma once

#include <string>
#include <string_view>

namespace shoal {

class ThinkingStyle {
 public:
  // `before` and `after` stand in place of the tags: escape sequences, say.
  ThinkingStyle(std::string before, std::string after) : before_(std::move(before)), after_(std::move(after)) {}

  // The text to show for a piece of the answer; the beginning of what may become a tag is kept back.
  std::string push(std::string_view piece);
  // What was kept back, and the end of a thought that never ended.
  std::string finish();

 private:
  std::string before_, after_;
  std::string kept_;
  bool thinking_ = false;
};

}  // namespace shoal

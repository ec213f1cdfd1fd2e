// Answers as clients of llama.cpp's own endpoints read them.
#pragma once

#include <string>

#include "gateway/answer.h"
#include "gateway/surfaces/answer_clock.h"

namespace shoal {

class LlamaAnswer : public AnswerWriter {
 public:
  // many: the answer is a list, one for each prompt. model: the name of the model that answers.
  LlamaAnswer(std::string model, bool many) : model_(std::move(model)), many_(many) {}

  std::string body(const std::vector<CollectedChoice>& choices, const Generation& generation) override;
  void begin(const Generation&, std::string&) override {}
  void push(const Progress& progress, const Generation& generation, std::string& out) override;

 private:
  Json last(uint32_t index, const CollectedChoice& choice, const Generation& generation) const;

  const std::string model_;
  const bool many_;
  const AnswerClock clock_;
};

}  // namespace shoal

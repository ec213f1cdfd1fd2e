// Answers as Ollama's clients read them: one JSON object, or one a line.
#pragma once

#include <string>

#include "gateway/answer.h"
#include "gateway/surfaces/answer_blocks.h"
#include "gateway/surfaces/answer_clock.h"

namespace shoal {

std::string rfc3339(int64_t unix_seconds);

class OllamaAnswer : public AnswerWriter {
 public:
  // generate: of /api/generate, "response" instead of "message". model: as the client named it.
  OllamaAnswer(std::string model, bool generate) : model_(std::move(model)), generate_(generate) {}

  std::string body(const std::vector<CollectedChoice>& choices, const Generation& generation) override;
  std::string_view stream_type() const override { return "application/x-ndjson"; }
  void begin(const Generation&, std::string&) override {}
  void push(const Progress& progress, const Generation& generation, std::string& out) override;
  void ping(std::string&) const override {}  // every line is an object with a meaning

  // What a client gets that asked for nothing but a model made ready.
  std::string loaded_body() const;

 private:
  Json piece(const std::string& text, const std::string& reasoning, const Json& calls) const;
  void finish(std::string_view reason, const Generation& generation, Json& out) const;

  const std::string model_;
  const bool generate_;
  const AnswerClock clock_;
  AnswerBlocks blocks_;
};

}  // namespace shoal

// The progress of a generation as an answer: collected into one body, or as the events of a stream.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/generation.h"
#include "gateway/openai_body.h"

namespace shoal {

// Adds what has come to choices that are collected. REQUIRES: choices.size() is the generation's.
void collect(Progress progress, std::vector<CollectedChoice>& choices);

// Writes the answer to one request in the words of the interface that it came by: whole with body(), or as a stream with
// begin(), push() as long as there is progress, and nothing after a progress that is done. One writer, one answer.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  virtual std::string body(const std::vector<CollectedChoice>& choices, const Generation& generation) = 0;

  virtual std::string_view stream_type() const { return "text/event-stream; charset=utf-8"; }
  // Each appends to `out`. A failure becomes an event of its own; a stream never just ends.
  virtual void begin(const Generation& generation, std::string& out) = 0;
  virtual void push(const Progress& progress, const Generation& generation, std::string& out) = 0;
  virtual void ping(std::string& out) const { out += ": ping\n\n"; }  // of a stream that has nothing to say
};

// A request that is ready to run.
struct PreparedAnswer {
  std::unique_ptr<AnswerWriter> writer;
  bool stream = false;
  PreparedRequest request;
  std::optional<std::string> ready;  // the whole answer, where no model is needed for it; the rest is empty then
};

// A server-sent event with a name, as Anthropic's and OpenAI's newer interfaces have them.
void named_event(std::string_view name, const Json& data, std::string& out);
void plain_event(std::string_view data, std::string& out);

// OpenAI's chats and completions: role chunks first, text as it comes, one finish chunk per choice, usage if wanted, [DONE].
class OpenAiAnswer : public AnswerWriter {
 public:
  explicit OpenAiAnswer(AnswerHead head) : head_(std::move(head)) {}

  std::string body(const std::vector<CollectedChoice>& choices, const Generation& generation) override;
  void begin(const Generation& generation, std::string& out) override;
  void push(const Progress& progress, const Generation& generation, std::string& out) override;

 private:
  const AnswerHead head_;
};

}  // namespace shoal

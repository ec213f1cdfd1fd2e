// The progress of a generation as an answer: collected into one body, or as the events of a stream.
#pragma once

#include <string>
#include <vector>

#include "gateway/generation.h"
#include "gateway/openai_body.h"

namespace shoal {

// Collects an answer that is not streamed.
class AnswerCollector {
 public:
  explicit AnswerCollector(uint32_t choices) : choices_(choices) {}
  void push(Progress progress);
  std::string body(const AnswerHead& head, const Generation& generation) const;

 private:
  std::vector<CollectedChoice> choices_;
};

// Writes server-sent events: role chunks first, text as it comes, one finish chunk per choice, usage if wanted, [DONE].
// A failure becomes an error event and [DONE]; a stream never just ends.
class AnswerStream {
 public:
  AnswerStream(AnswerHead head, uint32_t choices) : head_(std::move(head)), choices_(choices) {}

  // Append to `out`. begin() once, before everything else; after push() of a progress that is done, nothing.
  void begin(std::string& out) const;
  void push(const Progress& progress, const Generation& generation, std::string& out) const;
  static void ping(std::string& out);

 private:
  const AnswerHead head_;
  const uint32_t choices_;
};

}  // namespace shoal

// Answers as clients of OpenAI's responses read them: a response with its items, or the events that build it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gateway/answer.h"
#include "gateway/surfaces/answer_blocks.h"
#include "gateway/surfaces/chat_parts.h"
#include "gateway/surfaces/responses_request.h"

namespace shoal {

class ResponsesAnswer : public AnswerWriter {
 public:
  // id: "resp_...". What is answered goes to `store`, which outlives this, if the request asks for it.
  ResponsesAnswer(std::string id, int64_t created, ResponsesRequest request, ResponseStore& store, Caller caller);

  std::string body(const std::vector<CollectedChoice>& choices, const Generation& generation) override;
  // response.created and in_progress; for each item output_item.added, its parts and deltas, output_item.done; response.completed,
  // or incomplete, or failed. All are numbered.
  void begin(const Generation& generation, std::string& out) override;
  void push(const Progress& progress, const Generation& generation, std::string& out) override;

 private:
  Json response(const char* status) const;
  Json item(const BlockEvent& block, bool done) const;
  bool is_freeform(const BlockEvent& block) const;
  void event(const std::string& name, Json data, std::string& out);
  void write(const BlockEvent& block, const std::vector<ScoredPiece>& pieces, std::string& out);
  void write_begin(const BlockEvent& block, std::string& out);
  void write_end(const BlockEvent& block, std::string& out);
  void remember(const BlockEvent& block);
  Json finished(bool cut, const Generation& generation);  // the whole response; stores it

  const std::string id_;
  const int64_t created_;
  const ResponsesRequest request_;
  ResponseStore& store_;
  const Caller caller_;
  AnswerBlocks blocks_;
  Json output_ = Json::array();
  Json logprobs_ = Json::array();  // of the text
  Conversation turns_;             // with what is answered
  uint64_t sequence_ = 0;
};

}  // namespace shoal

// Answers as Anthropic's clients read them: a message of blocks, or the events that build it.
#pragma once

#include <string>

#include "gateway/answer.h"
#include "gateway/surfaces/answer_blocks.h"

namespace shoal {

class MessagesAnswer : public AnswerWriter {
 public:
  // id: "msg_..."; model: as the client named it.
  MessagesAnswer(std::string id, std::string model) : id_(std::move(id)), model_(std::move(model)) {}

  std::string body(const std::vector<CollectedChoice>& choices, const Generation& generation) override;
  // message_start; for each block content_block_start, content_block_delta ..., content_block_stop; message_delta, message_stop.
  void begin(const Generation& generation, std::string& out) override;
  void push(const Progress& progress, const Generation& generation, std::string& out) override;
  void ping(std::string& out) const override;

 private:
  Json message() const;

  const std::string id_;
  const std::string model_;
  AnswerBlocks blocks_;
};

}  // namespace shoal

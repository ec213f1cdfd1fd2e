// Vectors and scores as clients of /v1/embeddings, /v1/rerank, /v1/score and Ollama's /api/embed read them.
#pragma once

#include <string>
#include <vector>

#include "gateway/answer.h"
#include "gateway/surfaces/answer_clock.h"
#include "gateway/surfaces/pooled_request.h"

namespace shoal {

class PooledAnswer : public AnswerWriter {
 public:
  enum class Form { kEmbeddings, kRerank, kScore, kOllamaEmbed, kOllamaEmbedding };

  // id: of the answer, where its form has one. The request's model is the name that the client used.
  PooledAnswer(Form form, std::string id, int64_t created, PooledRequest request)
      : form_(form), id_(std::move(id)), created_(created), request_(std::move(request)) {}

  std::string body(const std::vector<CollectedChoice>& choices, const Generation& generation) override;
  void begin(const Generation&, std::string&) override {}
  void push(const Progress&, const Generation&, std::string&) override {}  // is never a stream

 private:
  std::vector<float> vector_of(const CollectedChoice& choice, const Generation& generation) const;
  std::string embeddings(const std::vector<CollectedChoice>& choices, const Generation& generation) const;
  std::string ollama(const std::vector<CollectedChoice>& choices, const Generation& generation) const;
  std::string scores(const std::vector<CollectedChoice>& choices, const Generation& generation) const;

  const Form form_;
  const std::string id_;
  const int64_t created_;
  const PooledRequest request_;
  const AnswerClock clock_;
};

}  // namespace shoal

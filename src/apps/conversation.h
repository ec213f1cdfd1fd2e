// Talking to a model in this process: what `run` and `chat` share.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "apps/local_cluster.h"
#include "base/json.h"
#include "gateway/openai_request.h"
#include "gateway/prepare.h"

namespace CLI {
class App;
}

namespace shoal {

// Flags of both verbs.
struct TalkFlags {
  std::string model;
  std::string models_dir = "models";
  std::string system;
  std::optional<uint32_t> max_tokens;
  std::optional<float> temperature;
  std::optional<int64_t> seed;
  EngineFlags engine;
  LogFlags log;
};
void add_talk_flags(CLI::App& verb, TalkFlags& flags);

struct Answer {
  std::string text;          // all that was shown
  uint32_t tokens = 0;       // of the answer, by the model's count
  bool interrupted = false;  // by the person; the text is what came until then
};

// One thread at a time; what a method is given is called on the caller's thread.
class Conversation {
 public:
  // Finds the model and starts the roles; the model itself is loaded with the first question. NotFound names the nearest
  // model; Unavailable: the node did not come up within a minute.
  static StatusOr<std::unique_ptr<Conversation>> start(const TalkFlags& flags);

  bool has_chat_template() const { return text_->chat_template != nullptr; }
  std::string model_name() const { return cluster_->catalog().models().front()->name; }

  // `messages`: an array of chat messages. `show` gets the answer as it comes; a true `interrupted` ends it early.
  StatusOr<Answer> chat(const Json& messages, const std::function<void(std::string_view)>& show,
                        const std::function<bool()>& interrupted);
  // Continues a text, for models without a chat template.
  StatusOr<Answer> complete(const std::string& prompt, const std::function<void(std::string_view)>& show,
                            const std::function<bool()>& interrupted);

 private:
  Conversation() = default;
  PrepareContext context() const;
  GenerationFields fields() const;
  StatusOr<Answer> generate(ApiResult<PreparedRequest> request, const std::function<void(std::string_view)>& show,
                            const std::function<bool()>& interrupted);

  TalkFlags flags_;
  std::unique_ptr<LocalCluster> cluster_;
  std::shared_ptr<const ModelText> text_;
};

}  // namespace shoal

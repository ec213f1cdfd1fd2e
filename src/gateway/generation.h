// One client request under way: its choices as requests of the router, and what has arrived of them. The router's
// thread puts tokens in; one consumer (an HTTP connection, a terminal) takes text out.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gateway/api_error.h"
#include "gateway/choice_stream.h"
#include "gateway/metrics.h"
#include "gateway/prepare.h"
#include "gateway/router_loop.h"

namespace shoal {

struct ChoiceUpdate {
  uint32_t choice = 0;  // prompt index * n + i
  ChoiceDelta delta;
};

struct Progress {
  std::vector<ChoiceUpdate> updates;
  std::optional<ApiError> failure;  // the whole request ends with it; every choice is cancelled
  bool done = false;                // every choice has finished, or `failure` is set
  bool more = false;                // poll() again before waiting
};

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t reasoning_tokens = 0;  // of the completion's
};

struct GenerationOptions {
  TimePoint deadline = kForever;
  size_t unread_bytes_max = 16u << 20;  // tokens kept for a consumer that does not poll; beyond it the request is given up
  Metrics* metrics = nullptr;          // outlives the generation
};

class Generation : public TokenSink, public std::enable_shared_from_this<Generation> {
 public:
  // Submits every choice. `wake` is called on the router's thread whenever poll() has something new after it had
  // nothing; it must only notify. `loop` outlives the generation.
  static ApiResult<std::shared_ptr<Generation>> start(PreparedRequest request, RouterLoop& loop,
                                                      const GenerationOptions& options, std::function<void()> wake);
  ~Generation() override;

  // Consumer: what has arrived since the last call, a bounded piece at a time. Choices whose stop string matched are
  // cancelled here.
  Progress poll();
  // Consumer: frees the nodes' work; after it `wake` is not called any more, and nothing new arrives. Idempotent.
  void cancel();

  const PreparedRequest& request() const { return request_; }
  Usage usage() const;                                  // consumer
  std::optional<Duration> first_token_after() const { return first_token_after_; }  // consumer
  Duration queued() const { return queued_; }            // consumer; of the choice that came first
  uint32_t choices() const { return static_cast<uint32_t>(choices_.size()); }
  FinishReason last_finish() const { return last_finish_; }

  void on_tokens(Tokens tokens) override;               // router's thread
  void on_refused(RequestId id, const Status& status, Duration retry_after) override;

 private:
  struct Arrival {
    Tokens tokens;
    TimePoint at;
    std::optional<ApiError> refusal;
  };
  struct Choice {
    RequestId id;
    ChoiceStream stream;
    TokenScore score;
    TimePoint first_at = kForever;
    std::optional<FinishReason> finish;
    TimePoint last_at{};
    bool ended = false;  // the router owes nothing more
  };

  Generation(PreparedRequest request, RouterLoop& loop, const GenerationOptions& options, std::function<void()> wake);
  ApiResult<bool> submit();
  void enqueue(Arrival arrival);
  void take(Arrival& arrival, Progress& progress);
  void fail(ApiError error, Progress& progress, bool overflow = false);
  void score_answers();
  RequestSpan span_of(uint32_t index, TimePoint now) const;
  void note_times(Choice& choice, const Arrival& arrival);

  const PreparedRequest request_;
  RouterLoop& loop_;
  const GenerationOptions options_;
  const TimePoint started_;
  const SloTarget slo_;

  std::mutex mutex_;
  std::function<void()> wake_;    // guarded by mutex_, as are the next four; empty once cancelled
  std::deque<Arrival> arrived_;
  size_t unread_bytes_ = 0;
  bool overflow_ = false;
  bool closed_ = false;

  // Consumer only.
  std::vector<Choice> choices_;
  std::unordered_map<RequestId, uint32_t> index_;
  std::vector<uint32_t> cached_tokens_;  // per prompt
  std::optional<Duration> first_token_after_;
  Duration queued_{0};
  uint32_t unfinished_ = 0;
  bool cancelled_ = false;
  std::optional<int> failure_status_;  // HTTP
  FinishReason last_finish_ = FinishReason::kStop;
};

}  // namespace shoal

#include "transport_grpc/link.h"

#include <atomic>

namespace shoal {

bool Link::send(peer::Frame frame, uint64_t waiting_max) {
  const uint64_t bytes = frame.message().size();
  {
    std::lock_guard lock(mutex_);
    if (ended_) return false;
    if (waiting_bytes_ + bytes <= waiting_max) {
      note(sent_ns_);
      if (writing_) {
        waiting_bytes_ += bytes;
        waiting_.push_back(std::move(frame));
      } else {
        writing_ = true;
        being_written_ = std::move(frame);
        write(being_written_);
      }
      return true;
    }
  }
  close();
  return false;
}

void Link::written(bool ok) {
  std::lock_guard lock(mutex_);
  writing_ = false;
  if (!ok || ended_ || waiting_.empty()) return;
  being_written_ = std::move(waiting_.front());
  waiting_.pop_front();
  waiting_bytes_ -= being_written_.message().size();
  writing_ = true;
  write(being_written_);
}

void Link::stop_writing() {
  std::lock_guard lock(mutex_);
  ended_ = true;
  waiting_.clear();
  waiting_bytes_ = 0;
}

bool take_frame(const std::shared_ptr<Link>& link, LinkOwner& owner, peer::Frame& frame, bool& greeted, grpc::Status& refusal) {
  if (frame.has_hello()) {
    if (std::exchange(greeted, true)) refusal = {grpc::INVALID_ARGUMENT, "a second greeting"};
    else refusal = owner.greeted(link, frame.hello());
  } else if (!greeted) {
    refusal = {grpc::INVALID_ARGUMENT, "a stream begins with who is there"};
  } else if (!frame.message().empty() && !owner.message(*link, std::move(*frame.mutable_message()))) {
    refusal = {grpc::RESOURCE_EXHAUSTED, "more waits here than there is room for"};
  }
  return refusal.ok();
}

namespace {

class DialledLink : public Link, public grpc::ClientBidiReactor<peer::Frame, peer::Frame> {
 public:
  DialledLink(const std::shared_ptr<grpc::Channel>& channel, LinkOwner& owner) : owner_(owner), stub_(peer::Peer::NewStub(channel)) {}

  // `self` keeps it until OnDone.
  void begin(std::shared_ptr<DialledLink> self, const peer::Hello& hello, uint64_t waiting_max) {
    self_ = std::move(self);
    stub_->async()->Link(&context_, this);
    AddHold();  // writes begin on other threads
    StartRead(&read_);
    peer::Frame frame;
    *frame.mutable_hello() = hello;
    send(std::move(frame), waiting_max);
    StartCall();
  }
  void close() override { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      stop_writing();
      RemoveHold();
      return;
    }
    note(heard_ns_);
    if (refusal_.ok() && !take_frame(self_, owner_, read_, greeted_, refusal_)) close();
    read_.Clear();
    StartRead(&read_);
  }
  void OnWriteDone(bool ok) override { written(ok); }
  void OnDone(const grpc::Status& status) override {
    std::shared_ptr<DialledLink> self = std::move(self_);
    LinkOwner& owner = owner_;
    owner.ended(self, refusal_.ok() ? status : refusal_);
    self.reset();  // and this with it, in most cases
    owner.gone();
  }

 protected:
  void write(const peer::Frame& frame) override { StartWrite(&frame); }

 private:
  LinkOwner& owner_;
  const std::unique_ptr<peer::Peer::Stub> stub_;
  grpc::ClientContext context_;
  std::shared_ptr<DialledLink> self_;
  peer::Frame read_;
  bool greeted_ = false;
  grpc::Status refusal_;
};

class AnsweredLink : public Link, public grpc::ServerBidiReactor<peer::Frame, peer::Frame> {
 public:
  AnsweredLink(LinkOwner& owner, grpc::CallbackServerContext* context) : owner_(owner), context_(context) {}
  void begin(std::shared_ptr<AnsweredLink> self) {
    self_ = std::move(self);
    StartRead(&read_);
  }
  void close() override {  // a peer that does not read would never take a regular end
    std::lock_guard lock(mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return finish(grpc::Status::OK);
    note(heard_ns_);
    grpc::Status refusal;
    if (!take_frame(self_, owner_, read_, greeted_, refusal)) {
      end_ = refusal;
      return finish(refusal);
    }
    read_.Clear();
    StartRead(&read_);
  }
  void OnWriteDone(bool ok) override { written(ok); }
  void OnCancel() override { finish({grpc::CANCELLED, "the stream broke"}); }
  void OnDone() override {
    std::shared_ptr<AnsweredLink> self = std::move(self_);
    LinkOwner& owner = owner_;
    {
      std::lock_guard lock(mutex_);
      context_ = nullptr;
    }
    owner.ended(self, end_);
    self.reset();  // and this with it, in most cases
    owner.gone();
  }

 protected:
  void write(const peer::Frame& frame) override { StartWrite(&frame); }

 private:
  void finish(const grpc::Status& status) {
    stop_writing();
    if (!finished_.exchange(true)) Finish(status);
  }

  LinkOwner& owner_;
  grpc::CallbackServerContext* context_;  // guarded by mutex_; none when the stream is over
  std::shared_ptr<AnsweredLink> self_;
  peer::Frame read_;
  bool greeted_ = false;
  std::atomic<bool> finished_{false};
  grpc::Status end_;
};

}  // namespace

std::shared_ptr<Link> dial(const std::shared_ptr<grpc::Channel>& channel, const peer::Hello& hello, LinkOwner& owner, uint64_t waiting_max) {
  auto link = std::make_shared<DialledLink>(channel, owner);
  link->begin(link, hello, waiting_max);
  return link;
}

grpc::ServerBidiReactor<peer::Frame, peer::Frame>* answer(LinkOwner& owner, grpc::CallbackServerContext* context) {
  auto link = std::make_shared<AnsweredLink>(owner, context);
  AnsweredLink* reactor = link.get();
  reactor->begin(std::move(link));
  return reactor;
}

}  // namespace shoal

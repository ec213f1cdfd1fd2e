#include "transport_ucx/ucx_network.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "transport/resolve.h"
#include "transport_ucx/ucx_worker.h"

namespace shoal {
namespace {

constexpr unsigned kMessage = 1;        // of active messages
constexpr size_t kWindow = 8;           // messages of one write that are under way
constexpr size_t kBacklog = 64;         // who wants to connect
constexpr size_t kHeldMax = 64u << 20;  // bytes that came and that nobody has read
constexpr Duration kConnectTime = std::chrono::seconds(2);
constexpr Duration kFlushTime = std::chrono::milliseconds(100);  // a peer that does not read does not confirm
constexpr Duration kCloseTime = std::chrono::seconds(1);

class UcxSocket : public BulkSocket {
 public:
  // `read_timeout`: 0: who serves waits for what is asked next.
  UcxSocket(std::unique_ptr<UcxWorker> worker, Duration read_timeout) : worker_(std::move(worker)), read_timeout_(read_timeout) {}
  ~UcxSocket() override {
    close(/*flush=*/!failed_ && !worker_->ended());
    for (const Message& message : incoming_) {
      if (message.data != nullptr) ucp_am_data_release(worker_->get(), message.data);
    }
  }

  // `params` says with whom.
  Status open(ucp_ep_params_t params) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessage;
    handler.flags = UCP_AM_FLAG_PERSISTENT_DATA;
    handler.cb = [](void* self, const void*, size_t, void* data, size_t size, const ucp_am_recv_param_t* param) {
      return static_cast<UcxSocket*>(self)->came(data, size, (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
    };
    handler.arg = this;
    if (const ucs_status_t status = ucp_worker_set_am_recv_handler(worker_->get(), &handler); status != UCS_OK) return unavailable("UCX: ", ucs_status_string(status));
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void* self, ucp_ep_h, ucs_status_t status) { static_cast<UcxSocket*>(self)->failed_ = status; };
    params.err_handler.arg = this;
    if (const ucs_status_t status = ucp_ep_create(worker_->get(), &params, &ep_); status != UCS_OK) return unavailable("UCX: ", ucs_status_string(status));
    return OkStatus();
  }
  // The other side has taken the connection.
  Status wait_connected() {
    const ucp_request_param_t none{};
    return finish(ucp_ep_flush_nbx(ep_, &none), kConnectTime);
  }

  Status write(std::span<const std::byte> bytes) override {
    std::lock_guard lock(mutex_);
    if (ep_ == nullptr) return broken(OkStatus());
    std::deque<ucs_status_ptr_t> under_way;
    Status status;
    while (status.ok() && (!bytes.empty() || !under_way.empty())) {
      if (bytes.empty() || under_way.size() == kWindow) {
        status = finish(std::exchange(under_way.front(), nullptr), kBulkTimeout);
        under_way.pop_front();
        continue;
      }
      const auto piece = bytes.first(std::min(bytes.size(), kUcxPieceBytes));
      const ucp_request_param_t none{};
      under_way.push_back(ucp_am_send_nbx(ep_, kMessage, nullptr, 0, piece.data(), piece.size(), &none));
      bytes = bytes.subspan(piece.size());
    }
    if (status.ok()) return OkStatus();
    close(/*flush=*/false);  // ends what is under way: its bytes are the caller's
    for (const ucs_status_ptr_t request : under_way) worker_->settle(request, kCloseTime);
    return broken(status);
  }

  Status read(std::span<std::byte> bytes) override {
    std::lock_guard lock(mutex_);
    while (!bytes.empty()) {
      const Status status = worker_->until([&] { return !incoming_.empty() || failed_.has_value() || ep_ == nullptr; }, read_timeout_);
      if (!status.ok() || incoming_.empty()) return broken(status);
      Message& message = incoming_.front();
      if (message.rendezvous) {
        const bool fits = message.size <= bytes.size();
        if (!fits) message.bounced.resize(message.size);
        const std::span<std::byte> into = fits ? bytes.first(message.size) : std::span(message.bounced);
        message.rendezvous = false;
        const Status fetched = fetch(std::exchange(message.data, nullptr), into);
        if (!fetched.ok()) return broken(fetched);
        if (fits) message.taken = message.size;
        if (fits) bytes = bytes.subspan(message.size);
      } else {
        const std::byte* from = message.data != nullptr ? static_cast<const std::byte*>(message.data) : message.bounced.data();
        const size_t count = std::min(bytes.size(), message.size - message.taken);
        std::memcpy(bytes.data(), from + message.taken, count);
        message.taken += count;
        if (message.data != nullptr) held_ -= count;
        bytes = bytes.subspan(count);
      }
      if (message.taken == message.size) drop_front();
    }
    return OkStatus();
  }

  void shut_down() override {
    worker_->end();
    if (!mutex_.try_lock()) return;  // whoever reads or writes closes it
    close(/*flush=*/false);
    mutex_.unlock();
  }
  std::string_view kind() const override { return "UCX"; }

 private:
  // Not read yet, or in part. `data` is UCX's: a buffer, or of a rendezvous the right to fetch.
  struct Message {
    void* data = nullptr;
    size_t size = 0, taken = 0;
    bool rendezvous = false;
    std::vector<std::byte> bounced;  // fetched, for a reader that wants less at once
  };

  ucs_status_t came(void* data, size_t size, bool rendezvous) {
    if (size == 0 || held_ + size > kHeldMax) {
      if (size > 0) failed_ = UCS_ERR_EXCEEDS_LIMIT;
      return UCS_OK;
    }
    if (!rendezvous) held_ += size;
    incoming_.push_back({data, size, 0, rendezvous, {}});
    return UCS_INPROGRESS;  // it is kept
  }
  Status fetch(void* right, std::span<std::byte> into) {
    const ucp_request_param_t none{};
    return finish(ucp_am_recv_data_nbx(worker_->get(), right, into.data(), into.size(), &none), kBulkTimeout);
  }
  void drop_front() {
    if (incoming_.front().data != nullptr) ucp_am_data_release(worker_->get(), incoming_.front().data);
    incoming_.pop_front();
  }

  // Waits for an operation and frees it.
  Status finish(ucs_status_ptr_t request, Duration most) {
    if (request == nullptr) return OkStatus();
    if (UCS_PTR_IS_ERR(request)) return unavailable("UCX: ", ucs_status_string(UCS_PTR_STATUS(request)));
    const Status status = worker_->until([&] { return ucp_request_check_status(request) != UCS_INPROGRESS; }, most);
    if (!status.ok()) {
      close(/*flush=*/false);
      worker_->settle(request, kCloseTime);
      return status;
    }
    const ucs_status_t result = ucp_request_check_status(request);
    ucp_request_free(request);
    return result == UCS_OK ? OkStatus() : unavailable("UCX: ", ucs_status_string(result));
  }

  Status broken(const Status& status) {
    close(/*flush=*/false);
    if (!status.ok()) return status;
    return unavailable("the stream broke", failed_ ? absl::StrCat(": ", ucs_status_string(*failed_)) : "");
  }
  // `flush`: what was written is on its way first.
  void close(bool flush) {
    if (ep_ == nullptr) return;
    ucp_request_param_t param{};
    if (flush) worker_->settle(ucp_ep_flush_nbx(ep_, &param), kFlushTime);
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;  // else it would wait for the other side to progress
    worker_->settle(ucp_ep_close_nbx(std::exchange(ep_, nullptr), &param), kCloseTime);
    worker_->drain();
  }

  const std::unique_ptr<UcxWorker> worker_;
  const Duration read_timeout_;
  std::mutex mutex_;       // of whoever reads or writes, or closes it
  ucp_ep_h ep_ = nullptr;  // null: closed
  std::optional<ucs_status_t> failed_;
  std::deque<Message> incoming_;
  size_t held_ = 0;  // bytes of incoming_ in UCX's buffers
};

class UcxListener : public BulkListener {
 public:
  UcxListener(std::shared_ptr<UcxContext> context, std::unique_ptr<UcxWorker> worker) : context_(std::move(context)), worker_(std::move(worker)) {}
  ~UcxListener() override {
    for (const ucp_conn_request_h wants : wanting_) ucp_listener_reject(listener_, wants);
    if (listener_ != nullptr) ucp_listener_destroy(listener_);
  }
  Status listen(const addrinfo& at) {
    ucp_listener_params_t params{};
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr = {at.ai_addr, at.ai_addrlen};
    params.conn_handler.cb = [](ucp_conn_request_h wants, void* self) { static_cast<UcxListener*>(self)->wanted(wants); };
    params.conn_handler.arg = this;
    if (const ucs_status_t status = ucp_listener_create(worker_->get(), &params, &listener_); status != UCS_OK) return unavailable("UCX: ", ucs_status_string(status));
    ucp_listener_attr_t attributes{};
    attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    if (const ucs_status_t status = ucp_listener_query(listener_, &attributes); status != UCS_OK) return unavailable("UCX: ", ucs_status_string(status));
    port_ = port_of(attributes.sockaddr);
    return OkStatus();
  }

  uint16_t port() const override { return port_; }
  std::unique_ptr<BulkSocket> accept() override {
    while (worker_->until([&] { return !wanting_.empty(); }, Duration(0)).ok()) {
      ucp_ep_params_t params{};
      params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
      params.conn_request = wanting_.front();
      wanting_.pop_front();
      auto worker = UcxWorker::make(context_);
      if (!worker.ok()) {
        ucp_listener_reject(listener_, params.conn_request);
        continue;
      }
      auto socket = std::make_unique<UcxSocket>(*std::move(worker), Duration(0));
      if (const Status status = socket->open(params); status.ok()) return socket;
      else log_info("a connection over UCX failed: ", status.message());
    }
    return nullptr;
  }
  void shut_down() override { worker_->end(); }

 private:
  void wanted(ucp_conn_request_h wants) {
    if (wanting_.size() < kBacklog) wanting_.push_back(wants);
    else ucp_listener_reject(listener_, wants);
  }

  const std::shared_ptr<UcxContext> context_;
  const std::unique_ptr<UcxWorker> worker_;
  ucp_listener_h listener_ = nullptr;
  std::deque<ucp_conn_request_h> wanting_;
  uint16_t port_ = 0;
};

class Ucx : public BulkNetwork {
 public:
  Ucx(std::shared_ptr<BulkNetwork> other, bool listens) : other_(std::move(other)), listens_(listens) {}

  StatusOr<std::unique_ptr<BulkSocket>> connect(const std::string& address) override {
    if (!address.starts_with(kUcxScheme)) return other_->connect(address);
    ASSIGN_OR_RETURN(const Addresses found, resolve(address.substr(kUcxScheme.size()), /*passive=*/false));
    ASSIGN_OR_RETURN(const std::shared_ptr<UcxContext> context, context_of_process());
    Status last;
    for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
      ASSIGN_OR_RETURN(auto worker, UcxWorker::make(context));
      auto socket = std::make_unique<UcxSocket>(std::move(worker), kBulkTimeout);
      ucp_ep_params_t params{};
      params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
      params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
      params.sockaddr = {at->ai_addr, at->ai_addrlen};
      last = socket->open(params);
      if (last.ok()) last = socket->wait_connected();
      if (last.ok()) return std::unique_ptr<BulkSocket>(std::move(socket));
    }
    return unavailable(address, ": ", last.message());
  }
  StatusOr<std::unique_ptr<BulkListener>> listen(const std::string& address) override {
    if (!listens_) return other_->listen(address);
    ASSIGN_OR_RETURN(const Addresses found, resolve(address, /*passive=*/true));
    ASSIGN_OR_RETURN(const std::shared_ptr<UcxContext> context, context_of_process());
    ASSIGN_OR_RETURN(auto worker, UcxWorker::make(context));
    auto listener = std::make_unique<UcxListener>(context, std::move(worker));
    if (const Status status = listener->listen(*found); !status.ok()) return unavailable(address, ": ", status.message());
    return std::unique_ptr<BulkListener>(std::move(listener));
  }
  std::string_view scheme() const override { return listens_ ? kUcxScheme : other_->scheme(); }

 private:
  StatusOr<std::shared_ptr<UcxContext>> context_of_process() {
    std::lock_guard lock(mutex_);
    if (context_ != nullptr) return context_;
    ASSIGN_OR_RETURN(context_, UcxContext::make());
    return context_;
  }

  const std::shared_ptr<BulkNetwork> other_;
  const bool listens_;
  std::mutex mutex_;
  std::shared_ptr<UcxContext> context_;  // null: not needed yet
};

}  // namespace

std::shared_ptr<BulkNetwork> make_bulk_ucx(std::shared_ptr<BulkNetwork> other, bool listens) { return std::make_shared<Ucx>(std::move(other), listens); }

}  // namespace shoal

#include "rendezvous/etcd/etcd_connection.h"

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/verb.hpp>
#include <boost/none.hpp>
#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

namespace http = boost::beast::http;
using Kind = EtcdTrouble::Kind;
using boost::beast::error_code;

// Enough for two keys of at most 64 KiB, a third longer in base64.
constexpr size_t kAnswerBytesMax = size_t{1} << 20;

std::string text_of(const EtcdCall& call, const EtcdMember& member) {
  http::request<http::string_body> request{http::verb::post, call.path, 11};
  request.set(http::field::host, member.to_string());
  request.set(http::field::content_type, "application/json");
  // Without this, a watch at a member that has lost the others hangs, and a write does for 7 s.
  request.set("Grpc-Metadata-hasleader", "true");
  if (!call.token.empty()) request.set(http::field::authorization, call.token);
  request.body() = call.json;
  request.prepare_payload();
  std::string text;
  http::serializer<true, http::string_body> serializer(request);
  while (!serializer.is_done()) {
    error_code error;
    serializer.next(error, [&](error_code&, const auto& buffers) {
      for (auto at = boost::asio::buffer_sequence_begin(buffers);
           at != boost::asio::buffer_sequence_end(buffers); ++at) {
        const boost::asio::const_buffer buffer = *at;
        text.append(static_cast<const char*>(buffer.data()), buffer.size());
      }
      serializer.consume(boost::asio::buffer_size(buffers));
    });
    CHECK(!error);
  }
  return text;
}

}  // namespace

struct EtcdConnection::State {
  State(EtcdSocket one, EtcdMember to) : socket(std::move(one)), member(std::move(to)) {}

  EtcdResult<void> send(const EtcdCall& call, bool streams, Deadline deadline);
  // Parses what has been received; reads more only if that is not enough for progress.
  EtcdResult<void> advance(Deadline deadline);
  EtcdTrouble closed() const {
    return {parser && parser->got_some() ? Kind::outage : Kind::silent,
            "it closed the connection without an answer"};
  }

  EtcdSocket socket;
  EtcdMember member;
  std::string unparsed;
  std::optional<http::response_parser<http::string_body>> parser;
};

EtcdConnection::EtcdConnection(std::unique_ptr<State> state) : state_(std::move(state)) {}
EtcdConnection::EtcdConnection(EtcdConnection&&) noexcept = default;
EtcdConnection& EtcdConnection::operator=(EtcdConnection&&) noexcept = default;
EtcdConnection::~EtcdConnection() = default;

EtcdResult<EtcdConnection> EtcdConnection::open(const EtcdOptions& options,
                                                const EtcdMember& member, int cancel,
                                                Deadline deadline) {
  auto socket = EtcdSocket::open(member, options.tls ? &options.files : nullptr, cancel, deadline);
  if (!socket) return tl::unexpected(std::move(socket.error()));
  return EtcdConnection(std::make_unique<State>(std::move(*socket), member));
}

EtcdResult<void> EtcdConnection::State::send(const EtcdCall& call, bool streams,
                                             Deadline deadline) {
  parser.emplace();
  parser->eager(true);
  if (streams) {
    parser->body_limit(boost::none);
  } else {
    parser->body_limit(kAnswerBytesMax);
  }
  if (auto sent = socket.write_all(text_of(call, member), deadline); !sent) {
    return etcd_trouble(sent.error().kind == Kind::outage ? Kind::silent : sent.error().kind,
                        sent.error().why);
  }
  return {};
}

EtcdResult<void> EtcdConnection::State::advance(Deadline deadline) {
  for (;;) {
    error_code error;
    if (!unparsed.empty()) {
      const size_t used = parser->put(boost::asio::buffer(unparsed), error);
      unparsed.erase(0, used);
      if (error && error != http::error::need_more) {
        return etcd_trouble(Kind::setup, fmt::format("it does not answer as etcd does: {}",
                                                     printable(error.message(), 100)));
      }
      if (used > 0) return {};
    }
    std::array<char, 16384> piece;
    const auto got = socket.read_some(piece.data(), piece.size(), deadline);
    if (!got) return tl::unexpected(got.error());
    unparsed.append(piece.data(), *got);
    if (*got > 0) continue;
    if (!parser->got_some()) return tl::unexpected(closed());
    parser->put_eof(error);
    if (error) return tl::unexpected(closed());
    return {};
  }
}

EtcdResult<EtcdReply> EtcdConnection::post(const EtcdCall& call, Deadline deadline) {
  if (auto sent = state_->send(call, false, deadline); !sent)
    return tl::unexpected(std::move(sent.error()));
  while (!state_->parser->is_done()) {
    if (auto advanced = state_->advance(deadline); !advanced)
      return tl::unexpected(std::move(advanced.error()));
  }
  auto& message = state_->parser->get();
  return EtcdReply{static_cast<int>(message.result_int()), std::move(message.body())};
}

EtcdResult<int> EtcdConnection::start(const EtcdCall& call, Deadline deadline) {
  if (auto sent = state_->send(call, true, deadline); !sent)
    return tl::unexpected(std::move(sent.error()));
  while (!state_->parser->is_header_done()) {
    if (auto advanced = state_->advance(deadline); !advanced)
      return tl::unexpected(std::move(advanced.error()));
  }
  return static_cast<int>(state_->parser->get().result_int());
}

EtcdResult<std::string> EtcdConnection::next_line(Deadline deadline) {
  for (;;) {
    // The parser only appends to the body, so lines may be removed from its front.
    std::string& body = state_->parser->get().body();
    const size_t end = body.find('\n');
    const bool is_done = state_->parser->is_done();
    if (end != std::string::npos || (is_done && !body.empty())) {
      std::string line = body.substr(0, end);
      body.erase(0, end == std::string::npos ? end : end + 1);
      return line;
    }
    if (is_done) return etcd_trouble(Kind::outage, "it ended the watch");
    if (body.size() > kAnswerBytesMax) return etcd_trouble(Kind::setup, "its line has no end");
    if (auto advanced = state_->advance(deadline); !advanced)
      return tl::unexpected(std::move(advanced.error()));
  }
}

bool EtcdConnection::can_go_on() const {
  const auto& parser = state_->parser;
  return !parser || (parser->is_done() && parser->keep_alive() && state_->unparsed.empty());
}

bool etcd_speaks_the_other(const EtcdOptions& options, const EtcdMember& member, int cancel,
                           Deadline deadline) {
  auto socket = EtcdSocket::open(member, nullptr, cancel, deadline);
  if (!socket) return false;
  // An empty ClientHello: a TLS server answers it with an alert.
  constexpr std::string_view kHello("\x16\x03\x01\x00\x04\x01\x00\x00\x00", 9);
  constexpr uint8_t kAlert = 0x15;
  const std::string request =
      options.tls ? fmt::format("GET /version HTTP/1.1\r\nHost: {}\r\n\r\n", member.to_string())
                  : std::string(kHello);
  std::array<char, 5> answer{};
  size_t size = 0;
  if (!socket->write_all(request, deadline)) return false;
  while (size < answer.size()) {
    const auto got = socket->read_some(answer.data() + size, answer.size() - size, deadline);
    if (!got || *got == 0) return false;
    size += *got;
  }
  return options.tls ? std::string_view(answer.data(), size) == "HTTP/"
                     : static_cast<uint8_t>(answer[0]) == kAlert;
}

}  // namespace muster

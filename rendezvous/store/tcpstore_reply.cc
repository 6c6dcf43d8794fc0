#include "rendezvous/store/tcpstore_reply.h"

#include <algorithm>
#include <array>

#include "rendezvous/store/tcpstore_codec.h"

namespace muster::tcpstore {

namespace {

// Width of the number that begins an answer, by Shape.
constexpr auto kNumberBytes = std::to_array<size_t>({0, 1, 4, 8, 0, 8});
static_assert(kNumberBytes.size() == static_cast<size_t>(Shape::names) + 1);

size_t number_bytes(Shape shape) {
  return kNumberBytes[static_cast<size_t>(shape)];
}

}  // namespace

ReplyDecoder::ReplyDecoder(Shape shape, size_t strings, size_t reply_bytes_max)
    : shape_(shape),
      strings_left_(shape == Shape::strings ? strings : 0),
      bytes_left_(reply_bytes_max),
      stage_(number_bytes(shape) > 0 ? Stage::number
             : strings_left_ > 0     ? Stage::length
                                     : Stage::done) {}

// Returns true once `width` bytes are in small_.
bool ReplyDecoder::gather(std::string_view& input, size_t width) {
  const size_t taken = std::min(width - small_.size(), input.size());
  small_.append(input.substr(0, taken));
  input.remove_prefix(taken);
  return small_.size() == width;
}

ReplyDecoder::Decoded ReplyDecoder::next(std::string_view& input) {
  while (stage_ != Stage::done) {
    if (stage_ == Stage::body) {
      const size_t taken = std::min<uint64_t>(body_left_, input.size());
      reply_.strings.back().append(input.substr(0, taken));
      input.remove_prefix(taken);
      body_left_ -= taken;
      if (body_left_ > 0) return Decoded::more;
      next_string();
      continue;
    }
    const bool number = stage_ == Stage::number;
    if (!gather(input, number ? number_bytes(shape_) : 8)) return Decoded::more;
    const Decoded outcome = number ? after_number() : begin_string();
    small_.clear();
    if (outcome == Decoded::malformed) return outcome;
  }
  return Decoded::reply;
}

ReplyDecoder::Decoded ReplyDecoder::after_number() {
  small_.resize(8, '\0');
  reply_.number = static_cast<int64_t>(read_u64(small_.data()));
  if (shape_ == Shape::names) {
    // Each name takes at least eight bytes.
    if (reply_.number < 0 || static_cast<uint64_t>(reply_.number) > bytes_left_ / 8)
      return Decoded::malformed;
    strings_left_ = static_cast<size_t>(reply_.number);
  }
  stage_ = strings_left_ > 0 ? Stage::length : Stage::done;
  return Decoded::more;
}

ReplyDecoder::Decoded ReplyDecoder::begin_string() {
  body_left_ = read_u64(small_.data());
  if (bytes_left_ < 8 || body_left_ > bytes_left_ - 8) return Decoded::malformed;
  bytes_left_ -= 8 + body_left_;
  reply_.strings.emplace_back();
  if (body_left_ > 0) {
    stage_ = Stage::body;
    return Decoded::more;
  }
  return next_string();
}

ReplyDecoder::Decoded ReplyDecoder::next_string() {
  --strings_left_;
  stage_ = strings_left_ > 0 ? Stage::length : Stage::done;
  return Decoded::more;
}

}  // namespace muster::tcpstore

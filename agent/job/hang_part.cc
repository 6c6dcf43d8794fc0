#include "agent/job/hang_part.h"

#include <algorithm>
#include <variant>

#include <fmt/format.h>

#include "agent/hang/hang_text.h"
#include "rendezvous/base/machine.h"
#include "rendezvous/base/overloaded.h"

namespace muster {
// The rank to fail for a finding: one that it names and that still runs, else one that waits for
// these; -1: none. The rank's node must take part in the watch, or it would not get the order.
int HangPart::rank_to_fail(const hang::Finding& finding) const {
  const OnHang policy = spec_.hang.on_hang;
  const bool acts = policy == OnHang::restart || policy == OnHang::stop ||
                    (policy == OnHang::automatic && finding.by == hang::By::proof);
  if (!acts || finding.is_over) return -1;
  const auto may_fail = [this, &round = job_.round()](int rank) {
    const bool is_own = rank >= round.base_rank && rank < round.base_rank + round.local_world_size;
    return (is_own || watch_->place_of(rank) != nullptr) && !watch_->has_ended(rank);
  };
  for (const hang::Suspect& one : finding.ranks) {
    if (one.what != hang::Class::exited && may_fail(one.rank)) return one.rank;
  }
  const auto waiting = std::ranges::find_if(finding.waiting, may_fail);
  return waiting == finding.waiting.end() ? -1 : *waiting;
}

std::optional<Error> HangPart::open_trace() {
  if (spec_.trace.empty() || trace_) return {};
  const bool is_part = spec_.rendezvous.nnodes_max > 1;
  if (is_part && job_.attempt() < 0) return hang::Trace::defect_of_folder(spec_.trace);
  auto trace = hang::Trace::open(
      is_part ? hang::Trace::path_of_node(spec_.trace, job_.round().node_rank, epoch_)
              : spec_.trace,
      own_ranks_.site_names(), [this](const std::string& text) { job_.say(text); });
  if (!trace) return trace.error();
  trace_ = *std::move(trace);
  return {};
}

void HangPart::begin(membership::Epoch epoch) {
  epoch_ = epoch;
  has_stopped_ = false;
  lingering_.begin_attempt();
  if (!rings_.wanted() || (spec_.hang.off && spec_.trace.empty())) return;
  if (const auto error = open_trace()) job_.say(error->message);
  if (trace_) trace_->begin(job_.attempt());
  if (!watch_) watch();
  const RoundView& round = job_.round();
  watch_->begin({.node_rank = round.node_rank,
                 .nodes = round.nodes,
                 .base_rank = round.base_rank,
                 .workers = round.local_world_size,
                 .world_size = round.world_size,
                 .store_port = round.master_port,
                 .host = own_hostname()});
}

void HangPart::watch() {
  hang::HangWatch::Callbacks callbacks;
  callbacks.found = [this](const hang::Effect& effect) { on_finding(effect); };
  callbacks.told = [this](std::string_view news) { on_news(news); };
  callbacks.send = [this](int to, std::string payload) { job_.send(to, std::move(payload)); };
  callbacks.is_held = [this](int local_rank) { return own_ranks_.is_held(local_rank); };
  callbacks.settled = settled_;
  callbacks.looked = [this] {
    if (!spec_.hang.off && !has_stopped_) lingering_.look();
  };
  callbacks.held_up = [this](const hang::Stragglers& stragglers) {
    if (!spec_.hang.off) tell_all(record_.stragglers(stragglers));
  };
  callbacks.read = [this](int rank, const RecordedState& state, const RingReader& reader) {
    if (trace_) trace_->read(rank, state, reader);
  };
  callbacks.clock = [this](Instant own, int64_t there, Duration error) {
    if (trace_) trace_->set_clock(own, there, error);
  };
  const HangSpec spec = spec_.hang.off ? HangSpec{} : spec_.hang;  // A trace needs no limits.
  watch_.emplace(io_, rings_, own_ranks_.site_names(), hang::limits_of(spec), std::move(callbacks));
  record_.set_places([this](int rank) {
    const hang::RemoteNodes::Place* const place = watch_->place_of(rank);
    return place == nullptr ? hang::RankPlace{}
                            : hang::RankPlace{place->host, place->pid, place->device};
  });
}

void HangPart::started(int local_rank, pid_t pid, const std::string& device) {
  if (watch_) watch_->started(local_rank, pid, device);
  if (!trace_) return;
  const int rank = job_.round().base_rank + local_rank;
  trace_->started(rank, pid, described_rank(rank, record_.place_of(rank)));
}

void HangPart::ended(int local_rank, int code) {
  if (watch_) watch_->ended(local_rank, code);
  if (trace_) trace_->ended(job_.round().base_rank + local_rank, code, rings_.reader(local_rank));
}

void HangPart::when_judged(std::function<void()> then) {
  if (!watch_) return then();
  watch_->when_judged(std::move(then));
}

void HangPart::hear(const membership::Delivered& datagram) {
  if (watch_) watch_->hear(datagram.from, datagram.payload, datagram.at, datagram.at_error);
}

void HangPart::on_finding(const hang::Effect& effect) {
  if (spec_.hang.off) return;  // The rings are read for a trace only.
  const HangNews news = std::visit(
      Overloaded{
          [](const hang::LookAt&) { return HangNews(); },
          [this](const hang::Notice& notice) { return record_.hang_notice(notice); },
          [this](const hang::WaitEnded& ended) { return record_.wait_ended(ended); },
          [this](const hang::WentOn& went_on) {
            record_.went_on(went_on);
            return HangNews();
          },
          [this](const hang::Verdict& verdict) {
            return record_.hang_verdict(verdict, /*goes_on=*/rank_to_fail(verdict.finding) < 0);
          },
          [this](const hang::Withdrawn& withdrawn) { return record_.hang_withdrawn(withdrawn); },
          [this](const hang::Explained& explained) {
            record_.hang_explained(explained.number);
            return HangNews();
          }},
      effect);
  tell_all(news);
  if (const auto* const notice = std::get_if<hang::Notice>(&effect))
    bundles_.tell(notice->finding, /*quiet=*/true, [] {});
  const auto* const verdict = std::get_if<hang::Verdict>(&effect);
  if (verdict == nullptr) return;
  const hang::Finding& finding = verdict->finding;
  bundles_.look_into(finding, news, [this, attempt = job_.attempt(), finding] {
    if (attempt == job_.attempt()) fail_for_hang(finding);
  });
}

// Called once the ranks' stacks were shown: they may have failed, ended or gone on meanwhile.
void HangPart::fail_for_hang(const hang::Finding& finding) {
  const int rank = rank_to_fail(finding);
  if (rank < 0 || has_stopped_ || !record_.stands(finding.number)) return;
  record_.fails_for_hang();
  record_.hang_explained(finding.number);
  HangNews order;
  order.number = finding.number;
  order.text = fmt::format("rank {} now counts as failed (--on-hang)", rank);
  order.failed_rank = rank;
  order.is_final = spec_.hang.on_hang == OnHang::stop;
  record_.take(order);
  tell_all(order);
  fail_rank(order);
}

// No-op unless the rank runs on this node.
void HangPart::fail_rank(const HangNews& order) {
  const int local_rank = order.failed_rank - job_.round().base_rank;
  if (order.failed_rank < 0 || local_rank < 0 || local_rank >= job_.round().local_world_size)
    return;
  job_.post(group::FailWorker{job_.attempt(), local_rank, "is part of a hang", !order.is_final});
}

// Prints the text on every node of the job.
void HangPart::tell_all(const HangNews& news) {
  if (news.text.empty()) return;
  say_all(news.text);
  watch_->publish(encode_hang_news(news));
}

// Takes an update from the node that runs the detector.
void HangPart::on_news(std::string_view bytes) {
  const std::optional<HangNews> news = decode_hang_news(bytes);
  if (!news) return;
  fail_rank(*news);
  if (news->text.empty()) return;
  record_.take(*news);
  say_all(news->text);
}

void HangPart::say_all(const std::string& text) {
  job_.say(text);
  if (trace_) trace_->mark(text);
}

}  // namespace muster

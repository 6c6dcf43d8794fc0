#include "worker_lib/joining/meeting_round.h"

#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/text.h"
#include "worker_lib/fields.h"
#include "worker_lib/joining/job_secret.h"
#include "worker_lib/joining/meeting_text.h"

namespace muster::worker {
namespace {

constexpr size_t kMissingShown = 16;
// Limit for finding the missing ranks after a time-out, with one request each.
constexpr std::chrono::milliseconds kAskForMissing{500};

std::string owner_key(int rank) {
  return fmt::format("owner/{}", rank);
}

std::string rank_key(int rank) {
  return fmt::format("rank/{}", rank);
}

// "rank 1", "ranks 1, 2 and 3".
std::string list_ranks(const Identity& self, const std::vector<GlobalRank>& ranks) {
  std::vector<std::string> texts;
  for (const GlobalRank rank : ranks)
    texts.push_back(std::to_string(known_rank(self, rank.value)));
  return (ranks.size() == 1 ? "rank " : "ranks ") + listed(texts, kMissingShown);
}

}  // namespace

MeetingRound::MeetingRound(const Identity& self, const MeetingOptions& options, StoreClient store,
                           StoreAccess access, std::string address)
    : self_(self),
      options_(options),
      me_(own_record(self.rank, std::move(address))),
      secret_claim_(secret_claim(self)),
      prefix_(fmt::format("muster/{}", self.restart_count)),
      everything_(std::move(store)),
      root_(everything_.with_prefix(prefix_)),
      store_(root_),
      access_(std::move(access)) {}

Outcome<Met> MeetingRound::run() {
  if (Outcome<> entered = enter(); !entered) return tl::unexpected(entered.error());
  if (auto set = store_.set(rank_key(self_.rank), told_record()); !set)
    return meeting_store_failure(set.error());
  const Result<int64_t> came = store_.add("came", 1);
  if (!came) return meeting_store_failure(came.error());
  if (*came == self_.world_size) return gather();
  return wait_for_everyone();
}

// Includes the word on the secret, which may be an offer; the key is removed once all have met.
std::string MeetingRound::told_record() const {
  RankRecord record = me_;
  record.secret_claim = secret_claim_;
  return record.encode();
}

// Runs before this rank writes anything there: otherwise the ranks of two jobs would form one
// world. Not every launcher gives its jobs an id.
Outcome<> MeetingRound::check_job() {
  if (self_.run_id.empty()) return Done{};
  const Result<std::string> job = everything_.compare_set(kRunIdKey, "", self_.run_id);
  if (!job) return meeting_store_failure(job.error());
  if (*job == self_.run_id) return Done{};
  return failed(ErrorCode::environment,
                fmt::format("the store at {}:{} serves job {}, and this rank belongs to job {}: "
                            "give each job a port of its own",
                            access_.host, access_.port, *job, self_.run_id));
}

// Makes this process the owner of its rank. The previous owner may be this process, or a dead one;
// otherwise two processes have the same rank.
Outcome<> MeetingRound::claim_rank() {
  const std::string mine = me_.encode();
  std::string expected;
  for (;;) {
    const Result<std::string> owner = root_.compare_set(owner_key(self_.rank), expected, mine);
    if (!owner) return meeting_store_failure(owner.error());
    if (*owner == mine) return Done{};
    const std::optional<RankRecord> other = RankRecord::decode(*owner);
    if (other && other->life == me_.life) return Done{};
    if (other && surely_lives(other->life)) {
      return failed(ErrorCode::environment,
                    fmt::format("{} has joined this job already and is still there: two processes "
                                "were given the same rank",
                                describe(other->peer)),
                    {GlobalRank{self_.rank}});
    }
    former_ = other;
    expected = *owner;
  }
}

// Finds a generation that is open to this rank.
Outcome<> MeetingRound::enter() {
  if (Outcome<> same = check_job(); !same) return same;
  if (Outcome<> claimed = claim_rank(); !claimed) return claimed;
  const std::string open = fmt::format("open {}", self_.world_size);
  for (;;) {
    const Result<int64_t> joins = root_.add(fmt::format("joins/{}", self_.rank), 1);
    if (!joins) return meeting_store_failure(joins.error());
    generation_ = *joins;
    store_ = root_.with_prefix(std::to_string(generation_));
    const Result<std::string> state = store_.compare_set("state", "", open);
    if (!state) return meeting_store_failure(state.error());
    if (*state == open) return Done{};
    if (state->starts_with("open ")) return contradict(state->substr(5));
    if (!state->starts_with("over")) return failed(ErrorCode::environment, *state);
  }
}

Outcome<> MeetingRound::contradict(const std::string& theirs) {
  const std::string text = fmt::format(
      "rank {} was given a world of {}, and others one of "
      "{}: WORLD_SIZE must be the same for all",
      self_.rank, counted(self_.world_size, "rank"), theirs);
  // Informs later and waiting ranks. Best effort.
  store_.compare_set("state", "open " + theirs, text);
  store_.compare_set("everyone", "", "!" + text);
  return failed(ErrorCode::environment, text, {GlobalRank{self_.rank}});
}

Outcome<Met> MeetingRound::gather() {
  std::vector<std::string> keys;
  for (int rank = 0; rank < self_.world_size; ++rank)
    keys.push_back(rank_key(rank));
  const Result<bool> complete = store_.check(keys);
  if (!complete) return meeting_store_failure(complete.error());
  // If one rank was counted twice, another is missing.
  if (!*complete) return wait_for_everyone();
  const Result<std::vector<std::string>> records = store_.multi_get(keys);
  if (!records) return meeting_store_failure(records.error());
  const std::string all = encode_fields(*records);
  const Result<std::string> said = store_.compare_set("everyone", "", all);
  if (!said) return meeting_store_failure(said.error());
  return read_everyone(*said);
}

Result<Nothing> MeetingRound::wait_until(Deadline deadline) {
  for (;;) {
    const Duration left = time_left(deadline);
    const bool is_last = !options_.interrupted || left <= kInterruptSlice;
    Result<Nothing> there = store_.wait({"everyone"}, is_last ? left : kInterruptSlice);
    if (there || is_last || !store_.connected() || options_.interrupted()) return there;
  }
}

Outcome<Met> MeetingRound::wait_for_everyone() {
  const Deadline notice = end_of_patience(options_);
  const bool is_patient = std::chrono::steady_clock::now() < notice && notice < options_.deadline;
  auto there = wait_until(is_patient ? notice : options_.deadline);
  if (!there && is_patient && store_.connected()) {
    say_who_is_missing();
    there = wait_until(options_.deadline);
  }
  if (!there) {
    if (auto why = options_.interrupted ? options_.interrupted() : std::nullopt)
      return tl::unexpected(std::move(*why));
    if (!store_.connected()) return meeting_store_failure(there.error());
    return give_up();
  }
  const Result<std::string> said = store_.get("everyone");
  if (!said) return meeting_store_failure(said.error());
  return read_everyone(*said);
}

Outcome<std::vector<GlobalRank>> MeetingRound::find_missing(int& asked) {
  std::vector<GlobalRank> missing;
  const auto until = std::chrono::steady_clock::now() + kAskForMissing;
  for (asked = 0; asked < self_.world_size; ++asked) {
    if (asked > 0 && std::chrono::steady_clock::now() >= until) break;
    const Result<bool> is_there = store_.check({rank_key(asked)});
    if (!is_there && asked > 0) break;  // Keep what is known so far.
    if (!is_there) return meeting_store_failure(is_there.error());
    if (!*is_there) missing.push_back(GlobalRank{asked});
  }
  return missing;
}

// "ranks 1 and 2 of 4"
std::string MeetingRound::missing_words(const std::vector<GlobalRank>& missing, int asked) const {
  const bool all_asked = asked == self_.world_size;
  if (missing.empty() && all_asked) return fmt::format("the last rank of {}", self_.world_size);
  std::string words = missing.empty() ? "some" : list_ranks(self_, missing);
  if (!all_asked)
    words += fmt::format("{} from rank {} on", missing.empty() ? "" : " and perhaps some",
                         known_rank(self_, asked));
  return self_.known_as.empty() ? fmt::format("{} of {}", words, self_.world_size) : words;
}

// Prints on one rank per node: a thousand lines would say no more.
void MeetingRound::say_who_is_missing() {
  const std::string mine = std::to_string(self_.rank);
  const Result<std::string> speaker = store_.compare_set("told/" + me_.peer.node, "", mine);
  if (!speaker || *speaker != mine) return;
  int asked = 0;
  const Outcome<std::vector<GlobalRank>> missing = find_missing(asked);
  if (!missing || missing->empty()) return;
  say_that_it_waits(self_, options_,
                    fmt::format("{}: check that {}, with the same meeting point and WORLD_SIZE",
                                missing_words(*missing, asked),
                                missing->size() == 1 ? "it is running" : "they are running"));
}

Outcome<Met> MeetingRound::give_up() {
  int asked = 0;
  Outcome<std::vector<GlobalRank>> missing = find_missing(asked);
  if (!missing) return tl::unexpected(missing.error());
  // Ranks that arrive later must not count on this one.
  store_.compare_set("state", fmt::format("open {}", self_.world_size), "over");
  std::string text =
      fmt::format("{} did not join {}: check that they are running, with the same meeting point",
                  missing_words(*missing, asked), within_limit(options_.begun, options_.deadline));
  if (const auto hosted = access_.own.lock(); hosted && hosted->was_exhausted())
    text += "; this process had no descriptor left to let others in: raise its limit (ulimit -n)";
  if (former_) {
    text += fmt::format(" ({} had joined before: were two processes given the same rank?)",
                        describe(former_->peer));
  }
  return failed(ErrorCode::timeout, std::move(text), std::move(*missing));
}

Outcome<Met> MeetingRound::read_everyone(const std::string& said) {
  if (said.starts_with('!')) return failed(ErrorCode::environment, said.substr(1));
  const std::optional<std::vector<std::string>> records = decode_fields(said);
  Members world;
  std::vector<ProcessLife> lives;
  std::vector<std::string> words;
  world.me = self_.rank;
  for (size_t i = 0; records && i < records->size(); ++i) {
    const std::optional<RankRecord> record = RankRecord::decode((*records)[i]);
    if (!record || record->peer.rank.value != static_cast<int>(i)) {
      return failed(ErrorCode::environment,
                    fmt::format("rank {} speaks another version of muster: use one version for "
                                "the whole job",
                                i),
                    {GlobalRank{static_cast<int>(i)}});
    }
    world.peers.push_back(record->peer);
    lives.push_back(record->life);
    words.push_back(record->secret_claim);
  }
  const auto own = static_cast<size_t>(self_.rank);
  if (world.size() != self_.world_size || (*records)[own] != told_record())
    return failed(ErrorCode::rendezvous, "the store holds something other than this job's ranks");
  Outcome<std::string> secret = agree_on_secret(self_, world, words);
  if (!secret) return tl::unexpected(secret.error());
  access_.prefix += fmt::format("{}/{}", prefix_, generation_);
  return Met{std::move(world),
             std::move(lives),
             std::move(*secret),
             access_,
             store_,
             access_.own.lock(),
             root_,
             generation_};
}

// Also removes the keys of earlier generations: all ranks are in this one.
void forget_meeting(const Met& met) {
  if (!met.root) return;
  StoreClient store = *met.store;
  const Result<int64_t> done = store.add("done", 1);
  if (!done || *done != met.world.size()) return;
  StoreClient root = *met.root;
  const Result<std::vector<std::string>> keys = root.list_keys();
  if (!keys) return;
  const std::string groups = fmt::format("{}/group/", met.generation);
  std::vector<std::string> over;
  for (const std::string& key : *keys) {
    // 0 for owner/R and joins/R, which outlast all generations.
    std::string_view rest = key;
    const int64_t generation = take_number<int64_t>(rest).value_or(0);
    const bool is_over = met.is_last || (generation > 0 && generation <= met.generation);
    if (is_over && !key.starts_with(groups)) over.push_back(key);
  }
  // A single request for all keys: the other ranks wait for this one in their first collective.
  static_cast<void>(root.delete_keys(over));
}

}  // namespace muster::worker

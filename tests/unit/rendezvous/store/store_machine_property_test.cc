// Compares the store with a simple model (ordered maps and a linear list of waiters) under random
// requests of several connections, cut at random places. Each connection must get the same bytes
// from both.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/rendezvous/store/store_harness.h"

namespace muster {
namespace {

using namespace store_test;
using tcpstore::Op;

struct Command {
  Op op = Op::ping;
  std::vector<std::string> fields;
  int64_t number = 0;

  std::string bytes() const {
    std::string out = store_test::op(static_cast<int>(op));
    const bool counted = op == Op::check || op == Op::wait || op == Op::multi_get;
    if (counted) out += i64(static_cast<int64_t>(fields.size()));
    if (op == Op::multi_set) out += i64(static_cast<int64_t>(fields.size() / 2));
    for (const std::string& field : fields)
      out += str(field);
    if (op == Op::ping) out += little_endian(static_cast<uint64_t>(number), 4);
    if (op == Op::add || op == Op::barrier) out += i64(number);
    return out;
  }
};

class Model {
 public:
  void connect() { heard.emplace_back(); }
  void hang_up(size_t id) { forget(id); }

  // Returns false if the connection must be closed.
  bool perform(size_t id, const Command& command);

  std::vector<std::string> heard;
  std::map<std::string, std::string> keys;

 private:
  struct Waiter {
    size_t id;
    bool at_barrier;
    std::set<std::string> missing;
  };

  void forget(size_t id) {
    std::erase_if(waiters_, [&](const Waiter& waiter) { return waiter.id == id; });
  }
  bool there(const std::string& key) const {
    const auto queue = queues_.find(key);
    return keys.contains(key) || (queue != queues_.end() && !queue->second.empty());
  }
  // Removes `key` from what waiters miss; skips those at barriers unless `barriers`. Wakes at most
  // one if `only_one`.
  void wake(const std::string& key, bool barriers, bool only_one) {
    for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
      const bool skipped = waiter->at_barrier && !barriers;
      if (skipped || waiter->missing.erase(key) == 0 || !waiter->missing.empty()) {
        ++waiter;
        continue;
      }
      heard[waiter->id] += kZero;
      waiter = waiters_.erase(waiter);
      if (only_one) return;
    }
  }
  std::string read(const std::string& key) const {
    const auto found = keys.find(key);
    return found == keys.end() ? std::string() : found->second;
  }
  void write(const std::string& key, const std::string& value) {
    if (!keys.contains(key)) order_.push_back(key);
    keys[key] = value;
  }
  bool count(const std::string& key, int64_t delta, int64_t& sum) {
    sum = delta;
    if (!keys.contains(key)) return true;
    const std::string& stored = keys[key];
    char* end = nullptr;
    errno = 0;
    const long long number = std::strtoll(stored.c_str(), &end, 10);
    if (end == stored.c_str() || errno == ERANGE) return false;
    sum = static_cast<int64_t>(static_cast<uint64_t>(number) + static_cast<uint64_t>(delta));
    return true;
  }

  static bool answer(std::string& out, size_t number) {
    out += i64(static_cast<int64_t>(number));
    return true;
  }
  bool on_barrier(size_t id, const std::string& key, int64_t world_size);
  void on_wait(size_t id, const std::vector<std::string>& fields);
  void on_pop(std::string& out, const std::string& key);
  void on_delete(std::string& out, const std::string& key);
  void on_list(std::string& out) const;
  void compare(std::string& out, const std::string& key, const std::string& expected,
               const std::string& desired);

  std::vector<std::string> order_;  // Order of creation.
  std::map<std::string, std::deque<std::string>> queues_;
  std::vector<Waiter> waiters_;
};

// A connection that wakes itself gets the wake-up byte before the answer.
void Model::compare(std::string& out, const std::string& key, const std::string& expected,
                    const std::string& desired) {
  const bool exists = keys.contains(key);
  if (exists ? keys[key] != expected : !expected.empty()) {
    out += str(exists ? keys[key] : expected);
    return;
  }
  write(key, desired);
  wake(key, true, false);
  out += str(desired);
}

void Model::on_wait(size_t id, const std::vector<std::string>& fields) {
  std::set<std::string> missing;
  for (const std::string& key : fields) {
    if (!there(key)) missing.insert(key);
  }
  if (missing.empty()) {
    heard[id] += kZero;
    return;
  }
  forget(id);
  waiters_.push_back({id, false, missing});
}

bool Model::on_barrier(size_t id, const std::string& key, int64_t world_size) {
  int64_t arrived = 0;
  if (!count(key, 1, arrived)) return false;
  write(key, std::to_string(arrived));
  wake(key, arrived >= world_size, false);
  if (arrived >= world_size) {
    heard[id] += kZero;
    return true;
  }
  forget(id);
  waiters_.push_back({id, true, {key}});
  return true;
}

void Model::on_pop(std::string& out, const std::string& key) {
  std::deque<std::string>& queue = queues_[key];
  out += i64(static_cast<int64_t>(queue.size()));
  if (queue.empty()) return;
  out += str(queue.front());
  queue.pop_front();
}

void Model::on_delete(std::string& out, const std::string& key) {
  out += i64(static_cast<int64_t>(keys.erase(key)));
  std::erase(order_, key);
}

void Model::on_list(std::string& out) const {
  out += i64(static_cast<int64_t>(order_.size()));
  for (const std::string& key : order_)
    out += str(key);
}

bool Model::perform(size_t id, const Command& command) {
  const std::vector<std::string>& fields = command.fields;
  std::string& out = heard[id];
  int64_t sum = 0;
  switch (command.op) {
    case Op::set:
      write(fields[0], fields[1]);
      wake(fields[0], true, false);
      return true;
    case Op::append:
      write(fields[0], read(fields[0]).append(fields[1]));
      wake(fields[0], true, false);
      return true;
    case Op::multi_set:
      for (size_t i = 0; i < fields.size(); i += 2)
        write(fields[i], fields[i + 1]);
      for (size_t i = 0; i < fields.size(); i += 2)
        wake(fields[i], true, false);
      return true;
    case Op::compare_set:
      compare(out, fields[0], fields[1], fields[2]);
      return true;
    case Op::get:
      out += str(read(fields[0]));
      return true;
    case Op::multi_get:
      for (const std::string& key : fields)
        out += str(read(key));
      return true;
    case Op::add:
      if (!count(fields[0], command.number, sum)) return false;
      write(fields[0], std::to_string(sum));
      wake(fields[0], true, false);
      out += i64(sum);
      return true;
    case Op::check:
      out += std::all_of(fields.begin(), fields.end(), [&](const auto& key) { return there(key); })
                 ? kZero
                 : kOne;
      return true;
    case Op::wait:
      on_wait(id, fields);
      return true;
    case Op::cancel_wait:
      forget(id);
      out += kOne;
      return true;
    case Op::barrier:
      return on_barrier(id, fields[0], command.number);
    case Op::num_keys:
      return answer(out, keys.size());
    case Op::delete_key:
      on_delete(out, fields[0]);
      return true;
    case Op::queue_push:
      queues_[fields[0]].push_back(fields[1]);
      wake(fields[0], true, true);
      return true;
    case Op::queue_pop:
      on_pop(out, fields[0]);
      return true;
    case Op::queue_len:
      return answer(out, queues_[fields[0]].size());
    case Op::list_keys:
      on_list(out);
      return true;
    default:
      out += little_endian(static_cast<uint64_t>(command.number), 4);
      return true;
  }
}

// ---- random commands

// Few names, so that commands often meet at the same key.
std::string draw_name() {
  return *rc::gen::element<std::string>("/a", "/b", "/c", "/q");
}

std::string draw_value() {
  return *rc::gen::element<std::string>("", "10", "-3", "word", "a longer value than the others");
}

Command draw_command() {
  Command command;
  command.op = static_cast<Op>(*rc::gen::inRange(1, 19));
  command.number = *rc::gen::inRange(-2, 5);
  const auto names = [&](size_t count) {
    for (size_t i = 0; i < count; i++)
      command.fields.push_back(draw_name());
  };
  switch (command.op) {
    case Op::check:
    case Op::wait:
    case Op::multi_get:
      names(*rc::gen::inRange<size_t>(0, 5));
      break;
    case Op::multi_set:
      for (int pairs = *rc::gen::inRange(0, 4); pairs > 0; pairs--)
        command.fields.insert(command.fields.end(), {draw_name(), draw_value()});
      break;
    case Op::compare_set:
      command.fields = {draw_name(), draw_value(), draw_value()};
      break;
    case Op::set:
    case Op::append:
    case Op::queue_push:
      command.fields = {draw_name(), draw_value()};
      break;
    case Op::num_keys:
    case Op::cancel_wait:
    case Op::list_keys:
    case Op::ping:
      break;
    default:
      names(1);
  }
  return command;
}

// Both stores with the same connections. The last bytes of a command may be kept back until its
// connection sends again; the model performs it only then.
class Pair {
 public:
  Pair() {
    for (size_t i = 0; i < 4; i++)
      connect(i);
  }

  void say(size_t who, const Command& command, size_t kept_back) {
    deliver_rest(who);
    const std::string bytes = command.bytes();
    const size_t cut = bytes.size() - std::min(kept_back, bytes.size());
    store.say(ids_[who], std::string_view(bytes).substr(0, cut));
    if (cut == bytes.size()) return happen(who, command);
    rests_[who] = {bytes.substr(cut), command};
  }

  void deliver_rest(size_t who) {
    const auto rest = rests_.find(who);
    if (rest == rests_.end()) return;
    const auto [bytes, command] = rest->second;
    rests_.erase(rest);
    for (const char byte : bytes)
      store.say(ids_[who], {&byte, 1});
    happen(who, command);
  }

  void hang_up(size_t who) {
    rests_.erase(who);
    store.hang_up(ids_[who]);
    model.hang_up(ids_[who]);
    connect(who);
  }

  void compare() {
    for (const ClientId id : ids_)
      RC_ASSERT(store.heard(id) == model.heard[id]);
    RC_ASSERT(store.machine.keys() == model.keys.size());
  }

  PureStore store;
  Model model;

 private:
  void connect(size_t who) {
    ids_[who] = store.connect();
    model.connect();
  }

  void happen(size_t who, const Command& command) {
    const ClientId id = ids_[who];
    const bool accepted = model.perform(id, command);
    RC_ASSERT(accepted == !store.breach(id));
    RC_ASSERT(store.heard(id) == model.heard[id]);
    if (!accepted) hang_up(who);
  }

  ClientId ids_[4] = {};
  std::map<size_t, std::pair<std::string, Command>> rests_;
};

RC_GTEST_PROP(StoreMachineProperty, AnswersLikeTheModel, ()) {
  Pair pair;
  const int length = *rc::gen::inRange(0, 200);
  for (int i = 0; i < length; i++) {
    const auto who = *rc::gen::inRange<size_t>(0, 4);
    if (*rc::gen::inRange(0, 40) == 0) {
      pair.hang_up(who);
    } else {
      const auto kept_back = *rc::gen::element<size_t>(0, 0, 0, 1, 5, 20);
      pair.say(who, draw_command(), kept_back);
    }
    pair.compare();
  }
  for (size_t who = 0; who < 4; who++)
    pair.deliver_rest(who);
  pair.compare();
}

// Without keys, queue items and waiters, the store holds no bytes, whatever happened before.
RC_GTEST_PROP(StoreMachineProperty, AnEmptyStoreHoldsNothing, ()) {
  PureStore store;
  ClientId id = store.connect();
  const int length = *rc::gen::inRange(0, 100);
  for (int i = 0; i < length; i++) {
    store.say(id, draw_command().bytes());
    if (store.breach(id)) id = store.connect();
  }
  store.hang_up(id);
  id = store.connect();
  for (const std::string name : {"/a", "/b", "/c", "/q"}) {
    store.say(id, delete_key(name));
    while (store.say(id, queue_pop(name)) != i64(0)) {
    }
  }
  RC_ASSERT(store.machine.stored_bytes() == 0u);
  RC_ASSERT(store.machine.waiting() == 0u);
}

RC_GTEST_PROP(StoreMachineProperty, AnswersDoNotDependOnTheHashSeed, ()) {
  PureStore one({.hash_seed = 1});
  PureStore two({.hash_seed = *rc::gen::arbitrary<uint64_t>()});
  const ClientId id = one.connect();
  RC_ASSERT(two.connect() == id);
  const int length = *rc::gen::inRange(0, 100);
  for (int i = 0; i < length; i++) {
    const std::string bytes = draw_command().bytes();
    RC_ASSERT(one.say(id, bytes) == two.say(id, bytes));
  }
  RC_ASSERT(one.say(id, list_keys()) == two.say(id, list_keys()));
}

}  // namespace
}  // namespace muster

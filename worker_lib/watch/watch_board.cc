#include "worker_lib/watch/watch_board.h"

#include <utility>

namespace muster::worker {

void WatchBoard::publish(const Watch::News& news) {
  const std::lock_guard lock(mutex_);
  if (news.kind != Watch::News::Kind::quiet) history_.push_back(news);
  std::vector<int> ids;
  for (const auto& [id, listener] : listeners_)
    ids.push_back(id);
  for (const int id : ids) {
    const auto found = listeners_.find(id);
    if (found == listeners_.end()) continue;
    const auto listener = found->second;  // A copy: it may unsubscribe itself.
    (*listener)(news);
  }
}

int WatchBoard::subscribe(Watch::Listener listener) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < history_.size(); ++i) {
    const Watch::News news = history_[i];
    listener(news);
  }
  const int id = next_id_++;
  listeners_[id] = std::make_shared<const Watch::Listener>(std::move(listener));
  return id;
}

void WatchBoard::unsubscribe(int id) {
  const std::lock_guard lock(mutex_);
  listeners_.erase(id);
}

}  // namespace muster::worker
